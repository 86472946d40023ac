/* How the passes walk over both operands, whichever way each is stored.
 *
 * A thread block has a tile of INNER x OUTER elements: INNER along memory, 4 a thread, and
 * STEPS times 8 across it.  Tiles of A come first, then those of B.  `side` is the index of the
 * result (a row of op(A), a column of op(B)), the other one is k:
 *
 *     side_inner 1                       side_inner 0
 *     side -->  (memory runs along)      k -->  (memory runs along)
 *     k  t t t t ... 32 threads x 4      side  t t t t ...
 *     |  t t t t                          |    t t t t
 *     v  8 threads, STEPS times           v
 *
 * Sides of B are counted on from `first_b`, m rounded up to 4: numbers of sides are read four
 * at a time, and what they are rounded up by are sides of zeros.
 *
 * What is found of a side is first put together in shared memory and then, once a block and
 * side, added to what other blocks found, by atomics on whole numbers: the same in every run.
 *
 * Macros: SIDE_INNER_A, SIDE_INNER_B, BATCHED.
 */
#define ACROSS 32
#define DOWN 8
#define STEPS 4 /* a thread's loads in flight; 256 blocks for 1024 x 1024 elements */
#define VECTOR 4
#define THREADS (ACROSS * DOWN)
#define TOGETHER 4 /* blocks a multiprocessor: all of two such matrices at once on 132 of them */
#define INNER (ACROSS * VECTOR)
#define OUTER (DOWN * STEPS)

typedef struct ALIGNED(16) { float e[VECTOR]; } floats;
typedef struct ALIGNED(16) { int e[VECTOR]; } ints;

/* An operand, and the first of its sides among those of both. */
typedef struct {
    isize inner, outer, ld, first_side;
    const GLOBAL float *x;
} matrix;

/* With BATCHED blocks in z have a product each.  Its operands lie `step_a` and `step_b` elements
 * behind those of the product before; what is made of them lies one product behind the other. */
#ifdef BATCHED
#ifdef __OPENCL_VERSION__
#define PRODUCT ((isize)get_group_id(2))
#define IS_LAST_PRODUCT (get_group_id(2) == get_num_groups(2) - 1)
#else
#define PRODUCT ((isize)blockIdx.z)
#define IS_LAST_PRODUCT (blockIdx.z == gridDim.z - 1)
#endif
#define STEPS_OF_BATCH , isize step_a, isize step_b
#define GO_TO_PRODUCT                                                                        \
    offset_a += PRODUCT * step_a;                                                            \
    offset_b += PRODUCT * step_b;                                                            \
    tops += PRODUCT * TOPS;                                                                  \
    sides += PRODUCT * SIDES;
#else
#define PRODUCT 0
#define PARTS_OF_PRODUCT 0
#define IS_LAST_PRODUCT 1
#define STEPS_OF_BATCH
#define GO_TO_PRODUCT
#endif

/* Arguments of either pass, and the operand that a tile is of. */
#define MATRICES                                                                             \
    isize inner_a, isize outer_a, const GLOBAL float *RESTRICT a, isize offset_a, isize lda, \
        isize inner_b, isize outer_b, const GLOBAL float *RESTRICT b, isize offset_b,        \
        isize ldb, isize first_b
#define MATRIX(is_b)                                                        \
    {                                                                       \
        (is_b) ? inner_b : inner_a, (is_b) ? outer_b : outer_a,             \
        (is_b) ? ldb : lda, (is_b) ? first_b : 0,                           \
        (is_b) ? b + offset_b : a + offset_a                                \
    }

/* A block's tile, from its first element on. */
typedef struct {
    isize inner0, outer0;        /* of the whole matrix */
    int inner_left, outer_left;  /* inside of it */
} tile;

HELPER isize tiles_of(isize inner, isize outer)
{
    return (inner + INNER - 1) / INNER * ((outer + OUTER - 1) / OUTER);
}

HELPER tile tile_of(isize at, isize inner, isize outer)
{
    /* Numbers of tiles fit 32 bits, as numbers of blocks do; long division is slow. */
    const unsigned int across = (unsigned int)((inner + INNER - 1) / INNER);
    tile t;
    t.inner0 = (isize)((unsigned int)at % across) * INNER;
    t.outer0 = (isize)((unsigned int)at / across) * OUTER;
    t.inner_left = (int)(inner - t.inner0 < INNER ? inner - t.inner0 : INNER);
    t.outer_left = (int)(outer - t.outer0 < OUTER ? outer - t.outer0 : OUTER);
    return t;
}

/* This thread's four elements of a row of the tile; zeros outside. */
HELPER floats read_floats(const GLOBAL float *row, int first, int left, int aligned)
{
    floats v;
    if (aligned && first + VECTOR <= left)
        return *(const GLOBAL floats *)(row + first);
    UNROLL for (int e = 0; e < VECTOR; ++e) v.e[e] = first + e < left ? row[first + e] : 0.0f;
    return v;
}

/* Whether rows may be read four elements at a time. */
HELPER int is_aligned(const GLOBAL float *x, isize ld)
{
    return ADDRESS(x) % sizeof(floats) == 0 && ld % VECTOR == 0;
}

/* All of this thread's elements of a tile, so that no load waits for another. */
HELPER void read_tile(PRIVATE floats *v, matrix from, tile t)
{
    const int i = THREAD_ID % ACROSS * VECTOR, down = THREAD_ID / ACROSS;
    const int aligned = is_aligned(from.x, from.ld);
    const GLOBAL float *const row = from.x + t.inner0 + (t.outer0 + down) * from.ld;
    if (aligned && t.inner_left == INNER && t.outer_left == OUTER) {
        UNROLL for (int step = 0; step < STEPS; ++step)
            v[step] = *(const GLOBAL floats *)(row + step * DOWN * from.ld + i);
        return;
    }
    UNROLL for (int step = 0; step < STEPS; ++step) {
        UNROLL for (int e = 0; e < VECTOR; ++e) v[step].e[e] = 0;
        if (step * DOWN + down < t.outer_left)
            v[step] = read_floats(row + step * DOWN * from.ld, i, t.inner_left, aligned);
    }
}

/* Where a thread leaves what it found of a side for the others.  Neither leaving nor adding up
 * meets a bank twice: sides along memory come from threads that have four each, so the first of
 * every four lie together, then the second ones, 8 banks on; sides across it come from the 32
 * threads of a row, which write a row of OUTER + 1 apart. */
#define FOURTH (ACROSS + 8)
#define SLOTS (DOWN * VECTOR * FOURTH)
HELPER int slot(int side, int sharer, int side_inner)
{
    return side_inner ? sharer * VECTOR * FOURTH + side % VECTOR * FOURTH + side / VECTOR
                      : sharer * (OUTER + 1) + side;
}

/* Threads that meet in a side of a tile, and a tile's sides inside the matrix. */
#define SHARERS(side_inner) ((side_inner) ? DOWN : ACROSS)
#define SIDES_LEFT(t, side_inner) ((side_inner) ? (t).inner_left : (t).outer_left)
