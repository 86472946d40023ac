/* GEMM of short sums, for CUDA: C is written once, straight from registers, in whole vectors.
 *
 *     C <- alpha op(A) op(B) + beta C      op(A) m x k, op(B) k x n, C m x n
 *
 * Of an outer product, k = 1, and of sums of a few products, writing C takes all of the time.
 *
 *                BLOCK_K            BLOCK_N
 *                                +----------+
 *                                |    b     |   k runs downwards; elements of B are the same for
 *                                +----------+   all lanes of a warp
 *               +---+            +----------+
 *               |   |            |          |
 *       BLOCK_M | a |            |    C     |   BLOCK_M = 32 CHUNK: a chunk of a column for each
 *               |   |            |          |   lane of a warp, 16 bytes, or 8 of 16-bit results
 *               +---+            +----------+
 *       a lane's rows of A stay in registers
 *
 * Stores of a chunk are aligned to its size, and columns of C may begin anywhere: column j begins
 * d(j) elements behind such an address.  Columns CHUNK apart begin alike, as CHUNK columns are
 * whole chunks long.  So each warp takes every CHUNK-th column, and its chunks begin d rows higher
 * than the tile does.  Floats, ldc = 5, the warps of four columns:
 *
 *     column     0     1     2     3
 *     d          0     1     2     3
 *              |...| |  .| | ..| |...|    each | | is a chunk's rows, of which those outside C are
 *              |...| |...| |...| |   |    neither read nor written, and the others one by one
 *              |...| |...| |...| |...|
 *
 * The last tile along m is shorter by d rows than its chunks reach: its first lane has one more.
 *
 * Each warp reads its rows of A and columns of B from memory (multiply.cuh).  Operands of 16 bits
 * it reads from shared memory (staged.cuh): C has half the bytes, and as many elements are read.
 *
 * Sums longer than BLOCK_K are right, too, and slow: rows of A are read anew for every column.
 *
 * Macros given with the source: the parameters in capitals, THREADS, TRANS_A, CONJ_A, TRANS_B,
 * CONJ_B (0 or 1), and for operands of 16 bits ELEMENT and OUTPUT (elements.h).  A dialect and a
 * prelude come first.
 */

#define CHUNK (BLOCK_M / 32)

/* Columns that a warp computes in all, CHUNK apart, and those whose sums it holds at once, in 16
 * registers a thread. */
#define COLUMNS (BLOCK_N / (THREADS / 32))
#define TOGETHER 4

/* Columns that are left at least where so many are computed together: in shared memory zeros follow
 * the last one. */
#ifdef ELEMENT
#define FEWEST 1
#else
#define FEWEST TOGETHER
#endif

/* So many blocks leave a thread 128 registers. */
#define BLOCKS 4

#include "prelude/elements.h"

struct ALIGNED(CHUNK * OUTPUT_BYTES) chunk {
    output e[CHUNK];
};

/* A lane's part of a product: from its first row of A and C, and its warp's first column of B and
 * C; columns that the warp computes lie `next_b` and `next_c` elements apart. */
struct product {
    isize k;
    const operand *a;
    isize lda;
    const operand *b;
    isize ldb, next_b;
    output *c;
    isize next_c;
    elem alpha, beta;
    int row, column; /* the first ones' places among what is staged */
    bool whole;      /* whether all rows lie in C, and chunks are aligned */
    bool own[CHUNK]; /* which rows do */
};

#ifdef ELEMENT
#include "outer/staged.cuh"
#else
#include "outer/multiply.cuh"
#endif

/* Read what C holds of a lane's rows of a column; the others are zero. */
HELPER void read_chunk(chunk *to, const product *p, const output *from)
{
    if (p->whole) {
        *to = *(const chunk *)from;
    } else {
        UNROLL for (int e = 0; e < CHUNK; ++e)
            to->e[e] = p->own[e] ? from[e] : rounded(elem_zero());
    }
}

HELPER void write_chunk(output *to, const product *p, chunk v)
{
    if (p->whole) {
        *(chunk *)to = v;
    } else {
        UNROLL for (int e = 0; e < CHUNK; ++e)
            if (p->own[e])
                to[e] = v.e[e];
    }
}

/* Write alpha times the sums of MANY columns, of which `left` are C's, and beta times what was
 * there, if that counts. */
template <int MANY> HELPER void store(const elem *sum, const product *p, int left)
{
    elem v[MANY][CHUNK];
    UNROLL for (int u = 0; u < MANY; ++u)
        UNROLL for (int e = 0; e < CHUNK; ++e)
            v[u][e] = elem_scale(p->alpha, sum[u * CHUNK + e]);
    if (!elem_is_zero(p->beta)) {
        chunk old[MANY];
        UNROLL for (int u = 0; u < MANY; ++u)
            if (u < FEWEST || u < left)
                read_chunk(&old[u], p, p->c + u * p->next_c);
        UNROLL for (int u = 0; u < MANY; ++u)
            UNROLL for (int e = 0; e < CHUNK; ++e)
                v[u][e] = elem_add(v[u][e], elem_scale(p->beta, widened(old[u].e[e])));
    }
    UNROLL for (int u = 0; u < MANY; ++u) {
        chunk to;
        UNROLL for (int e = 0; e < CHUNK; ++e) to.e[e] = rounded(v[u][e]);
        if (u < FEWEST || u < left)
            write_chunk(p->c + u * p->next_c, p, to);
    }
}

