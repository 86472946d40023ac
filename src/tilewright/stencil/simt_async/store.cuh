/* Alpha and beta, and C written.  A part of kernel.cuh. */

/* C, from the first element on that a thread stores: what lies inside it, and the scalars. */
struct result {
    elem *at;
    isize ld;
    int m_first, m_left; /* the rows that are the block's own: from here, and up to here */
    int n_first, n_left; /* and the columns */
    bool wide;           /* whether chunks are aligned, and each is the block's own or is not */
    bool whole;          /* whether all of the block's tile is its own */
    elem alpha, beta;
#ifdef SUM_NEEDS_CARE
    const elem *a, *b; /* the thread's own first row of op(A) and column of op(B) */
    isize lda, ldb, k;
#endif
};

#ifdef SUM_NEEDS_CARE
#include "prelude/plain_sum.h"

/* Not inlined: a copy for each of a thread's sums would outgrow the kernel. */
static __device__ __noinline__ elem computed_anew(const elem *a, isize lda, const elem *b,
                                                  isize ldb, isize k)
{
    return plain_sum(a, lda, b, ldb, k);
}

HELPER void settle(elem *sum)
{
    UNROLL for (int x = 0; x < TILE_M * TILE_N; ++x) sum[x] = elem_settled(sum[x]);
}

/* Say where the block's rows and columns are, for sums that have to be computed anew. */
HELPER void remember(result *c, const elem *a, isize lda, const elem *b, isize ldb, isize k)
{
    c->a = a + thread_m() * CHUNK * (K_FAST_A ? lda : 1);
    c->b = b + thread_n() * CHUNK * (K_FAST_B ? ldb : 1);
    c->lda = lda;
    c->ldb = ldb;
    c->k = k;
}
#endif

/* Whether sums are kept as conjugates of what they are, which what multiplies may say. */
#ifndef SUMS_CONJUGATE
#define SUMS_CONJUGATE 0
#endif

/* A sum, anew if it has to be; row and column count from the thread's own first element, also
 * where another lane stores it. */
HELPER elem finished(const result *c, elem sum, int row, int column)
{
#ifdef SUM_NEEDS_CARE
    if (!elem_is_sound(sum))
        return computed_anew(c->a + row * (K_FAST_A ? c->lda : 1), c->lda,
                             c->b + column * (K_FAST_B ? c->ldb : 1), c->ldb, c->k);
#endif
    return SUMS_CONJUGATE ? elem_conj(sum) : sum;
}

/* With beta = 0 C may hold anything, NaN too. */
HELPER elem with_old(result c, elem v, const elem *old)
{
    return elem_is_zero(c.beta) ? v : elem_add(v, elem_scale(c.beta, *old));
}

#include "simt_async/staged.cuh"

HELPER int least(isize x, int y) { return x < y ? (int)x : y; }

/* C from a block's place on. */
HELPER result result_in(const matrices *x, place p)
{
    elem *const first = x->c + x->offset_c + p.i.at + p.j.at * x->ldc;
    const int row = thread_row(), column = thread_column();
    const int rows = least(x->m - p.i.at, BLOCK_M), columns = least(x->n - p.j.at, BLOCK_N);
    result c;
    c.at = first + row + column * x->ldc;
    c.ld = x->ldc;
    c.m_first = p.i.before - row;
    c.m_left = rows - row;
    c.n_first = p.j.before - column;
    c.n_left = columns - column;
    c.wide = p.i.before % CHUNK == 0 && rows % CHUNK == 0 && x->ldc % CHUNK == 0 &&
             ADDRESS(first) % 16 == 0;
    c.whole = p.i.before == 0 && rows == BLOCK_M && p.j.before == 0 && columns == BLOCK_N;
    c.alpha = x->alpha;
    c.beta = x->beta;
#ifdef SUM_NEEDS_CARE
    remember(&c, x->a + x->offset_a + p.i.at * (K_FAST_A ? x->lda : 1), x->lda,
             x->b + x->offset_b + p.j.at * (K_FAST_B ? x->ldb : 1), x->ldb, x->k);
#endif
    if (STAGED && !c.wide)
        begin_where_stored(&c);
    return c;
}

HELPER elem scaled(result c, elem sum, const elem *old)
{
    return with_old(c, elem_scale(c.alpha, sum), old);
}

