// A loop to be written over: its instructions are replaced in the compiled cubin, one by one.
//
//     THREADS       of a block; sets how many registers the compiler may use
//     ACCUMULATORS  registers that are added to; FACTORS registers are multiplied, twice
//     SLOTS         multiply-adds of a trip
//
//     prologue | trip: LDS LDS.64 LDS.128 DFMA FFMA FFMA ... FFMA, count, branch | epilogue
//              t0                                                                t1
//
// The first four instructions of a trip are there for their encoding, and so that the loop keeps
// a lane's shared address; all registers that the multiply-adds name hold numbers.  Statements
// and loads are volatile and all sums are stored (where stride < 0, so never), because ptxas drops
// what nobody needs, whatever the language above it calls it.
//
// Lane i reads shared memory at i * stride bytes.  Each warp writes two clock values around the
// loop and the multiprocessor that it ran on:  when[3 * warp] = t0, t1, multiprocessor.
#define SHARED_FLOATS 2048

#include "kernels/clock.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    loop(const float *data, int trips, int stride, long long *when)
{
    __shared__ __align__(16) float words[SHARED_FLOATS];
    for (int i = threadIdx.x; i < SHARED_FLOATS; i += blockDim.x) words[i] = data[i];
    float c[ACCUMULATORS], a[FACTORS], b[FACTORS];
    const float *mine = data + threadIdx.x;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; ++i) c[i] = mine[i];
#pragma unroll
    for (int i = 0; i < FACTORS; ++i) {
        a[i] = mine[i + 200];
        b[i] = mine[i + 300];
    }
    double d = data[threadIdx.x + 400];
    float x, y, z, w;
    unsigned address;
    asm volatile("{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }"
                 : "=r"(address) : "l"(words));
    address += threadIdx.x % 32 * stride;
    asm volatile("" : "+r"(address)); // one register from here on
    __syncthreads();
    const long long t0 = clock_now();
#pragma unroll 1
    for (int t = 0; t < trips; ++t) {
        asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x) : "r"(address));
        asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address));
        asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                     : "r"(address));
        asm volatile("fma.rn.f64 %0, %0, %0, %0;" : "+d"(d));
#pragma unroll
        for (int i = 0; i < SLOTS; ++i)
            asm volatile("fma.rn.f32 %0, %1, %2, %0;"
                         : "+f"(c[i % ACCUMULATORS])
                         : "f"(a[i % FACTORS]), "f"(b[i / FACTORS % FACTORS]));
    }
    const long long t1 = clock_now();
    write_clock(when, t0, t1);
    if (stride < 0) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < ACCUMULATORS; ++i) sum += c[i];
        when[threadIdx.x] = __double_as_longlong(d + sum);
    }
}