template <int MANY> HELPER void begin(elem *sum)
{
    UNROLL for (int i = 0; i < MANY * CHUNK; ++i) sum[i] = elem_zero();
}

/* One column of sums of any length; `x` holds the first steps' rows if there are no others. */
HELPER void compute_column(rows *x, const product *p)
{
    elem sum[CHUNK];
    begin<1>(sum);
    multiply_column(sum, x, p);
    store<1>(sum, p, 1);
}

/* A lane's rows of its warp's columns. */
HELPER void compute_rows(product p, int columns)
{
    rows x;
    read_rows(&x, &p, 0);
    int left = columns;
    ROLLED for (; p.k <= BLOCK_K && left >= FEWEST; left -= TOGETHER) {
        elem sum[TOGETHER * CHUNK];
        begin<TOGETHER>(sum);
        multiply<TOGETHER>(sum, &x, &p, 0);
        store<TOGETHER>(sum, &p, left);
        p.b += TOGETHER * p.next_b;
        p.c += TOGETHER * p.next_c;
        p.column += TOGETHER * CHUNK;
    }
    ROLLED for (; left > 0; --left) {
        compute_column(&x, &p);
        p.b += p.next_b;
        p.c += p.next_c;
    }
}

#include "prelude/run_if.h"

KERNEL THREADS_AND_BLOCKS(THREADS, BLOCKS) void
    gemm(isize m, isize n, isize k, REAL alpha_re, REAL alpha_im, const operand *RESTRICT a_first,
         isize offset_a, isize lda, const operand *RESTRICT b_first, isize offset_b, isize ldb,
         REAL beta_re, REAL beta_im, output *RESTRICT c_first, isize offset_c,
         isize ldc RUN_IF_ARGUMENT)
{
    WAIT_FOR_PREVIOUS();
    RETURN_UNLESS_WANTED
    /* An empty sum stays empty whatever alpha is, and alpha = 0 reads no operand. */
    elem alpha = elem_scalar(alpha_re, alpha_im);
    if (k == 0)
        alpha = elem_zero();
    if (elem_is_zero(alpha))
        k = 0;
    const unsigned int down = (unsigned int)((m + BLOCK_M - 1) / BLOCK_M);
    const unsigned int tile = BLOCK_ID % down;
    const int warp = THREAD_ID / 32, lane = THREAD_ID % 32;
    const isize j = (isize)(BLOCK_ID / down) * BLOCK_N + warp / CHUNK * (COLUMNS * CHUNK) +
                    warp % CHUNK;
    const int column = (int)(j % BLOCK_N);
    const isize before = (isize)tile * BLOCK_M - CHUNK; /* the first row that is staged */
    const isize left = (n - j + CHUNK - 1) / CHUNK;
    const int columns = left < COLUMNS ? (int)left : COLUMNS;
    LET_NEXT_BEGIN();
#ifdef ELEMENT
    if (k > 0 && k <= BLOCK_K) {
        stage<SIDE_A, TRANS_A>(staged_a(), a_first + offset_a, lda, before, m, k);
        stage<BLOCK_N, !TRANS_B>(staged_b(), b_first + offset_b, ldb, j - column, n, k);
        BARRIER();
    }
#endif
    if (columns <= 0)
        return;
    output *const c = c_first + offset_c + j * ldc;
    const isize first = (isize)tile * BLOCK_M + lane * CHUNK -
                        (isize)(ADDRESS(c) / OUTPUT_BYTES % CHUNK);
    ROLLED for (isize row = first; row < m && (row == first || tile + 1 == down); row += BLOCK_M) {
        product p = {k, a_first + offset_a + (TRANS_A ? row * lda : row), lda,
                     b_first + offset_b + (TRANS_B ? j : j * ldb), ldb,
                     CHUNK * (TRANS_B ? 1 : ldb), c + row, CHUNK * ldc, alpha,
                     elem_scalar(beta_re, beta_im), (int)(row - before), column};
        UNROLL for (int e = 0; e < CHUNK; ++e) p.own[e] = row + e >= 0 && row + e < m;
        /* Complex numbers may begin at multiples of a real one's size: no chunk is aligned then. */
        p.whole = p.own[0] && p.own[CHUNK - 1] && ADDRESS(c) % OUTPUT_BYTES == 0;
        compute_rows(p, columns);
    }
}