/* Write chunk number i of column j of the thread's tile. */
HELPER void store_chunk(result c, const elem *sum, int j, int i)
{
    const int column = column_of(j), row = i * LANES_M * CHUNK;
    if (column < c.n_first || column >= c.n_left)
        return;
    elem *const to = c.at + column * c.ld + row;
    if (CHUNK > 1 && c.wide) { /* one way is enough where an element is a chunk */
        elem v[CHUNK], old[CHUNK];
        chunk there;
        if (row < c.m_first || row >= c.m_left)
            return;
        if (!elem_is_zero(c.beta)) {
            there = *(const chunk *)to;
            UNROLL for (int e = 0; e < CHUNK; ++e) old[e] = element_of(there, e);
        }
        UNROLL for (int e = 0; e < CHUNK; ++e)
            v[e] = scaled(c, finished(&c, sum[e], row + e, column), &old[e]);
        *(chunk *)to = chunk_of(v);
    } else {
        UNROLL for (int e = 0; e < CHUNK; ++e)
            if (row + e >= c.m_first && row + e < c.m_left)
                to[e] = scaled(c, finished(&c, sum[e], row + e, column), to + e);
    }
}

#if SPECIALISED_EPILOGUE
#include "simt_async/specialised_epilogue.cuh"
#else
/* Store `count` columns of the thread's tile, from `first` on. */
HELPER void store_columns(result c, const elem *sum, int first, int count, shared_at tiles)
{
    if (STAGED && !c.wide) {
        store_staged(c, sum, first, count, tiles);
        return;
    }
    UNROLL for (int j = 0; j < count; ++j)
        UNROLL for (int i = 0; i < TILE_M / CHUNK; ++i)
            store_chunk(c, sum + j * TILE_M + i * CHUNK, first + j, i);
}
#endif

HELPER void store_own_sums(result c, const elem *sum, shared_at tiles)
{
    store_columns(c, sum, 0, TILE_N, tiles);
}

/* Parts of a tile's sums: each block of a cluster has some, and each layer of its warps. */
#define PARTS_OF_TILE (CLUSTER_K * WARPS_K)

/* Where chunk i of column j of a thread's sums lies, `number` being the thread's: consecutive
 * threads side by side.
 *
 *     | chunk 0 of threads 0, 1, 2, ... | chunk 1 of threads 0, 1, 2, ... | ...
 */
HELPER shared_at sums_at(shared_at base, int j, int i, int number)
{
    return base + ((j * (TILE_M / CHUNK) + i) * THREADS + number) * 16;
}

/* What the thread in this place of another block and layer has left there. */
HELPER chunk left_by(int part, shared_at base, int j, int i)
{
    const shared_at at = sums_at(base, j, i, part % WARPS_K * LAYER + PLACE_IN_LAYER);
    return CLUSTER_K > 1 ? read_chunk_of(part / WARPS_K, at) : read_chunk(at);
}

/* Add up column j of all parts, part by part. */
HELPER void add_column(elem *total, shared_at base, int j)
{
    UNROLL for (int i = 0; i < TILE_M / CHUNK; ++i)
        UNROLL for (int part = 0; part < PARTS_OF_TILE; ++part) {
            const chunk v = left_by(part, base, j, i);
            UNROLL for (int e = 0; e < CHUNK; ++e) {
                elem *const sum = total + i * CHUNK + e;
                *sum = part ? elem_add(*sum, element_of(v, e)) : element_of(v, e);
            }
        }
}

/* Wait for all that have parts. */
HELPER void barrier_of_parts(void)
{
    if (CLUSTER_K > 1)
        cluster_barrier();
    else
        BARRIER();
}

/* Each layer of each block of the cluster adds up and writes its share of the columns, part by
 * part in the order of k: of blocks, and within each of layers. */
HELPER void store_sums_of_parts(result c, const elem *sum, shared_at base)
{
    /* Since the last barrier of the loop nobody has read what lies here but to throw it away. */
    UNROLL for (int j = 0; j < TILE_N; ++j)
        UNROLL for (int i = 0; i < TILE_M / CHUNK; ++i)
            write_chunk(sums_at(base, j, i, THREAD_ID), chunk_of(sum + j * TILE_M + i * CHUNK));
    barrier_of_parts();
    const int columns = TILE_N / PARTS_OF_TILE, first = (cluster_rank() * WARPS_K + layer()) * columns;
    if (STAGED) {
        elem totals[TILE_M * (TILE_N / PARTS_OF_TILE)];
        UNROLL for (int j = 0; j < columns; ++j)
            add_column(totals + j * TILE_M, base, first + j);
        barrier_of_parts(); /* nobody reads where results are staged */
        store_columns(c, totals, first, columns, base);
        return;
    }
    /* Each instruction runs once a launch, and misses the caches: 1024 x 1024 floats waited longer
     * for the code of all columns than for anything else behind the loop. */
    ROLLED for (int j = 0; j < columns; ++j) {
        elem total[TILE_M];
        add_column(total, base, first + j);
        store_columns(c, total, first + j, 1, base);
    }
    if (CLUSTER_K > 1)
        cluster_barrier(); /* nobody leaves while others read from it */
}
