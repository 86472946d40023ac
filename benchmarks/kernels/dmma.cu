/* Matrix units for doubles from registers alone: eight warps of a multiprocessor multiply the same
 * fragments again and again, 4 x 4 of them into as many sums.
 *
 *     STEPS    of an instruction along k: 4, 8, 16; a round is 16 steps whatever they are
 *     ORDER    0: by rows, A's fragment stays for four; 1: by columns, B's does; 2: one of each
 *              for all; 3: both change with every instruction
 */
#define LINES 4
#define A_WORDS (STEPS / 2)
#define B_WORDS (STEPS / 4)

#define SUMS "{%0, %1, %2, %3}"
#define SUM(c) "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
#define TWO(x, at) "d"(x[at]), "d"(x[at + 1])
#define FOUR(x, at) TWO(x, at), TWO(x, at + 2)

static __device__ __forceinline__ void multiply(double *c, const double *a, const double *b)
{
#if STEPS == 4
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 " SUMS ", {%4, %5}, {%6}, " SUMS
                 ";"
                 : SUM(c)
                 : TWO(a, 0), "d"(b[0]));
#elif STEPS == 8
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 " SUMS
                 ", {%4, %5, %6, %7}, {%8, %9}, " SUMS ";"
                 : SUM(c)
                 : FOUR(a, 0), TWO(b, 0));
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 " SUMS
                 ", {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, " SUMS ";"
                 : SUM(c)
                 : FOUR(a, 0), FOUR(a, 4), FOUR(b, 0));
#endif
}

/* `in` has 64 numbers for each thread; `out` is never written. */
extern "C" __global__ __launch_bounds__(256, 1) void dmma(const double *in, double *out,
                                                          long long rounds)
{
    double a[LINES][A_WORDS], b[LINES][B_WORDS], c[LINES][LINES][4] = {};
    const double *const at = in + (blockIdx.x * blockDim.x + threadIdx.x) * 64;
    for (int i = 0; i < LINES; ++i) {
        for (int e = 0; e < A_WORDS; ++e) a[i][e] = at[i * A_WORDS + e];
        for (int e = 0; e < B_WORDS; ++e) b[i][e] = at[32 + i * B_WORDS + e];
    }
#pragma unroll 1
    for (long long round = 0; round < rounds; ++round)
#pragma unroll
        for (int x = 0; x < 16 / STEPS * LINES * LINES; ++x) {
            const int slow = x / LINES % LINES, fast = x % LINES;
            const int i = ORDER % 2 ? fast : slow;
            const int j = ORDER == 0 || ORDER == 2 ? fast : ORDER == 1 ? slow : (slow + x) % LINES;
            multiply(c[i][j], a[ORDER == 2 ? 0 : i], b[ORDER == 2 ? 0 : j]);
        }
    double all = 0;
    for (int i = 0; i < LINES; ++i)
        for (int j = 0; j < LINES; ++j)
            for (int e = 0; e < 4; ++e) all += c[i][j][e];
    if (all == 12345.0) /* no compiler knows that it is not */
        out[0] = all;
}
