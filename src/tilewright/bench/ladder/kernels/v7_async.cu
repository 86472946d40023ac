/* Rung 7, asynchronous copies: device memory to shared memory without a detour, tiles ahead.
 *
 * Since compute capability 8.0 the hardware copies from device memory into shared memory by itself
 * (cp.async, below).  Rung 6 needs registers for its share of the next tile, and instructions that
 * wait for it and put it away; here a thread asks for the copies and goes on.  With registers out
 * of the way, more than one tile can be under way: shared memory is a ring of STAGES tiles.
 *
 *      tile      t - 1       t       t + 1     t + 2          STAGES = 4
 *            +---------+---------+---------+---------+
 *      ring  |  free   | multiply| arriving| arriving|
 *            +---------+---------+---------+---------+
 *                 ^-- tile t + 3 is asked for as soon as all have left t - 1
 *
 * One barrier a tile says both: all copies of tile t have arrived, and all are done with t - 1.
 *
 * B is copied 16 bytes at a time, A 4, because it is turned on its way, tile_a[l][i], and a copy
 * leaves what it moves together.  A warp copies 8 elements of each of 4 rows; rows of tile_a are
 * 132 words long, so the 32 elements fall on 32 banks:
 *
 *      bank of tile_a[l][i]:  (4 l + i) % 32        l = 0 ... 7, i = 0 ... 3
 *
 * Tiles at the edge of a matrix, and a B whose rows do not begin at 16 bytes, are copied by 4
 * alone, with zeros for what lies outside.  The multiplication is rung 6's.
 */
#include "kernels/vector.h"
#include "kernels/warp.h"
#include "kernels/async_copy.h"

#define PITCH_A (BLOCK_M + VECTOR)
#define SIZE_A (BLOCK_K * PITCH_A)
#define STAGE_BYTES (4 * (SIZE_A + BLOCK_K * BLOCK_N))

/* All threads together copy so many rows at once, of A 8 elements, of B whole ones.  Each begins at
 * this row and column. */
#define ROWS_A (THREADS / 8)
#define ROWS_B (THREADS * VECTOR / BLOCK_N)
#define I_A (THREAD_ID / 8)
#define L_A (THREAD_ID % 8)
#define L_B (THREAD_ID * VECTOR / BLOCK_N)
#define J_B (THREAD_ID * VECTOR % BLOCK_N)

/* Ask for a thread's share of both tiles.  `whole`: it is inside the matrices, and B is aligned;
 * else B comes element by element too. */
HELPER void copy_share(shared_address to_a, shared_address to_b, const GLOBAL float *a, isize lda,
                       const GLOBAL float *b, isize ldb, int m_left, int n_left, int k_left,
                       int whole)
{
    UNROLL for (int i = 0; i < BLOCK_M; i += ROWS_A)
        UNROLL for (int l = 0; l < BLOCK_K; l += 8)
            copy4(to_a + 4 * (l * PITCH_A + i), a + i * lda + l,
                  whole || (I_A + i < m_left && L_A + l < k_left));
    UNROLL for (int l = 0; l < BLOCK_K; l += ROWS_B)
        if (whole)
            copy16(to_b + 4 * l * BLOCK_N, b + l * ldb);
        else
            UNROLL for (int r = 0; r < VECTOR; ++r)
                copy4(to_b + 4 * (l * BLOCK_N + r), b + l * ldb + r,
                      L_B + l < k_left && J_B + r < n_left);
}

/* The same, in the way that the tiles allow. */
HELPER void copy_tiles(shared_address to_a, shared_address to_b, const GLOBAL float *a, isize lda,
                       const GLOBAL float *b, isize ldb, int m_left, int n_left, isize k_left,
                       int inside)
{
    if (inside && k_left >= BLOCK_K)
        copy_share(to_a, to_b, a, lda, b, ldb, BLOCK_M, BLOCK_N, BLOCK_K, 1);
    else if (k_left > 0) /* behind the last tile there is nothing */
        copy_share(to_a, to_b, a, lda, b, ldb, m_left, n_left, least(k_left, BLOCK_K), 0);
}

KERNEL RESIDENT_BLOCKS(2) void gemm(GEMM_ARGUMENTS)
{
    DYNAMIC_SHARED_ARRAY ALIGNED(16) float ring[];
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const int m_left = least(m - row, BLOCK_M), n_left = least(n - column, BLOCK_N);
    const int y = WARP_ROW + LANE_ROW, x = WARP_COLUMN + LANE_COLUMN;
    a += (row + I_A) * lda + L_A;
    b += L_B * ldb + column + J_B;
    const int inside = m_left == BLOCK_M && n_left == BLOCK_N && rows_aligned(b, ldb);

    float sum[TILE_M * TILE_N];
    UNROLL for (int i = 0; i < TILE_M * TILE_N; ++i) sum[i] = 0.0f;

    const shared_address to_a = address_of(ring + L_A * PITCH_A + I_A);
    const shared_address to_b = address_of(ring + SIZE_A + L_B * BLOCK_N + J_B);
    isize asked = 0; /* how far along k tiles have been asked for */
    ROLLED for (int stage = 0; stage < STAGES - 1; ++stage) {
        copy_tiles(to_a + stage * STAGE_BYTES, to_b + stage * STAGE_BYTES, a + asked, lda,
                   b + asked * ldb, ldb, m_left, n_left, k - asked, inside);
        end_group();
        asked += BLOCK_K;
    }
    a += asked;
    b += asked * ldb;

    int used = 0, filled = (STAGES - 1) * STAGE_BYTES; /* the stage to multiply, the one to fill */
    ROLLED for (; k > 0; k -= BLOCK_K) {
        WAIT_FOR_ALL_BUT(STAGES - 2);
        BARRIER();
        copy_tiles(to_a + filled, to_b + filled, a, lda, b, ldb, m_left, n_left, k - asked, inside);
        end_group(); /* empty at the end: the count of groups stays that of tiles */
        a += BLOCK_K;
        b += BLOCK_K * ldb;
        filled = used;

        multiply_tiles(sum, ring + used / 4 + y, ring + used / 4 + SIZE_A + x, PITCH_A);
        used = used == (STAGES - 1) * STAGE_BYTES ? 0 : used + STAGE_BYTES;
    }

    store_tile(c + (row + y) * ldc + column + x, ldc, alpha, sum, beta, m_left - y, n_left - x,
               n_left == BLOCK_N);
}
