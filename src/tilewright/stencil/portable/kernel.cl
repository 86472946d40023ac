/* GEMM by blocks, for any OpenCL device and for CUDA.
 *
 *     C <- alpha op(A) op(B) + beta C      op(A) m x k, op(B) k x n, C m x n
 *
 * A thread block computes BLOCK_M x BLOCK_N elements of C.  It walks along k in
 * steps of BLOCK_K; in each it needs a tile of op(A) and a tile of op(B), and
 * either passes them through shared memory or lets each thread read what it
 * needs straight through the cache.
 *
 *                                   BLOCK_N
 *                                 +---------+
 *                                 |         |  op(B): k runs downwards
 *                                 +---------+
 *                         BLOCK_K |#########|  tile_b[l][j], pitch PITCH_B
 *                                 +---------+
 *                BLOCK_K          |         |
 *           +---+-------+---+     +---------+
 *           |   |#######|   |     |  . . .  |  each of THREADS_M x THREADS_N
 *   BLOCK_M |   |#######|   |     |  . x .  |  threads holds TILE_M x TILE_N
 *           |   |#######|   |     |  . . .  |  elements of C in registers
 *           +---+-------+---+     +---------+
 *          op(A): k runs right,        C
 *          tile_a[l][i], pitch PITCH_A
 *
 * Both tiles lie in shared memory with k as the slow index, whatever op is, so
 * the multiplication is the same text for every op.  Transposing and conjugating
 * happen on the way in.
 *
 * A thread's rows (and columns, alike) of its TILE_M come in chunks of
 * FRAGMENT_VECTOR that lie side by side:
 *
 *     STRIDED 0   aaaabbbbccccdddd   (TILE_M = 4, four threads a b c d)
 *     STRIDED 1   abcdabcdabcdabcd   (FRAGMENT_VECTOR = 1)
 *                 aabbccddaabbccdd   (FRAGMENT_VECTOR = 2)
 *
 * Ragged edges: a tile that lies wholly inside its matrix is read without any
 * check; one that does not, or is not aligned for vectors, is read element by
 * element, with zeros for what lies outside.  Zeros beyond m or n only reach
 * elements of C that are not stored.  Beyond k both tiles hold zeros, and so add
 * nothing, whatever lies in the rest.
 *
 * A, B and C must be aligned to one element; their wider alignment is looked at
 * when the kernel runs, and vectors of elements are used where it allows.
 *
 * Macros given with the source: the parameters of parameters.py in capitals, and
 * TRANS_A, CONJ_A, TRANS_B, CONJ_B (0 or 1).  A dialect and a prelude come first.
 */

#define THREADS (THREADS_M * THREADS_N)
#define THREAD_M (THREAD_ID % THREADS_M)
#define THREAD_N (THREAD_ID / THREADS_M)
#define TILE_M (BLOCK_M / THREADS_M)
#define TILE_N (BLOCK_N / THREADS_N)

/* Whether an operand goes through shared memory. */
#define SHARE_A (READ_A_M > 0)
#define SHARE_B (READ_B_N > 0)

/* Whether an operand's memory is contiguous along k. */
#define K_FAST_A (TRANS_A)
#define K_FAST_B (!TRANS_B)

/* Elements between two rows of a tile in shared memory, and in a whole tile.  The tiles
 * of a step lie behind each other, the second buffer's behind the first's.  BLOCK_K is a
 * multiple of 4, the longest vector, so that each begins aligned if the first does:
 *
 *     | tile_a (SIZE_A) | tile_b (SIZE_B) | tile_a | tile_b |
 */
#define PITCH_A (BLOCK_M + PAD * FRAGMENT_VECTOR)
#define PITCH_B (BLOCK_N + PAD * FRAGMENT_VECTOR)
#define SIZE_A (SHARE_A * BLOCK_K * PITCH_A)
#define SIZE_B (SHARE_B * BLOCK_K * PITCH_B)
#define SIZE_BOTH (SIZE_A + SIZE_B)
#define SIZE_TILES (SHARED_BUFFERS * SIZE_BOTH)

/* Elements a thread reads of each tile; 1 where it reads none, as an array must
 * have a size. */
#define HELD_A (SHARE_A ? BLOCK_M * BLOCK_K / THREADS : 1)
#define HELD_B (SHARE_B ? BLOCK_N * BLOCK_K / THREADS : 1)

/* The alignment that vectors of either kind need in shared memory. */
#define TILE_ALIGNMENT                                                                   \
    (ELEM_BYTES * (READ_VECTOR > FRAGMENT_VECTOR ? READ_VECTOR : FRAGMENT_VECTOR))

