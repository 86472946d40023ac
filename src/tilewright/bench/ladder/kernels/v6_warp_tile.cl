#include "kernels/vector.h"
/* Rung 6, warp tiles and instruction parallelism: a warp's 32 lanes share operands, and each lane
 * loads the next ones while it multiplies.
 *
 * In rung 5 a warp covers 2 rows of threads and 16 columns of them: of a column of A it needs
 * little, of a row of B much.  Here a block is divided among warps first, WARP_M x WARP_N elements
 * each, and a warp's tile among its lanes, 4 x 8 of them:
 *
 *          block of C                   warp's tile, 4 x 2 times these vectors
 *      +--------+--------+                  n ->
 *      | warp 0 | warp 1 |            m   0  1  4  5 16 17 20 21
 *      +--------+--------+            |   2  3  6  7 18 19 22 23     lanes in Z order
 *      | warp 2 | warp 3 |            v   8  9 12 13 24 25 28 29
 *      +--------+--------+               10 11 14 15 26 27 30 31
 *
 * A warp then needs only 4 different vectors of A and 8 of B for a load, and in Z order
 * neighbouring lanes want the same ones: lanes i and i ^ 1 of A, lanes i and i ^ 2 of B.  The
 * hardware serves half a warp at once where that is so, a quarter where not.
 *
 * The thread's tile grows to 16 x 8, which halves what is loaded for a multiply-add against 8 x 4:
 * 128 multiply-adds for 6 vectors.  That takes 128 registers for the sums alone and leaves room for
 * few warps, too few to hide one's waiting behind another's work.  So each thread hides its own:
 * operands of step l + 1 are loaded into a second set of registers while step l is multiplied.
 */

/* Vectors of a thread along m and n, and from one to the next. */
#define VECTORS_M (TILE_M / VECTOR)
#define VECTORS_N (TILE_N / VECTOR)
#define STRIDE_M (WARP_M / VECTORS_M)
#define STRIDE_N (WARP_N / VECTORS_N)

/* A tile of A in shared memory, turned and padded as in rung 5. */
#define PITCH_A (BLOCK_M + VECTOR)

/* Vectors that each thread brings, and where number s lies in its tile, as in rung 5. */
#define SHARE_A (BLOCK_M * BLOCK_K / VECTOR / THREADS)
#define SHARE_B (BLOCK_K * BLOCK_N / VECTOR / THREADS)
#define ROW_A(s) (((THREAD_ID + (s) * THREADS) / 2) % BLOCK_M)
#define K_A(s) (VECTOR * (THREAD_ID % 2 + (THREAD_ID + (s) * THREADS) / (2 * BLOCK_M) * 2))
#define K_B(s) ((THREAD_ID + (s) * THREADS) / (BLOCK_N / VECTOR))
#define COLUMN_B(s) (VECTOR * ((THREAD_ID + (s) * THREADS) % (BLOCK_N / VECTOR)))

typedef struct {
    float4 a[SHARE_A], b[SHARE_B];
} share;

HELPER share load(const GLOBAL float *a, isize lda, int m_left, const GLOBAL float *b, isize ldb,
                  int n_left, isize k_left, int whole)
{
    share got;
    UNROLL for (int s = 0; s < SHARE_A; ++s)
        got.a[s] = read4(a + ROW_A(s) * lda + K_A(s),
                         ROW_A(s) < m_left ? k_left - K_A(s) : 0, whole);
    UNROLL for (int s = 0; s < SHARE_B; ++s)
        got.b[s] = read4(b + K_B(s) * ldb + COLUMN_B(s),
                         K_B(s) < k_left ? n_left - COLUMN_B(s) : 0, whole);
    return got;
}

/* The operands of one step: a thread's part of a column of A and of a row of B. */
typedef struct {
    float a[TILE_M], b[TILE_N];
} operands;

HELPER void take(PRIVATE operands *of, const SHARED float *column_a, const SHARED float *row_b)
{
    UNROLL for (int v = 0; v < VECTORS_M; ++v) take4(of->a + v * VECTOR, column_a + v * STRIDE_M);
    UNROLL for (int v = 0; v < VECTORS_N; ++v) take4(of->b + v * VECTOR, row_b + v * STRIDE_N);
}

