// A loop of warpgroup multiplies of 64 x 256 tiles whose operands lie in shared memory.
//
//     KIND_...  element type
//     ROUNDS    multiplies of a trip, all into the same 128 registers a thread
//     THREADS   of the largest block
//
// A is 64 rows and B 256 columns of 32 bytes each, without swizzle: cores of 8 rows x 16 bytes lie
// together, so that no bank conflicts with another (PTX ISA, "Matrix layouts for wgmma").
//
//     core (row / 8, half)  at  256 (row / 8) + 128 half;   A at 0, B behind it
//
// Each warp writes  when[3 * warp] = clock before, clock after, multiprocessor.
#if defined(KIND_WGMMA_F16)
#define SHAPE "m64n256k16.f32.f16.f16 "
#define SCALES ", 1, 1, 0, 0;"
#elif defined(KIND_WGMMA_BF16)
#define SHAPE "m64n256k16.f32.bf16.bf16 "
#define SCALES ", 1, 1, 0, 0;"
#elif defined(KIND_WGMMA_TF32)
#define SHAPE "m64n256k8.f32.tf32.tf32 "
#define SCALES ", 1, 1;"
#elif defined(KIND_WGMMA_S8)
#define SHAPE "m64n256k32.s32.s8.s8 "
#define SCALES ";"
#endif

#if defined(KIND_WGMMA_S8)
typedef int sum_word;
#define SUM(i) "+r"(c[i])
#else
typedef float sum_word;
#define SUM(i) "+f"(c[i])
#endif

#define SUMS 128
#define TEN(t)                                                                              \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t  \
    "8, %" #t "9, "
#define EIGHT(i) SUM(i), SUM(i + 1), SUM(i + 2), SUM(i + 3), SUM(i + 4), SUM(i + 5), SUM(i + 6), SUM(i + 7)
#define SIXTY_FOUR(i)                                                                       \
    EIGHT(i), EIGHT(i + 8), EIGHT(i + 16), EIGHT(i + 24), EIGHT(i + 32), EIGHT(i + 40),     \
        EIGHT(i + 48), EIGHT(i + 56)

#define A_BYTES (64 * 32)
#define B_BYTES (256 * 32)

// Start, distance of cores along k and along rows, each in units of 16 bytes.
static __device__ unsigned long long descriptor(unsigned address)
{
    return (address & 0x3ffff) >> 4 | 128ull >> 4 << 16 | 256ull >> 4 << 32;
}

#include "kernels/clock.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    loop(const float *data, int trips, int stride, long long *when)
{
    __shared__ __align__(1024) unsigned words[(A_BYTES + B_BYTES) / 4];
    for (int i = threadIdx.x; i < (A_BYTES + B_BYTES) / 4; i += blockDim.x)
        words[i] = __float_as_uint(data[i]) & 0x3fff3fff; // halves below 2: no NaN
    unsigned address;
    asm volatile("{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }"
                 : "=r"(address) : "l"(words));
    const unsigned long long a = descriptor(address), b = descriptor(address + A_BYTES);
    sum_word c[SUMS];
#pragma unroll
    for (int i = 0; i < SUMS; ++i) c[i] = 0;
    asm volatile("fence.proxy.async;" ::: "memory"); // what was stored is read by another path
    __syncthreads();
    const long long t0 = clock_now();
#pragma unroll 1
    for (int t = 0; t < trips; ++t) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < ROUNDS; ++i)
            asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned." SHAPE
                         "{" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9)
                         TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127}, "
                         "%128, %129, p" SCALES " }"
                         : SIXTY_FOUR(0), SIXTY_FOUR(64) : "l"(a), "l"(b));
        asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    const long long t1 = clock_now();
    write_clock(when, t0, t1);
    if (stride < 0) { // never: but ptxas keeps what is stored
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < SUMS; ++i) sum += (float)c[i];
        when[threadIdx.x] = __float_as_int(sum);
    }
}
