/* Products of elements of 32 bits and more, which warps read from memory.  A part of kernel.cuh. */

/* Rows of op(A) that a lane has, with BLOCK_K steps of k. */
struct rows {
    elem e[BLOCK_K][CHUNK];
};

/* Read a lane's rows for the steps from l on; what lies beyond C's rows or k is zero. */
HELPER void read_rows(rows *to, const product *p, isize l)
{
    UNROLL for (int i = 0; i < BLOCK_K; ++i)
        UNROLL for (int e = 0; e < CHUNK; ++e) {
            elem v = elem_zero();
            if (p->own[e] && l + i < p->k)
                v = p->a[TRANS_A ? l + i + e * p->lda : e + (l + i) * p->lda];
            to->e[i][e] = CONJ_A ? elem_conj(v) : v;
        }
}

/* Add the products of a lane's rows with MANY columns of B. */
template <int MANY> HELPER void multiply(elem *sum, const rows *x, const product *p, isize l)
{
    UNROLL for (int i = 0; i < BLOCK_K; ++i) {
        const elem *const b = p->b + (l + i) * (TRANS_B ? p->ldb : 1);
        UNROLL for (int u = 0; u < MANY; ++u) {
            elem y = elem_zero();
            if (l + i < p->k)
                y = b[u * p->next_b];
            if (CONJ_B)
                y = elem_conj(y);
            UNROLL for (int e = 0; e < CHUNK; ++e) {
                elem *const to = sum + u * CHUNK + e;
                *to = elem_madd(*to, x->e[i][e], y);
            }
        }
    }
}

/* Add those with one column, of any length; `x` holds the first steps' rows if there are no
 * others. */
HELPER void multiply_column(elem *sum, rows *x, const product *p)
{
    isize l = 0;
    do {
        if (p->k > BLOCK_K)
            read_rows(x, p, l);
        multiply<1>(sum, x, p, l);
        l += BLOCK_K;
    } while (l < p->k);
}
