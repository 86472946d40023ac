/* Rung 6, warp tiles and instruction parallelism: a warp's 32 lanes share operands, and each lane
 * loads the next ones while it multiplies.
 *
 * In rung 5 a warp covers 2 rows of threads and 16 columns of them: of a column of A it needs
 * little, of a row of B much.  Here a block is divided among warps first, and a warp's lanes stand
 * 4 x 8 (drawn below): for one load a warp needs 4 different vectors of A and 8 of B.  In Z order
 * neighbouring lanes want the same vectors: lanes i and i ^ 1 of A, lanes i and i ^ 2 of B.  The
 * hardware serves half a warp at once where that is so, a quarter where not.
 *
 * The thread's tile grows to 16 x 8: 128 multiply-adds for 6 vectors, where rung 5 has 64 for 4.
 * That takes 128 registers for the sums alone and leaves room for few warps, too few to hide one's
 * waiting behind another's work.  So each thread hides its own: operands of step l + 1 are loaded
 * into a second set of registers while step l is multiplied.
 *
 * Blocks walk C in bands (BAND, above), so that those which run together share more of A and B.
 */
#include "kernels/vector.h"
#include "kernels/share.h"
#include "kernels/warp.h"

KERNEL RESIDENT_BLOCKS(2) void gemm(GEMM_ARGUMENTS)
{
    SHARED_ARRAY ALIGNED(16) float tile_a[2][SIZE_A];
    SHARED_ARRAY ALIGNED(16) float tile_b[2][SIZE_B];
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const int m_left = least(m - row, BLOCK_M), n_left = least(n - column, BLOCK_N);
    const int y = WARP_ROW + LANE_ROW, x = WARP_COLUMN + LANE_COLUMN;
    a += (row + I_A) * lda + L_A;
    b += L_B * ldb + column + J_B;
    const int m_mine = m_left - I_A, n_mine = n_left - J_B; /* from this thread's first on */
    const int inside = m_left == BLOCK_M && n_left == BLOCK_N && rows_aligned(a, lda) &&
                       rows_aligned(b, ldb);

    float sum[TILE_M * TILE_N];
    UNROLL for (int i = 0; i < TILE_M * TILE_N; ++i) sum[i] = 0.0f;

    share next = load_share(a, lda, b, ldb, m_mine, n_mine, k, inside);
    int buffer = 0;
    for (; k > 0; k -= BLOCK_K) {
        store_share(tile_a[buffer] + L_A * PITCH_A + I_A, tile_b[buffer] + L_B * BLOCK_N + J_B,
                    &next);
        BARRIER();
        a += BLOCK_K;
        b += BLOCK_K * ldb;
        /* Behind the last tile all is outside: nothing is read. */
        next = load_share(a, lda, b, ldb, m_mine, n_mine, k - BLOCK_K, inside);

        multiply_tiles(sum, tile_a[buffer] + y, tile_b[buffer] + x, PITCH_A);
        buffer ^= 1;
    }

    store_tile(c + (row + y) * ldc + column + x, ldc, alpha, sum, beta, m_left - y, n_left - x,
               n_left == BLOCK_N);
}
