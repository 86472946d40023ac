/* The end of kernel.cl: alpha and beta, and C written. */

/* C, from a thread's own first element on: what lies inside it, and the scalars. */
typedef struct {
    GLOBAL elem *at;
    isize ld;
    int m_left, n_left;
    elem alpha, beta;
} result;

HELPER void store_as(result c, const PRIVATE elem *sum, int mode)
{
    const int keep = !elem_is_zero(c.beta);
    UNROLL for (int j = 0; j < TILE_N; ++j) {
        const int column =
            chunk_at(j / FRAGMENT_VECTOR, 0, THREADS_N, TILE_N) + j % FRAGMENT_VECTOR;
        if (column >= c.n_left)
            continue;
        GLOBAL elem *const to = c.at + column * c.ld;
        UNROLL for (int i = 0; i < TILE_M; i += FRAGMENT_VECTOR) {
            const int row = chunk_at(i / FRAGMENT_VECTOR, 0, THREADS_M, TILE_M);
            fragment_vector v;
            UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r)
                v.e[r] = elem_scale(c.alpha, sum[j * TILE_M + i + r]);
            if (mode == WIDE) {
                if (keep) { /* else C may hold anything, NaN too */
                    const fragment_vector old = *(const GLOBAL fragment_vector *)(to + row);
                    UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r)
                        v.e[r] = elem_add(v.e[r], elem_scale(c.beta, old.e[r]));
                }
                *(GLOBAL fragment_vector *)(to + row) = v;
            } else {
                UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r)
                    if (row + r < c.m_left) {
                        if (keep)
                            v.e[r] = elem_add(v.e[r], elem_scale(c.beta, to[row + r]));
                        to[row + r] = v.e[r];
                    }
            }
        }
    }
}

/* Write the block's part of C, which begins at `first`: in vectors where all its rows
 * are there and aligned. */
HELPER void store(GLOBAL elem *first, isize ld, const PRIVATE elem *sum, int m_left, int n_left,
                  elem alpha, elem beta)
{
    const int row = chunk_at(0, THREAD_M, THREADS_M, TILE_M);
    const int column = chunk_at(0, THREAD_N, THREADS_N, TILE_N);
    result c;
    c.at = first + row + column * ld;
    c.ld = ld;
    c.m_left = m_left - row;
    c.n_left = n_left - column;
    c.alpha = alpha;
    c.beta = beta;
    if (FRAGMENT_VECTOR > 1 && m_left == BLOCK_M && ld % FRAGMENT_VECTOR == 0 &&
        ADDRESS(first) % (FRAGMENT_VECTOR * ELEM_BYTES) == 0)
        store_as(c, sum, WIDE);
    else
        store_as(c, sum, CHECKED);
}
