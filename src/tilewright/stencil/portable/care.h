/* Sums that need care, as a prelude with SUM_NEEDS_CARE says: renormalised on the way, and
 * computed anew by a plain loop where they are not finite.  A part of kernel.cl.
 */

#ifdef SUM_NEEDS_CARE

HELPER void settle(PRIVATE elem *sum)
{
    UNROLL for (int x = 0; x < TILE_M * TILE_N; ++x) sum[x] = elem_settled(sum[x]);
}

#include "prelude/plain_sum.h"

/* Compute the thread's unsound sums anew.  `a` and `b` are the block's first row and column;
 * what lies outside C is left alone.  One copy of the plain loop serves all sums: they are
 * registers, so each is looked for by comparing with every number. */
HELPER void repair(PRIVATE elem *sum, const GLOBAL elem *a, isize lda, const GLOBAL elem *b,
                   isize ldb, isize k, int m_left, int n_left)
{
    int unsound = 0;
    UNROLL for (int x = 0; x < TILE_M * TILE_N; ++x) unsound |= !elem_is_sound(sum[x]);
    if (!unsound)
        return;
    ROLLED for (int j = 0; j < TILE_N; ++j)
        ROLLED for (int i = 0; i < TILE_M; ++i) {
            const int row = i % FRAGMENT_VECTOR +
                            chunk_at(i / FRAGMENT_VECTOR, THREAD_M, THREADS_M, TILE_M);
            const int column = j % FRAGMENT_VECTOR +
                               chunk_at(j / FRAGMENT_VECTOR, THREAD_N, THREADS_N, TILE_N);
            int wrong = 0;
            UNROLL for (int x = 0; x < TILE_M * TILE_N; ++x)
                if (x == j * TILE_M + i)
                    wrong = !elem_is_sound(sum[x]);
            if (!wrong || row >= m_left || column >= n_left)
                continue;
            const elem plain = plain_sum(a + row * (K_FAST_A ? lda : 1), lda,
                                         b + column * (K_FAST_B ? ldb : 1), ldb, k);
            UNROLL for (int x = 0; x < TILE_M * TILE_N; ++x)
                if (x == j * TILE_M + i)
                    sum[x] = plain;
        }
}

#endif