KERNEL RESIDENT_BLOCKS(2) void gemm(GEMM_ARGUMENTS)
{
    SHARED_ARRAY ALIGNED(16) float tile_a[2][BLOCK_K][PITCH_A];
    SHARED_ARRAY ALIGNED(16) float tile_b[2][BLOCK_K][BLOCK_N];
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const int m_left = least(m - row, BLOCK_M), n_left = least(n - column, BLOCK_N);
    const int warp = THREAD_ID / 32, lane = THREAD_ID % 32;
    /* Bits of the lane's number, in Z order: n m n m n from the lowest. */
    const int lane_m = (lane >> 1 & 1) | (lane >> 2 & 2);
    const int lane_n = (lane & 1) | (lane >> 1 & 2) | (lane >> 2 & 4);
    const int y = warp / (BLOCK_N / WARP_N) * WARP_M + lane_m * VECTOR;
    const int x = warp % (BLOCK_N / WARP_N) * WARP_N + lane_n * VECTOR;
    a += row * lda;
    b += column;
    const int inside = m_left == BLOCK_M && n_left == BLOCK_N;
    const int aligned = inside && rows_aligned(a, lda) && rows_aligned(b, ldb);

    float sum[TILE_M][TILE_N];
    UNROLL for (int i = 0; i < TILE_M; ++i)
        UNROLL for (int j = 0; j < TILE_N; ++j)
            sum[i][j] = 0.0f;

    share next;
    if (aligned && k >= BLOCK_K)
        next = load(a, lda, m_left, b, ldb, n_left, k, 1);
    else
        next = load(a, lda, m_left, b, ldb, n_left, k, 0);
    int buffer = 0;
    for (; k > 0; k -= BLOCK_K) {
        UNROLL for (int s = 0; s < SHARE_A; ++s) {
            tile_a[buffer][K_A(s) + 0][ROW_A(s)] = next.a[s].x;
            tile_a[buffer][K_A(s) + 1][ROW_A(s)] = next.a[s].y;
            tile_a[buffer][K_A(s) + 2][ROW_A(s)] = next.a[s].z;
            tile_a[buffer][K_A(s) + 3][ROW_A(s)] = next.a[s].w;
        }
        UNROLL for (int s = 0; s < SHARE_B; ++s)
            *(SHARED float4 *)&tile_b[buffer][K_B(s)][COLUMN_B(s)] = next.b[s];
        BARRIER();
        a += BLOCK_K;
        b += BLOCK_K * ldb;
        if (aligned && k >= 2 * BLOCK_K)
            next = load(a, lda, m_left, b, ldb, n_left, k, 1);
        else if (k > BLOCK_K)
            next = load(a, lda, m_left, b, ldb, n_left, k - BLOCK_K, 0);

        operands of[2];
        take(&of[0], &tile_a[buffer][0][y], &tile_b[buffer][0][x]);
        UNROLL for (int l = 0; l < BLOCK_K; ++l) {
            if (l + 1 < BLOCK_K)
                take(&of[(l + 1) % 2], &tile_a[buffer][l + 1][y], &tile_b[buffer][l + 1][x]);
            UNROLL for (int i = 0; i < TILE_M; ++i)
                UNROLL for (int j = 0; j < TILE_N; ++j)
                    sum[i][j] += of[l % 2].a[i] * of[l % 2].b[j];
        }
        buffer ^= 1;
    }

    c += (row + y) * ldc + column + x;
    const int whole = n_left == BLOCK_N && rows_aligned(c, ldc);
    UNROLL for (int i = 0; i < TILE_M; ++i) {
        const int down = i / VECTOR * STRIDE_M + i % VECTOR;
        UNROLL for (int v = 0; v < VECTORS_N; ++v)
            if (y + down < m_left)
                put4(c + down * ldc + v * STRIDE_N, alpha, &sum[i][v * VECTOR], beta,
                     n_left - x - v * STRIDE_N, whole);
    }
}
