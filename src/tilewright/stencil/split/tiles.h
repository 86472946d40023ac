/* How the pre-pass walks over a matrix, whichever way it is stored.
 *
 * A thread block has a tile of INNER x OUTER elements: INNER along memory, 4 a thread, and
 * STEPS times 8 across it.  `side` is the index of the result (a row of op(A), a column of
 * op(B)), the other one is k:
 *
 *     SIDE_INNER 1                       SIDE_INNER 0
 *     side -->  (memory runs along)      k -->  (memory runs along)
 *     k  t t t t ... 32 threads x 4      side  t t t t ...
 *     |  t t t t                          |    t t t t
 *     v  8 threads, STEPS times           v
 *
 * What is found of a side is first put together in shared memory and then, once a block and
 * side, added to what other blocks found, by atomics on whole numbers: the same in every run.
 *
 * Macros: SIDE_INNER.
 */
#define ACROSS 32
#define DOWN 8
#define STEPS 8
#define VECTOR 4
#define THREADS (ACROSS * DOWN)
#define INNER (ACROSS * VECTOR)
#define OUTER (DOWN * STEPS)

/* Sides of a tile, and threads that meet in one of them. */
#define SIDES (SIDE_INNER ? INNER : OUTER)
#define SHARERS (SIDE_INNER ? DOWN : ACROSS)

typedef struct ALIGNED(16) { float e[VECTOR]; } floats;

/* A block's tile, from its first element on. */
typedef struct {
    isize inner0, outer0;        /* of the whole matrix */
    int inner_left, outer_left;  /* inside of it */
} tile;

HELPER tile tile_of(isize inner, isize outer)
{
    const isize across = (inner + INNER - 1) / INNER;
    tile t;
    t.inner0 = (isize)BLOCK_ID % across * INNER;
    t.outer0 = (isize)BLOCK_ID / across * OUTER;
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

/* Where a thread leaves what it found of a side for the others: neighbours in the sum lie a
 * row of SIDES apart, so that adding up meets no bank twice. */
HELPER int slot(int side, int sharer) { return sharer * (SIDES + 1) + side; }

#define SLOTS (SHARERS * (SIDES + 1))
