/* As many independent multiply-adds as the device can do, and nothing else.

   Twelve accumulators hide an FMA's latency on every CPU and GPU we know (4 cycles on two
   pipes, 4 cycles on one).  Comes after a dialect and a real precision's prelude.
   Macros: VECTOR 1 (all that CUDA has) | 4 | 8 | 16, THREADS in a block, TRIPS. */
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#if VECTOR == 1
typedef REAL vector;
#else
typedef PASTE(REAL, VECTOR) vector;
#endif
/* Without it, clang splits 512-bit vectors on processors that it tunes for 256 bits. */
#if defined(__OPENCL_VERSION__) && defined(__has_attribute)
#if __has_attribute(min_vector_width)
__attribute__((min_vector_width(512)))
#endif
#endif
KERNEL void peak(GLOBAL REAL *out, const REAL x, const REAL y)
{
    const int at = (int)(BLOCK_ID * THREADS) + THREAD_ID;
    vector c0 = (vector)((REAL)at), c1 = c0 + 1, c2 = c0 + 2, c3 = c0 + 3, c4 = c0 + 4,
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
    out[at] = sum;
#else
    out[at] = sum.s0 + sum.s1 + sum.s2 + sum.s3;
#endif
}
