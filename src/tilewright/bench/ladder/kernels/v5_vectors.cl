#include "kernels/vector.h"
/* Rung 5, vectors without bank conflicts: four elements a load, and no two lanes at one bank.
 *
 * Shared memory has 32 banks; word w lies in bank w % 32.  A warp's load takes one pass for each
 * different word that a bank must give.  In rungs 3 and 4 a thread's 8 columns lie side by side, so
 * neighbouring threads begin 8 words apart and two of them want the same bank at once.  Here a
 * thread's tile is cut into quarters, and neighbouring threads take neighbouring vectors:
 *
 *     rung 4:   0000000011111111222222223333...    8 columns of thread 0, of thread 1, ...
 *
 *     rung 5:   000011112222...    000011112222...     a thread has 4 columns here,
 *               first half         second half         and 4 half a block further on
 *
 * For A to be read in vectors too, a column of its tile must lie side by side: it is turned on its
 * way, tile_a[l][i].  A warp writes 2 vectors of 4 elements of 16 rows: the pad of 4 words puts
 * l and l + 4 into different halves of the banks:
 *
 *               i = 0 ... 15     bank of tile_a[l][i] is (4 l + i) % 32 with rows of 132 words
 *     l = 0     0 ... 15
 *     l = 4    16 ... 31         32 lanes, 32 banks
 *
 * Device memory is read in vectors as well: a quarter of the instructions for the same bytes.
 * Matrices whose rows do not begin at 16 bytes, and blocks at the edge, are read element by element.
 */

#define THREADS_N (BLOCK_N / TILE_N)
#define HALF_M (BLOCK_M / 2)
#define HALF_N (BLOCK_N / 2)
#define PITCH_A (BLOCK_M + VECTOR)

/* Vectors that each thread brings, and where its first one lies: A's with 2 of a row's vectors
 * beside each other in a warp, B's along a row. */
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

/* Element r of a thread's 8 rows or columns, counted from the thread's first. */
#define SPREAD(r, half) ((r) / VECTOR * (half) + (r) % VECTOR)

KERNEL RESIDENT_BLOCKS(2) void gemm(GEMM_ARGUMENTS)
{
    SHARED_ARRAY ALIGNED(16) float tile_a[2][BLOCK_K][PITCH_A];
    SHARED_ARRAY ALIGNED(16) float tile_b[2][BLOCK_K][BLOCK_N];
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const int m_left = least(m - row, BLOCK_M), n_left = least(n - column, BLOCK_N);
    const int y = THREAD_ID / THREADS_N * VECTOR, x = THREAD_ID % THREADS_N * VECTOR;
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

        UNROLL for (int l = 0; l < BLOCK_K; ++l) {
            float of_a[TILE_M], of_b[TILE_N];
            take4(of_a, &tile_a[buffer][l][y]);
            take4(of_a + VECTOR, &tile_a[buffer][l][y + HALF_M]);
            take4(of_b, &tile_b[buffer][l][x]);
            take4(of_b + VECTOR, &tile_b[buffer][l][x + HALF_N]);
            UNROLL for (int i = 0; i < TILE_M; ++i)
                UNROLL for (int j = 0; j < TILE_N; ++j)
                    sum[i][j] += of_a[i] * of_b[j];
        }
        buffer ^= 1;
    }

    c += (row + y) * ldc + column + x;
    const int whole = n_left == BLOCK_N && rows_aligned(c, ldc);
    UNROLL for (int i = 0; i < TILE_M; ++i)
        UNROLL for (int j = 0; j < TILE_N; j += VECTOR)
            if (y + SPREAD(i, HALF_M) < m_left)
                put4(c + SPREAD(i, HALF_M) * ldc + SPREAD(j, HALF_N), alpha, &sum[i][j], beta,
                     n_left - x - SPREAD(j, HALF_N), whole);
}
