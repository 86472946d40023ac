/* Rung 5, vectors without bank conflicts: four elements a load, and no two lanes at one bank.
 *
 * Shared memory has 32 banks; word w lies in bank w % 32.  A warp's load takes one pass for each
 * different word that a bank must give.  In rungs 3 and 4 a thread's 8 columns lie side by side, so
 * neighbouring threads begin 8 words apart and every other bank has nothing to do.  Here a thread's
 * tile is cut into quarters, and neighbouring threads take neighbouring vectors:
 *
 *     rung 4:   0000000011111111222222223333...    8 columns of thread 0, of thread 1, ...
 *
 *     rung 5:   000011112222...    000011112222...     a thread has 4 columns here,
 *               first half         second half         and 4 half a block further on
 *
 * Rungs 3 and 4 also turn A's tile with stores that meet few banks: 8 lanes at one.  How that is
 * avoided, and tiles are read from device memory in vectors too, is below.
 */
#include "kernels/vector.h"
#include "kernels/share.h"

#define THREADS_N (BLOCK_N / TILE_N)
#define HALF_M (BLOCK_M / 2)
#define HALF_N (BLOCK_N / 2)

/* Element r of a thread's 8 rows or columns, counted from the thread's first. */
#define SPREAD(r, half) ((r) / VECTOR * (half) + (r) % VECTOR)

KERNEL RESIDENT_BLOCKS(2) void gemm(GEMM_ARGUMENTS)
{
    SHARED_ARRAY ALIGNED(16) float tile_a[2][SIZE_A];
    SHARED_ARRAY ALIGNED(16) float tile_b[2][SIZE_B];
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const int m_left = least(m - row, BLOCK_M), n_left = least(n - column, BLOCK_N);
    const int y = THREAD_ID / THREADS_N * VECTOR, x = THREAD_ID % THREADS_N * VECTOR;
    a += (row + I_A) * lda + L_A;
    b += L_B * ldb + column + J_B;
    const int m_mine = m_left - I_A, n_mine = n_left - J_B; /* from this thread's first on */
    const int inside = m_left == BLOCK_M && n_left == BLOCK_N && rows_aligned(a, lda) &&
                       rows_aligned(b, ldb);

    float sum[TILE_M][TILE_N];
    UNROLL for (int i = 0; i < TILE_M; ++i)
        UNROLL for (int j = 0; j < TILE_N; ++j)
            sum[i][j] = 0.0f;

    share next = load_share(a, lda, b, ldb, m_mine, n_mine, k, inside);
    int buffer = 0;
    for (; k > 0; k -= BLOCK_K) {
        store_share(tile_a[buffer] + L_A * PITCH_A + I_A, tile_b[buffer] + L_B * BLOCK_N + J_B,
                    &next);
        BARRIER();
        a += BLOCK_K;
        b += BLOCK_K * ldb;
        if (k > BLOCK_K)
            next = load_share(a, lda, b, ldb, m_mine, n_mine, k - BLOCK_K, inside);

        UNROLL for (int l = 0; l < BLOCK_K; ++l) {
            float of_a[TILE_M], of_b[TILE_N];
            take4(of_a, tile_a[buffer] + l * PITCH_A + y);
            take4(of_a + VECTOR, tile_a[buffer] + l * PITCH_A + y + HALF_M);
            take4(of_b, tile_b[buffer] + l * BLOCK_N + x);
            take4(of_b + VECTOR, tile_b[buffer] + l * BLOCK_N + x + HALF_N);
            UNROLL for (int j = 0; j < TILE_N; ++j)
                UNROLL for (int i = 0; i < TILE_M; ++i)
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
