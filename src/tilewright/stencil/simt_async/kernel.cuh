/* GEMM for CUDA devices that copy to shared memory by themselves (compute capability 8.0
 * and later), on the ordinary arithmetic units.
 *
 *     C <- alpha op(A) op(B) + beta C      op(A) m x k, op(B) k x n, C m x n
 *
 * A thread block computes BLOCK_M x BLOCK_N elements of C.  It walks along k by tiles of
 * BLOCK_K; asynchronous copies bring the tiles of later steps to shared memory while this
 * step's are multiplied.  Where a multiprocessor issues one instruction a cycle and has
 * room for one multiply-add a cycle, every other instruction costs a multiply-add: all
 * that can be is an immediate offset here, and nothing is checked within the loop.
 *
 * Shared memory: a ring of STAGES stages, k the slow index whatever op is, so that one
 * text multiplies for every op.
 *
 *     stage 0                            stage 1
 *     | A: BLOCK_K rows of PITCH_A | B: BLOCK_K rows of PITCH_B | A ...
 *
 * How an operand gets there depends on which index its memory runs along:
 *
 *     along m or n: 16 bytes a copy      along k: one element a copy, transposed by its
 *     +----+----+----+----+              address; or 16 bytes to registers (K_VECTORS),
 *     | 0  | 1  | 2  | 3  |  k           written one by one half a step later.  Rows are 4
 *     +----+----+----+----+              elements longer than the block's side, so that
 *     | 4  | 5  | 6  | 7  |  k + 1       what a warp writes at once, 32 bytes of k by some
 *     +----+----+----+----+              rows, lies in different banks.
 *
 * Threads: a warp's lanes form LANES_M x LANES_N, numbered so that lanes 2i and 2i + 1
 * read the same of B, and lanes i and i + 2 (i % 4 < 2) the same of A: then two quarters
 * of a warp share one pass over the banks when all read 16 bytes (LANES_M = 8):
 *
 *      0  2 | 16 18         m runs down, n right; a thread's TILE_M rows are chunks of
 *      1  3 | 17 19         16 bytes, LANES_M chunks apart, and its columns alike
 *      4  6 | 20 22
 *      5  7 | 21 23
 *      8 10 | 24 26
 *      9 11 | 25 27
 *     12 14 | 28 30
 *     13 15 | 29 31
 *
 * A step of the pipeline, for each l of BLOCK_K: read the fragments of l + 1, start a few
 * copies, multiply the fragments of l.  Before the last l the block waits for the next
 * stage, once: the one barrier of the step.
 *
 *     l = 0 .. BLOCK_K - 2    read l + 1, copy a share of tile t + STAGES - 1, multiply l
 *     l = BLOCK_K - 1         wait, barrier, read l = 0 of tile t + 1, multiply l
 *
 * Edges: where a block reaches beyond m or n, or vectors are not aligned, the same loop
 * runs with copies of single checked elements (zeros for what lies outside).  With NARROW
 * inner blocks copy single elements unchecked, so that alignment does not matter.  A
 * remainder of k is the first tile, so that all others are whole.
 *
 * Small results: SPLIT_K blocks, a cluster, share the steps of one tile of C and add
 * their parts in the order of k through each other's shared memory (compute capability
 * 9.0): the same bits in every run.
 *
 * The end of the grid: PERSISTENT blocks stay and take tile after tile; with STREAM_K they
 * share what would not fill the device evenly (persistent.cuh).
 *
 * Macros given with the text: the parameters of parameters.py in capitals, and TRANS_A,
 * CONJ_A, TRANS_B, CONJ_B (0 or 1).  A dialect and a prelude come first.
 */

#define LANES_N (32 / LANES_M)
#define WARPS_M (BLOCK_M / (LANES_M * TILE_M))
#define WARPS_N (BLOCK_N / (LANES_N * TILE_N))
#define THREADS (32 * WARPS_M * WARPS_N)

/* Whether an operand's memory is contiguous along k. */
#define K_FAST_A (TRANS_A)
#define K_FAST_B (!TRANS_B)

/* The widest access, 16 bytes, in elements. */
#define CHUNK (16 / ELEM_BYTES)

#include "simt_async/ptx.cuh"
#if PERSISTENT
/* Not remembered from one tile to the next. */
#undef THREAD_ID
#define THREAD_ID thread_id()
#endif
#include "simt_async/copies.cuh"
#include "simt_async/fragments.cuh"
#include "simt_async/store.cuh"
#include "simt_async/pipeline.cuh"
#include "prelude/raster.h"
#include "simt_async/persistent.cuh"

/* One block for each tile of C, or SPLIT_K of them. */
HELPER void compute_tile(const matrices *x)
{
    isize i0, j0;
    place_of_block(BLOCK_ID / SPLIT_K, x->m, x->n, &i0, &j0);
    const operand a = operand_at(x->a + x->offset_a, x->lda, i0, x->m, x->k, BLOCK_M, K_FAST_A);
    const operand b = operand_at(x->b + x->offset_b, x->ldb, j0, x->n, x->k, BLOCK_N, K_FAST_B);
    const steps mine = steps_of(x->k, SPLIT_K > 1 ? cluster_rank() : 0);
    const shared_at tiles = shared_memory();

    elem sum[TILE_M * TILE_N];
    UNROLL for (int i = 0; i < TILE_M * TILE_N; ++i) sum[i] = elem_zero();
    /* The same way for all threads of a block: barriers are met by all. */
    if (mine.count > 0) {
        if (a.wide && b.wide)
            accumulate<true>(sum, a, b, mine, tiles);
        else
            accumulate<false>(sum, a, b, mine, tiles);
    }
    const result c = result_in(x, i0, j0);
    if (SPLIT_K > 1)
        store_sums_of_cluster(c, sum, tiles);
    else
        store_own_sums(c, sum);
}

KERNEL CLUSTER __launch_bounds__(THREADS, RESIDENT) void gemm(
    isize m, isize n, isize k,
    REAL alpha_re, REAL alpha_im, const elem *RESTRICT a_first, isize offset_a, isize lda,
    const elem *RESTRICT b_first, isize offset_b, isize ldb,
    REAL beta_re, REAL beta_im, elem *RESTRICT c_first, isize offset_c, isize ldc
    WORKSPACE_ARGUMENT)
{
    /* An empty sum stays empty whatever alpha is, and alpha = 0 reads no operand. */
    elem alpha = elem_scalar(alpha_re, alpha_im);
    if (k == 0)
        alpha = elem_zero();
    if (elem_is_zero(alpha))
        k = 0;
    const matrices x = {m, n, k, a_first, offset_a, lda, b_first, offset_b, ldb,
                        c_first, offset_c, ldc, alpha, elem_scalar(beta_re, beta_im)};
    if (PERSISTENT)
        compute_tiles(&x, shared_memory(), WORKSPACE);
    else
        compute_tile(&x);
}
