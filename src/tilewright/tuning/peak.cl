/* As many independent multiply-adds as the device can do, and nothing else.

   Twelve accumulators hide an FMA's latency on every CPU and GPU we know (4 cycles on two
   pipes, 4 cycles on one).  Macros: REAL_BYTES 4|8, VECTOR 1|4|8|16, TRIPS. */
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#if REAL_BYTES == 8
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define REAL double
#else
#define REAL float
#endif
#if VECTOR == 1
typedef REAL vector;
#else
typedef PASTE(REAL, VECTOR) vector;
#endif
#if defined(__has_attribute)
#if __has_attribute(min_vector_width)
__attribute__((min_vector_width(512)))
#endif
#endif
kernel void peak(global REAL *out, const REAL x, const REAL y)
{
    vector c0 = (vector)(get_global_id(0)), c1 = c0 + 1, c2 = c0 + 2, c3 = c0 + 3, c4 = c0 + 4,
           c5 = c0 + 5, c6 = c0 + 6, c7 = c0 + 7, c8 = c0 + 8, c9 = c0 + 9, c10 = c0 + 10,
           c11 = c0 + 11;
    const vector a = (vector)(x), b = (vector)(y);
    for (int trip = 0; trip < TRIPS; ++trip) {
        c0 = c0 * a + b; c1 = c1 * a + b; c2 = c2 * a + b; c3 = c3 * a + b;
        c4 = c4 * a + b; c5 = c5 * a + b; c6 = c6 * a + b; c7 = c7 * a + b;
        c8 = c8 * a + b; c9 = c9 * a + b; c10 = c10 * a + b; c11 = c11 * a + b;
    }
    const vector sum = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;
#if VECTOR == 1
    out[get_global_id(0)] = sum;
#else
    out[get_global_id(0)] = sum.s0 + sum.s1 + sum.s2 + sum.s3;
#endif
}
