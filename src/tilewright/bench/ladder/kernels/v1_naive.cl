/* Rung 1, naive: one thread computes one element of C.
 *
 *     A: the thread's row              B: the thread's column
 *     i -> [ a a a a a ]                    j
 *                                         [ b ]
 *                                         [ b ]        C(i, j) = sum over l of A(i, l) B(l, j)
 *                                         [ b ]
 *
 * Neighbouring threads have neighbouring columns j, so what 16 of them read of B lies side by side
 * and comes in one piece, and all 16 read the same element of A.
 *
 * What it costs: each multiply-add waits for two loads.  A warp's two loads take two cycles of the
 * L1 cache, which serves the four schedulers of a multiprocessor: at best one multiply-add in eight
 * that the hardware could do.
 */

KERNEL THREADS_PER_BLOCK(THREADS) void gemm(GEMM_ARGUMENTS)
{
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const isize i = row + THREAD_ID / BLOCK_N;
    const isize j = column + THREAD_ID % BLOCK_N;
    if (i >= m || j >= n)
        return;

    float sum = 0.0f;
    for (isize l = 0; l < k; ++l)
        sum += a[i * lda + l] * b[l * ldb + j];
    put(c + i * ldc + j, alpha, sum, beta);
}
