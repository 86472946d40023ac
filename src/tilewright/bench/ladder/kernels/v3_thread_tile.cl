/* Rung 3, thread tile: a thread computes TILE_M x TILE_N elements of C and keeps them in registers.
 *
 *                  tile_b[l]:    b0 b1 b2 b3          For one l a thread loads TILE_M + TILE_N
 *                                                     operands and does TILE_M * TILE_N
 *     tile_a[l]:       a0        .  .  .  .           multiply-adds with them: 16 loads for 64
 *                      a1        .  .  .  .           at 8 x 8, where rung 2 has 128.
 *                      a2        .  .  .  .
 *                      a3        .  .  .  .           (drawn for 4 x 4)
 *
 * The block grows with the tile: 16 x 16 threads compute 128 x 128 elements of C.  A thread's rows
 * and columns lie side by side, and so do their operands: A's tile is turned on its way, so that
 * tile_a[l] is a column of A as tile_b[l] is a row of B.
 *
 * Loops of constant length are unrolled (UNROLL), all of them: only then has each element of
 * `sum` a register of its own, and the multiply-adds, which do not wait for each other, follow one
 * another without a counter or a jump between them.
 *
 * What it costs: while a tile is on its way from device memory the block has nothing to do, and
 * only the few other blocks of the multiprocessor may fill the gap.
 */

#define THREADS_N (BLOCK_N / TILE_N)

/* All threads together bring this many rows of a tile at once. */
#define ROWS_A (THREADS / BLOCK_K)
#define ROWS_B (THREADS / BLOCK_N)

KERNEL RESIDENT_BLOCKS(2) void gemm(GEMM_ARGUMENTS)
{
    SHARED_ARRAY ALIGNED(16) float tile_a[BLOCK_K][BLOCK_M];
    SHARED_ARRAY ALIGNED(16) float tile_b[BLOCK_K][BLOCK_N];
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const int m_left = least(m - row, BLOCK_M), n_left = least(n - column, BLOCK_N);
    const int y = THREAD_ID / THREADS_N * TILE_M, x = THREAD_ID % THREADS_N * TILE_N;
    /* What this thread brings: one element of each row, and every ROWS_th row. */
    const int i_a = THREAD_ID / BLOCK_K, l_a = THREAD_ID % BLOCK_K;
    const int l_b = THREAD_ID / BLOCK_N, j_b = THREAD_ID % BLOCK_N;
    a += (row + i_a) * lda + l_a;
    b += l_b * ldb + column + j_b;

    float sum[TILE_M][TILE_N];
    UNROLL for (int i = 0; i < TILE_M; ++i)
        UNROLL for (int j = 0; j < TILE_N; ++j)
            sum[i][j] = 0.0f;

    for (; k > 0; k -= BLOCK_K) {
        const int k_left = least(k, BLOCK_K);
        UNROLL for (int i = 0; i < BLOCK_M; i += ROWS_A)
            tile_a[l_a][i_a + i] = i_a + i < m_left && l_a < k_left ? a[i * lda] : 0.0f;
        UNROLL for (int l = 0; l < BLOCK_K; l += ROWS_B)
            tile_b[l_b + l][j_b] = l_b + l < k_left && j_b < n_left ? b[l * ldb] : 0.0f;
        BARRIER();
        UNROLL for (int l = 0; l < BLOCK_K; ++l) {
            float of_a[TILE_M], of_b[TILE_N];
            UNROLL for (int i = 0; i < TILE_M; ++i) of_a[i] = tile_a[l][y + i];
            UNROLL for (int j = 0; j < TILE_N; ++j) of_b[j] = tile_b[l][x + j];
            UNROLL for (int i = 0; i < TILE_M; ++i)
                UNROLL for (int j = 0; j < TILE_N; ++j)
                    sum[i][j] += of_a[i] * of_b[j];
        }
        BARRIER();
        a += BLOCK_K;
        b += BLOCK_K * ldb;
    }

    c += row * ldc + column;
    UNROLL for (int i = 0; i < TILE_M; ++i)
        UNROLL for (int j = 0; j < TILE_N; ++j)
            if (y + i < m_left && x + j < n_left)
                put(c + (y + i) * ldc + x + j, alpha, sum[i][j], beta);
}