/* One step along k, by what is doubled (F fetch device memory into registers,
 * P put registers into shared memory, M multiply, | barrier):
 *
 *     registers once, shared once      M | F P |       nothing overlaps within a block
 *     registers twice (PREFETCH)       F M | P |       ASTRA's pipeline (figure 1)
 *     shared memory twice              F P M |         one barrier a step
 *     both                             F M P |         one barrier, and F behind M
 */
#define FETCH_EARLY (PREFETCH || SHARED_BUFFERS == 2)
#define PUT_EARLY (!PREFETCH && SHARED_BUFFERS == 2)

/* Without tiles in shared memory there is nothing to wait for. */
#if SHARE_A || SHARE_B
#define SYNCHRONISE() BARRIER()
#else
#define SYNCHRONISE()
#endif

/* How a tile may be read: each element checked, none checked, or none checked and vectors
 * aligned.  Shared tiles take the first way where vectors are not aligned: checks cost little
 * beside reads of single elements, while a third way in the loop costs those who take another. */
#define CHECKED 0
#define INSIDE 1
#define WIDE 2

/* Elements side by side, read or written at once. */
typedef struct ALIGNED(READ_VECTOR * ELEM_BYTES) { elem e[READ_VECTOR]; } read_vector;
typedef struct ALIGNED(FRAGMENT_VECTOR * ELEM_BYTES) { elem e[FRAGMENT_VECTOR]; } fragment_vector;

/* A thread block's view of op(A) or op(B).  `side` is the index that is not k:
 * rows of op(A), columns of op(B). */
typedef struct {
    const GLOBAL elem *at; /* first element of the block's next tile, or of this thread's
                            * share of it if the tile goes through shared memory */
    isize ld;              /* leading dimension */
    isize step;            /* from a tile to the next one along k */
    int side_left;         /* how much of the block's side lies inside the matrix */
    int mode;              /* how its tiles may be read, but for one that k cuts */
} operand;

/* ---- Reading tiles ------------------------------------------------------ */

#include "portable/tiles.h"

/* ---- Multiplying tiles -------------------------------------------------- */

/* First row (or column) of a thread's chunk, counted from the block's first. */
HELPER int chunk_at(int chunk, int thread, int threads, int tile)
{
    return STRIDED ? (chunk * threads + thread) * FRAGMENT_VECTOR
                   : thread * tile + chunk * FRAGMENT_VECTOR;
}

/* `row` points at the thread's first chunk in a row of a tile. */
HELPER void fragment_from_shared(PRIVATE elem *fragment, const SHARED elem *row, int threads,
                                 int tile)
{
    UNROLL for (int c = 0; c < tile / FRAGMENT_VECTOR; ++c) {
        const fragment_vector v =
            *(const SHARED fragment_vector *)(row + chunk_at(c, 0, threads, tile));
        UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r)
            fragment[c * FRAGMENT_VECTOR + r] = v.e[r];
    }
}

HELPER void fragment_from_global(PRIVATE elem *fragment, operand x, int l, int thread,
                                 int threads, int tile, int k_fast, int conj, int mode)
{
    UNROLL for (int c = 0; c < tile / FRAGMENT_VECTOR; ++c) {
        const int s = chunk_at(c, thread, threads, tile);
        PRIVATE elem *to = fragment + c * FRAGMENT_VECTOR;
        if (mode == WIDE && !k_fast) {
            const fragment_vector v =
                *(const GLOBAL fragment_vector *)(x.at + place(s, l, x.ld, k_fast));
            UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r)
                to[r] = conj ? elem_conj(v.e[r]) : v.e[r];
        } else {
            UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r) {
                to[r] = elem_zero();
                if (mode != CHECKED || s + r < x.side_left)
                    to[r] = read_element(x.at + place(s + r, l, x.ld, k_fast), conj);
            }
        }
    }
}

/* Add one column of op(A) times one row of op(B) to the thread's tile of C. */
HELPER void multiply_one(PRIVATE elem *sum, const SHARED elem *from_a, operand a,
                         const SHARED elem *from_b, operand b, int l, int mode)
{
    elem of_a[TILE_M], of_b[TILE_N];
    if (SHARE_A)
        fragment_from_shared(of_a, from_a + l * PITCH_A, THREADS_M, TILE_M);
    else
        fragment_from_global(of_a, a, l, THREAD_M, THREADS_M, TILE_M, K_FAST_A, CONJ_A, mode);
    if (SHARE_B)
        fragment_from_shared(of_b, from_b + l * PITCH_B, THREADS_N, TILE_N);
    else
        fragment_from_global(of_b, b, l, THREAD_N, THREADS_N, TILE_N, K_FAST_B, CONJ_B, mode);
    /* Down one column and up the next: of_a's last element is at hand where a column begins.
     * NVIDIA's compilers keep this order where operands can be reused. */
    UNROLL for (int j = 0; j < TILE_N; ++j)
        UNROLL for (int step = 0; step < TILE_M; ++step) {
            const int i = j % 2 ? TILE_M - 1 - step : step;
            sum[j * TILE_M + i] = elem_madd(sum[j * TILE_M + i], of_a[i], of_b[j]);
        }
}

