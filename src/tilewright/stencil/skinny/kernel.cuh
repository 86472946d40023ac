/* GEMM with a short side, for CUDA: the long operand is read once, straight to registers.
 *
 *     C <- alpha op(A) op(B) + beta C      op(A) m x k, op(B) k x n, C m x n
 *
 * One of C's sides, m or n, is short; the operand that carries the other side is the long one, X.
 * With SHORT_M 0 the product is D = X Y as it stands; with SHORT_M 1 its transpose is, so that
 * roles are the same in the source and only stores differ:
 *
 *     SHORT_M 0     D = C        X = op(A)      Y = op(B)
 *     SHORT_M 1     D = C^T      X = op(B)^T    Y = op(A)^T
 *
 *                                SHORT
 *                               +-----+
 *                               |     |
 *                               +-----+
 *                       BLOCK_K |  y  |   k runs downwards; SLAB_STEPS steps of Y are in shared
 *                               +-----+   memory at a time, for all threads of the block
 *               BLOCK_K         |     |
 *          +---+-------+---+    +-----+
 *          |   |       |   |    |     |
 *     ROWS |   |   x   |   |    |  D  |   a block computes ROWS x SHORT elements of D
 *          |   |       |   |    |     |
 *          +---+-------+---+    +-----+
 *            X: k runs right
 *
 * A step of X, ROWS x BLOCK_K, is divided among LANES_ROWS x LANES_K threads.  Each reads HELD_ROWS
 * x HELD_K chunks of 16 bytes, all before it multiplies any: what hides the latency of memory.
 * Chunks lie along k or along the rows, as X's memory does, and neighbours in a warp read
 * neighbours in memory:
 *
 *     along rows, CHUNK 2, LANES_ROWS 4         along k, CHUNK 2, LANES_K 4
 *         k ->                                      k ->
 *       | 0  4  8  12                             | 0 0 1 1 2 2 3 3
 *       | 0  4  8  12   threads by number         | 4 4 5 5 6 6 7 7
 *     r | 1  5  9  13                           r | 8 8 9 9 ...
 *       | 1  5  9  13                             |
 *       v 2  6 10  14                             v
 *
 * Where columns are not aligned to 16 bytes, and where a chunk would reach beyond the last row,
 * each element is read by itself, and neighbours take single elements alternately (WIDE false): the
 * same bytes are on their way, in more instructions.  Which way a block goes it finds when it runs.
 *
 * Operands of 16 and 8 bits are multiplied by tensor cores, and lie and are read somewhat
 * otherwise: tensor.cuh draws how.  What follows is of wider elements.
 *
 * Y in shared memory, so that what a thread multiplies with one chunk lies side by side:
 *
 *     X along rows     y[l][w], SHORT a row: all lanes of a row of threads read the same
 *     X along k        y[w][l], PITCH a row, a chunk longer than the slab: neighbours read
 *                      neighbours, and a column written at once meets different banks
 *
 * Threads along k then add up their parts through shared memory, RADIX at a time, in an order that
 * depends on nothing but the config.
 *
 * Long sums over few tiles: k is cut into slices, a block for each of them, as many as the grid has
 * blocks for each tile.  Each leaves its sums in the workspace, and a second kernel adds them up in
 * the order of k (slices.cuh).  A block whose tile is one slice stores it, and nothing follows.
 *
 * Macros given with the source: the parameters in capitals, THREADS, SLAB_STEPS, TRANS_A, CONJ_A,
 * TRANS_B, CONJ_B (0 or 1), and for operands of 16 and 8 bits ELEMENT and OUTPUT (elements.h).  A
 * dialect and a prelude come first.
 */

#define SHORT (SHORT_M ? BLOCK_M : BLOCK_N)
#define ROWS (SHORT_M ? BLOCK_N : BLOCK_M)

/* Whether X's and Y's memory runs along k, and whether they are conjugated. */
#define K_FAST_X (SHORT_M ? !TRANS_B : TRANS_A)
#define K_FAST_Y (SHORT_M ? TRANS_A : !TRANS_B)
#define CONJ_X (SHORT_M ? CONJ_B : CONJ_A)
#define CONJ_Y (SHORT_M ? CONJ_A : CONJ_B)

#include "prelude/elements.h"
#include "skinny/chunks.cuh"

/* A chunk along either side of X. */
#define CHUNK_ROWS (K_FAST_X ? 1 : CHUNK)
#define CHUNK_K (K_FAST_X ? CHUNK : 1)

