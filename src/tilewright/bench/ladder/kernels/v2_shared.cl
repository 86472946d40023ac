/* Rung 2, shared memory: a thread block reads each element once and uses it 32 times.
 *
 * The block walks along k in steps of BLOCK_K.  In each step its threads bring a tile of A and a
 * tile of B into shared memory, one element each, and then compute with the tiles.
 *
 *                            +-----+
 *                            |     |
 *                            +-----+
 *                            |#####|  tile_b[l][j]      BLOCK_M = BLOCK_N = BLOCK_K:
 *        step by step        +-----+                    a thread for each element of
 *        along k  -->        |     |                    each of the three tiles
 *                            +-----+
 *        +-----+-----+-----+ +-----+
 *        |     |#####|     | |  C  |
 *        +-----+-----+-----+ +-----+
 *              tile_a[i][l]
 *
 * Two barriers a step: all elements must be there before anybody computes, and everybody must have
 * computed before they are overwritten.  What lies outside A or B is taken for zero, so that every
 * thread does the same and none misses a barrier.
 *
 * What it costs: device memory and caches are asked 32 times less than by rung 1, but each
 * multiply-add still loads two operands, now from shared memory.  (What a thread reads of A lies
 * side by side: compilers make one load of four.)
 */

KERNEL THREADS_PER_BLOCK(THREADS) void gemm(GEMM_ARGUMENTS)
{
    SHARED_ARRAY ALIGNED(16) float tile_a[BLOCK_M][BLOCK_K];
    SHARED_ARRAY ALIGNED(16) float tile_b[BLOCK_K][BLOCK_N];
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const int y = THREAD_ID / BLOCK_N, x = THREAD_ID % BLOCK_N; /* this thread in a tile */
    const isize i = row + y, j = column + x;

    float sum = 0.0f;
    for (isize first = 0; first < k; first += BLOCK_K) {
        tile_a[y][x] = i < m && first + x < k ? a[i * lda + first + x] : 0.0f;
        tile_b[y][x] = first + y < k && j < n ? b[(first + y) * ldb + j] : 0.0f;
        BARRIER();
        UNROLL for (int l = 0; l < BLOCK_K; ++l)
            sum += tile_a[y][l] * tile_b[l][x];
        BARRIER();
    }
    if (i < m && j < n)
        put(c + i * ldc + j, alpha, sum, beta);
}
