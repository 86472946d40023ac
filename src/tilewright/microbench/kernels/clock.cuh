// The clock around a loop: each warp writes when[3 * warp] = t0, t1, multiprocessor.
__device__ __forceinline__ long long clock_now()
{
    long long t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t) :: "memory");
    return t;
}

__device__ __forceinline__ void write_clock(long long *when, long long t0, long long t1)
{
    if (threadIdx.x % 32 == 0) {
        unsigned multiprocessor;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
        const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
        when[3 * warp] = t0;
        when[3 * warp + 1] = t1;
        when[3 * warp + 2] = multiprocessor;
    }
}