HELPER void multiply_as(PRIVATE elem *sum, const SHARED elem *from_a, operand a,
                        const SHARED elem *from_b, operand b, int mode)
{
    ROLLED for (int l = 0; l < BLOCK_K; l += UNROLL_K)
        UNROLL for (int u = 0; u < UNROLL_K; ++u)
            multiply_one(sum, from_a, a, from_b, b, l + u, mode);
}

/* Add tile of A times tile of B to the thread's tile of C.  Only an operand that
 * comes straight through the cache can reach outside its matrix here: tiles in
 * shared memory are padded with zeros. */
HELPER void multiply(PRIVATE elem *sum, const SHARED elem *from_a, operand a,
                     const SHARED elem *from_b, operand b, isize k_left)
{
    if (SHARE_A && SHARE_B) {
        multiply_as(sum, from_a, a, from_b, b, INSIDE);
    } else if (k_left < BLOCK_K || (!SHARE_A && a.mode == CHECKED) ||
               (!SHARE_B && b.mode == CHECKED)) {
        const int steps = least(k_left, BLOCK_K);
        ROLLED for (int l = 0; l < steps; ++l)
            multiply_one(sum, from_a, a, from_b, b, l, CHECKED);
    } else if (FRAGMENT_VECTOR > 1 && (SHARE_A || a.mode == WIDE) && (SHARE_B || b.mode == WIDE)) {
        multiply_as(sum, from_a, a, from_b, b, WIDE);
    } else {
        multiply_as(sum, from_a, a, from_b, b, INSIDE);
    }
}

/* ---- The kernel --------------------------------------------------------- */

#include "prelude/raster.h"
#include "prelude/run_if.h"

HELPER operand operand_at(const GLOBAL elem *first, isize ld, isize side_at, isize side,
                          int block_side, int k_fast, int threads_side)
{
    const int vector = threads_side > 0 ? READ_VECTOR : FRAGMENT_VECTOR;
    operand x;
    x.at = first + (k_fast ? side_at * ld : side_at);
    x.ld = ld;
    x.step = k_fast ? BLOCK_K : BLOCK_K * ld;
    x.side_left = least(side - side_at, block_side);
    /* Block sides and BLOCK_K are multiples of the vector, so that the first
     * element's alignment and the leading dimension's decide for all tiles. */
    if (x.side_left < block_side)
        x.mode = CHECKED;
    else if (ADDRESS(first) % (vector * ELEM_BYTES) == 0 && ld % vector == 0)
        x.mode = WIDE;
    else
        x.mode = threads_side > 0 ? CHECKED : INSIDE;
    if (threads_side > 0) {
        const share mine = share_of(k_fast, threads_side);
        x.at += place(mine.s, mine.l, ld, k_fast);
    }
    return x;
}

#include "portable/care.h"
#include "portable/store.h"

/* Fetch the next tiles of what goes through shared memory, and step on to the ones after. */
HELPER void fetch_tiles(PRIVATE elem *held_a, PRIVATE operand *a, PRIVATE elem *held_b,
                        PRIVATE operand *b, isize k_left)
{
    if (SHARE_A) {
        fetch(held_a, *a, k_left, K_FAST_A, CONJ_A, BLOCK_M, READ_A_M);
        a->at += a->step;
    }
    if (SHARE_B) {
        fetch(held_b, *b, k_left, K_FAST_B, CONJ_B, BLOCK_N, READ_B_N);
        b->at += b->step;
    }
}

HELPER void put_tiles(SHARED elem *to_a, const PRIVATE elem *held_a, SHARED elem *to_b,
                      const PRIVATE elem *held_b)
{
    if (SHARE_A)
        put(to_a, held_a, PITCH_A, K_FAST_A, BLOCK_M, READ_A_M);
    if (SHARE_B)
        put(to_b, held_b, PITCH_B, K_FAST_B, BLOCK_N, READ_B_N);
}

/* Where this thread's share of a tile begins in shared memory. */
HELPER int put_at(int pitch, int k_fast, int threads_side)
{
    const share mine = share_of(k_fast, threads_side);
    return mine.l * pitch + mine.s;
}