#define LANES_ROWS (THREADS / LANES_K)
#ifdef ELEMENT
/* As an instruction has a warp's lanes: four along k, eight along the rows. */
#define WARP_LANES_K 4
#define K_PARTS (LANES_K / WARP_LANES_K)
#define LANE_K (THREAD_ID / 32 % K_PARTS * WARP_LANES_K + THREAD_ID % WARP_LANES_K)
#define LANE_ROW (THREAD_ID / 32 / K_PARTS * 8 + THREAD_ID % 32 / WARP_LANES_K)
#define SLAB_ALONG_K 1
#define PAD ((K_FAST_X ? 64 : 32) / OPERAND_BYTES)
#define SUMS (TILE_ROWS * SHORT / 4)
#else
#define LANE_K (K_FAST_X ? THREAD_ID % LANES_K : THREAD_ID / LANES_ROWS)
#define LANE_ROW (K_FAST_X ? THREAD_ID / LANES_K : THREAD_ID % LANES_ROWS)
#define K_PARTS LANES_K
#define SLAB_ALONG_K K_FAST_X
#define PAD CHUNK
#define SUMS (TILE_ROWS * SHORT)
#endif
#define HELD_ROWS (ROWS / (LANES_ROWS * CHUNK_ROWS))
#define HELD_K (BLOCK_K / (LANES_K * CHUNK_K))

/* A thread's rows of D. */
#define TILE_ROWS (HELD_ROWS * CHUNK_ROWS)

#define SLAB_K (SLAB_STEPS * BLOCK_K)
#define PITCH (SLAB_K + PAD)

/* Elements of D of a block. */
#define TILE (ROWS * SHORT)

/* Parts that one thread adds up before the block's threads meet again: a chain of so many additions
 * takes about as long as a barrier. */
#define RADIX 8

#include "skinny/ptx.cuh"
#include "skinny/place.cuh"
#include "skinny/slab.cuh"
#include "skinny/result.cuh"
#ifdef ELEMENT
#include "skinny/tensor.cuh"
#else
#include "skinny/operands.cuh"
#include "skinny/multiply.cuh"
#endif
#include "skinny/slices.cuh"
#include "prelude/run_if.h"

#define ARGUMENTS                                                                              \
    isize m, isize n, isize k, REAL alpha_re, REAL alpha_im, const operand *RESTRICT a_first,     \
        isize offset_a, isize lda, const operand *RESTRICT b_first, isize offset_b, isize ldb,    \
        REAL beta_re, REAL beta_im, output *RESTRICT c_first, isize offset_c,                    \
        isize ldc RUN_IF_ARGUMENT, unsigned char *workspace

/* The roles that A, B and C have.  An empty sum stays empty whatever alpha is, and alpha = 0 reads
 * no operand. */
#define PRODUCT_OF_ARGUMENTS(p)                                                                \
    elem alpha = elem_scalar(alpha_re, alpha_im);                                              \
    if (k == 0)                                                                                \
        alpha = elem_zero();                                                                   \
    if (elem_is_zero(alpha))                                                                   \
        k = 0;                                                                                 \
    const operand *const a = a_first + offset_a, *const b = b_first + offset_b;                   \
    const product p = {SHORT_M ? n : m, SHORT_M ? m : n, k,                                    \
                       SHORT_M ? b : a, SHORT_M ? ldb : lda,                                   \
                       SHORT_M ? a : b, SHORT_M ? lda : ldb,                                   \
                       c_first + offset_c, ldc, alpha, elem_scalar(beta_re, beta_im)};

KERNEL __launch_bounds__(THREADS, MIN_BLOCKS) void gemm(ARGUMENTS)
{
#ifdef EARLY
    WAIT_FOR_PREVIOUS();
#endif
    RETURN_UNLESS_WANTED
    PRODUCT_OF_ARGUMENTS(p)
    elem *const shared = shared_memory();
    const unsigned int tiles = tiles_of(p);
    const place at = place_of(p, BLOCK_ID % tiles);
    const range mine = range_of(p.k, BLOCK_ID / tiles, BLOCK_COUNT / tiles);
    elem sum[SUMS];
    UNROLL for (int i = 0; i < SUMS; ++i) sum[i] = elem_zero();
    /* The same way for all threads of a block: barriers are met by all. */
    if (is_wide(p, at))
        multiply_range<true>(sum, p, at, mine, shared);
    else
        multiply_range<false>(sum, p, at, mine, shared);
    LET_NEXT_BEGIN();
    add_lanes(shared);
    if (BLOCK_COUNT == tiles)
        store_tile(p, at, shared);
    else
        leave_tile(shared, workspace);
}

KERNEL __launch_bounds__(SECOND_THREADS) void add_parts_of_slices(ARGUMENTS)
{
    WAIT_FOR_PREVIOUS();
    RETURN_UNLESS_WANTED
    PRODUCT_OF_ARGUMENTS(p)
    add_slices(p, workspace);
}
