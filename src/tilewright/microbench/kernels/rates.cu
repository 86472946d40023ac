// A loop of one kind of multiply-add, for counting how many a cycle there can be.
//
//     KIND_...  which one; see below
//     CHAINS    sums that do not depend on each other; ROUNDS of them make a trip
//     THREADS   of the largest block
//
// Each kind says what its operands are (words of A, B, C of a thread) and how it is written.
// `check_names` reads the compiled loop: it is used only if it has CHAINS * ROUNDS of the kind.
// Each warp writes  when[3 * warp] = clock before, clock after, multiprocessor.

#if defined(KIND_FFMA)
typedef float word;
#define WORDS_A 1
#define WORDS_B 1
#define WORDS_C 1
#define MULTIPLY(c) asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(c[0]) : "f"(a[0]), "f"(b[0]))

#elif defined(KIND_HFMA2)
typedef unsigned word; // two halves
#define WORDS_A 1
#define WORDS_B 1
#define WORDS_C 1
#define MULTIPLY(c) asm volatile("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(c[0]) : "r"(a[0]), "r"(b[0]))

#elif defined(KIND_DFMA)
typedef double word;
#define WORDS_A 1
#define WORDS_B 1
#define WORDS_C 1
#define MULTIPLY(c) asm volatile("fma.rn.f64 %0, %1, %2, %0;" : "+d"(c[0]) : "d"(a[0]), "d"(b[0]))

#elif defined(KIND_DMMA_8X8X4)
typedef double word;
#define WORDS_A 1
#define WORDS_B 1
#define WORDS_C 2
#define MULTIPLY(c)                                                                            \
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" \
                 : "+d"(c[0]), "+d"(c[1]) : "d"(a[0]), "d"(b[0]))

#elif defined(KIND_DMMA_16X8X4)
typedef double word;
#define WORDS_A 2
#define WORDS_B 1
#define WORDS_C 4
#define MULTIPLY(c)                                                                \
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "               \
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"             \
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])                  \
                 : "d"(a[0]), "d"(a[1]), "d"(b[0]))

#elif defined(KIND_DMMA_16X8X8)
typedef double word;
#define WORDS_A 4
#define WORDS_B 2
#define WORDS_C 4
#define MULTIPLY(c)                                                                \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "               \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])                  \
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]))

#elif defined(KIND_DMMA_16X8X16)
typedef double word;
#define WORDS_A 8
#define WORDS_B 4
#define WORDS_C 4
#define MULTIPLY(c)                                                                         \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "                       \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "                   \
                 "{%12, %13, %14, %15}, {%0, %1, %2, %3};"                                  \
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])                           \
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]),        \
                   "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]))

#else // 16 x 8 tiles of narrow elements, packed into 32-bit words
#define WORDS_A 4
#define WORDS_B 2
#define WORDS_C 4
typedef unsigned word;
#if defined(KIND_TF32_16X8X8)
#define SHAPE "m16n8k8.row.col.f32.tf32.tf32.f32 "
#elif defined(KIND_F16_16X8X16)
#define SHAPE "m16n8k16.row.col.f32.f16.f16.f32 "
#elif defined(KIND_BF16_16X8X16)
#define SHAPE "m16n8k16.row.col.f32.bf16.bf16.f32 "
#elif defined(KIND_S8_16X8X32)
#define SHAPE "m16n8k32.row.col.s32.s8.s8.s32 "
#endif
#define MULTIPLY(c)                                                                      \
    asm volatile("mma.sync.aligned." SHAPE                                               \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
                 : SUM(c[0]), SUM(c[1]), SUM(c[2]), SUM(c[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#if defined(KIND_S8_16X8X32)
#define SUM(x) "+r"(x)
#else
typedef float sum_word;
#define SUM_WORD sum_word
#define SUM(x) "+f"(x)
#endif
#endif

#ifndef SUM_WORD
#define SUM_WORD word
#endif

template <typename T> __device__ T number(const float *data, int i) { return data[i]; }
template <> __device__ unsigned number<unsigned>(const float *data, int i)
{
    return __float_as_uint(data[i]) & 0x3fff3fff; // halves below 2 whatever the bits: no NaN
}

#include "kernels/clock.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    loop(const float *data, int trips, int stride, long long *when)
{
    const float *mine = data + threadIdx.x;
    word a[WORDS_A], b[WORDS_B];
    SUM_WORD c[CHAINS][WORDS_C];
#pragma unroll
    for (int i = 0; i < WORDS_A; ++i) a[i] = number<word>(mine, i);
#pragma unroll
    for (int i = 0; i < WORDS_B; ++i) b[i] = number<word>(mine, 100 + i);
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain)
#pragma unroll
        for (int i = 0; i < WORDS_C; ++i)
            c[chain][i] = number<SUM_WORD>(mine, 200 + chain * WORDS_C + i);
    __syncthreads();
    const long long t0 = clock_now();
#pragma unroll 1
    for (int t = 0; t < trips; ++t) {
#pragma unroll
        for (int i = 0; i < CHAINS * ROUNDS; ++i) MULTIPLY(c[i % CHAINS]);
    }
    const long long t1 = clock_now();
    write_clock(when, t0, t1);
    if (stride < 0) { // never: but ptxas keeps what is stored
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < CHAINS * WORDS_C; ++i) sum += (float)c[i / WORDS_C][i % WORDS_C];
        when[threadIdx.x] = __float_as_int(sum);
    }
}
