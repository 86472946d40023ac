/* As many independent multiply-adds as the device can do, and nothing else: peak.cl for CUDA.

   Macros: REAL_BYTES 4|8, VECTOR 1, TRIPS. */
#if REAL_BYTES == 8
typedef double real;
#else
typedef float real;
#endif
extern "C" __global__ void peak(real *out, const real a, const real b)
{
    const long long id = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    real c0 = id, c1 = c0 + 1, c2 = c0 + 2, c3 = c0 + 3, c4 = c0 + 4, c5 = c0 + 5, c6 = c0 + 6,
         c7 = c0 + 7, c8 = c0 + 8, c9 = c0 + 9, c10 = c0 + 10, c11 = c0 + 11;
    for (int trip = 0; trip < TRIPS; ++trip) {
        c0 = c0 * a + b; c1 = c1 * a + b; c2 = c2 * a + b; c3 = c3 * a + b;
        c4 = c4 * a + b; c5 = c5 * a + b; c6 = c6 * a + b; c7 = c7 * a + b;
        c8 = c8 * a + b; c9 = c9 * a + b; c10 = c10 * a + b; c11 = c11 * a + b;
    }
    out[id] = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;
}