KERNEL THREADS_PER_BLOCK(THREADS) void gemm(
    isize m, isize n, isize k,
    REAL alpha_re, REAL alpha_im, const GLOBAL elem *RESTRICT a_first, isize offset_a, isize lda,
    const GLOBAL elem *RESTRICT b_first, isize offset_b, isize ldb,
    REAL beta_re, REAL beta_im, GLOBAL elem *RESTRICT c_first, isize offset_c, isize ldc
    RUN_IF_ARGUMENT)
{
    WAIT_FOR_PREVIOUS();
    RETURN_UNLESS_WANTED
#if SIZE_TILES == 0
    SHARED elem *const tiles = 0;
#elif defined(STATIC_SHARED_BYTES) && SIZE_TILES * ELEM_BYTES > STATIC_SHARED_BYTES
    DYNAMIC_SHARED_ARRAY ALIGNED(TILE_ALIGNMENT) elem tiles[];
#else
    SHARED_ARRAY ALIGNED(TILE_ALIGNMENT) elem tiles[SIZE_TILES];
#endif
    elem held_a[HELD_A], held_b[HELD_B];
    elem sum[TILE_M * TILE_N];
    UNROLL for (int i = 0; i < TILE_M * TILE_N; ++i) sum[i] = elem_zero();

    isize i0, j0;
    place_of_block(BLOCK_ID, m, n, &i0, &j0);
    operand a = operand_at(a_first + offset_a, lda, i0, m, BLOCK_M, K_FAST_A, READ_A_M);
    operand b = operand_at(b_first + offset_b, ldb, j0, n, BLOCK_N, K_FAST_B, READ_B_N);

    /* An empty sum stays empty whatever alpha is, and alpha = 0 reads no operand. */
    elem alpha = elem_scalar(alpha_re, alpha_im);
    if (k == 0)
        alpha = elem_zero();
    if (elem_is_zero(alpha))
        k = 0;
#ifdef SUM_NEEDS_CARE
    const isize steps = k;
#endif

    /* Where this thread reads its fragments and writes its share of the tiles: carried
     * around the loop as they are, since finding them anew costs more than a register. */
    const SHARED elem *from_a = tiles, *from_b = tiles;
    SHARED elem *to_a = tiles, *to_b = tiles;
    if (SHARE_A) {
        from_a = tiles + chunk_at(0, THREAD_M, THREADS_M, TILE_M);
        to_a = tiles + put_at(PITCH_A, K_FAST_A, SHARE_A ? READ_A_M : 1);
    }
    if (SHARE_B) {
        from_b = tiles + SIZE_A + chunk_at(0, THREAD_N, THREADS_N, TILE_N);
        to_b = tiles + SIZE_A + put_at(PITCH_B, K_FAST_B, SHARE_B ? READ_B_N : 1);
    }

    /* All conditions below are the same for every thread of the block: barriers
     * inside them are met by all.  At the head of the loop the tiles of its step
     * are in shared memory, and `to_` points where the next step's are to go. */
    int other = SHARED_BUFFERS == 2 ? SIZE_BOTH : 0; /* from this step's buffer to the next's */
    if (k > 0) {
        fetch_tiles(held_a, &a, held_b, &b, k);
        put_tiles(to_a, held_a, to_b, held_b);
    }
    to_a += other;
    to_b += other;
    SYNCHRONISE();
    for (; k > 0; k -= BLOCK_K) {
        const isize later = k - BLOCK_K;
        if (FETCH_EARLY && later > 0)
            fetch_tiles(held_a, &a, held_b, &b, later);
        if (PUT_EARLY && later > 0)
            put_tiles(to_a, held_a, to_b, held_b);

        multiply(sum, from_a, a, from_b, b, k);
#ifdef SETTLE_STEPS
        /* BLOCK_K divides SETTLE_STEPS, so once in as many steps. */
        if ((int)(k % SETTLE_STEPS) < BLOCK_K)
            settle(sum);
#endif
        if (!SHARE_A)
            a.at += a.step;
        if (!SHARE_B)
            b.at += b.step;

#if SHARED_BUFFERS == 1
        SYNCHRONISE(); /* all have read the tiles that are overwritten next */
#endif
        if (!FETCH_EARLY && later > 0)
            fetch_tiles(held_a, &a, held_b, &b, later);
        if (!PUT_EARLY && later > 0)
            put_tiles(to_a, held_a, to_b, held_b);
        SYNCHRONISE(); /* all of the next tiles are there */
        from_a += other;
        from_b += other;
        to_a -= other;
        to_b -= other;
        other = -other;
    }
#ifdef SUM_NEEDS_CARE
    settle(sum);
    repair(sum, a_first + offset_a + (K_FAST_A ? i0 * lda : i0), lda,
           b_first + offset_b + (K_FAST_B ? j0 * ldb : j0), ldb, steps, least(m - i0, BLOCK_M),
           least(n - j0, BLOCK_N));
#endif
    store(c_first + offset_c + i0 + j0 * ldc, ldc, sum, least(m - i0, BLOCK_M),
          least(n - j0, BLOCK_N), alpha, elem_scalar(beta_re, beta_im));
}
