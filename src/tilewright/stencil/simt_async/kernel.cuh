/* GEMM for CUDA devices that copy to shared memory by themselves (compute capability 8.0
 * and later): a thread block's way through a tile of C, whatever multiplies.
 *
 *     C <- alpha op(A) op(B) + beta C      op(A) m x k, op(B) k x n, C m x n
 *
 * A thread block computes BLOCK_M x BLOCK_N elements of C.  It walks along k by tiles of
 * BLOCK_K; asynchronous copies bring the tiles of later steps to shared memory, a ring of
 * STAGES stages, while this step's are multiplied.  All that can be is an immediate offset
 * here, and nothing is checked within the loop.
 *
 * A file of its own comes first (simt.cuh for FMA units, mma_f64/mma.cuh for tensor cores): how
 * tiles lie in shared memory, and how a thread multiplies them.  It defines
 *
 *     THREADS, TILE_M, TILE_N, LANES_M, STEP_K, STEPS, INTERLEAVE, DOUBLE_BUFFERED, COPY_GROUPS
 *     BYTES_A, BYTES_B, ADVANCE_A, ADVANCE_B     bytes of a tile, and of a trip's part of it
 *     HOW_COPIED, RESTS_END, layout, place_in_tile     how threads copy tiles; not with TMA
 *     fragments, read_fragments, multiply        what a thread reads and does with it
 *     first_fragment_a, first_fragment_b, thread_row, thread_column, column_of
 *     RUN                                        columns of C that a thread has side by side
 *
 * A step of the pipeline, for each l of STEPS: read the fragments of l + 1 (of l, where
 * DOUBLE_BUFFERED is 0), start a few copies, multiply the fragments of l; a step interleaves these
 * in INTERLEAVE groups.  Before the last l the block waits for the next stage, once: the one
 * barrier of a tile.
 *
 *     l = 0 .. STEPS - 2    read l + 1, copy a share of tile t + STAGES - 1, multiply l
 *     l = STEPS - 1         wait, barrier, read l = 0 of tile t + 1, multiply l
 *
 * Edges: a block that would reach beyond m or n begins earlier (edges.cuh).  Where it cannot,
 * or vectors are not aligned, the same loop runs with copies of single checked elements (zeros
 * for what lies outside).  With SCALAR copies are of single elements, unchecked, so that
 * alignment does not matter; with CLAMPED a block longer than the matrix copies, of whole tiles,
 * what lies inside.  A remainder of k is the first tile, so that all others are whole; with
 * RESTS_END it is copied as they are (pipeline.cuh).
 *
 * With TMA (compute capability 9.0) the copy engine brings whole tiles, edges and remainder too, to
 * the same ring, where what multiplies takes operands as they lie; tma.cuh has the loop
 * then.
 *
 * Small results: CLUSTER_K blocks, a cluster, share the steps of one tile of C and add
 * their parts in the order of k through each other's shared memory (compute capability
 * 9.0): the same bits in every run.  So do WARPS_K layers of a block's warps (sliced-K), each of
 * which has a part of every stage (warps.cuh).
 *
 * Long sums over few tiles: with PARALLEL_SPLIT_K k is cut into slices, a block for each of them,
 * and a reduction kernel adds up (parallel_split_k.cuh).
 *
 * Results: each thread stores its own, 16 bytes at once where columns of C are aligned to them.
 * Where they are not, and with STAGED, results pass through shared memory (staged.cuh).
 *
 * The end of the grid: PERSISTENT blocks take tile after tile, of a batch those of all products;
 * with STREAM_K they share what would not fill the device evenly (persistent.cuh).
 *
 * Macros given with the source: a stencil's parameters in capitals, and TRANS_A, CONJ_A,
 * TRANS_B, CONJ_B (0 or 1).  A dialect and a prelude come before all.
 */

#include "prelude/raster.h"
#include "simt_async/edges.cuh"
#include "simt_async/ring.cuh"
#include "simt_async/steps.cuh"
#include "simt_async/matrices.cuh"
#include "simt_async/store.cuh"
#if TMA
#include "simt_async/tma.cuh"
#else
#include "simt_async/copies.cuh"
#include "simt_async/pipeline.cuh"
#endif
#include "prelude/run_if.h"
#include "simt_async/persistent.cuh"

/* Multiply some steps of one tile of C. */
HELPER void multiply_steps(elem *sum, operand a, operand b, steps mine, shared_at tiles)
{
    UNROLL for (int i = 0; i < TILE_M * TILE_N; ++i) sum[i] = elem_zero();
    /* The same way for all threads of a block: barriers are met by all. */
    if (mine.count > 0) {
        if (a.wide && b.wide)
            accumulate<true>(sum, a, b, mine, tiles);
        else
            accumulate<false>(sum, a, b, mine, tiles);
    }
}

#include "simt_async/parallel_split_k.cuh"

/* One block for each tile of C, or CLUSTER_K of them. */
HELPER void compute_tile(const matrices *x)
{
    const place p = place_in(x->m, x->n, BLOCK_ID / CLUSTER_K);
    const operand a = operand_a(x, p.i);
    const operand b = operand_b(x, p.j);
    const steps mine = steps_of(x->k, CLUSTER_K > 1 ? cluster_rank() : 0, CLUSTER_K);
    const shared_at tiles = shared_memory();

    elem sum[TILE_M * TILE_N];
    multiply_steps(sum, a, b, mine, tiles);
    const result c = result_in(x, p);
    if (PARTS_OF_TILE > 1)
        store_sums_of_parts(c, sum, tiles);
    else
        store_own_sums(c, sum, tiles);
}

#define ARGUMENTS                                                                              \
    isize m, isize n, isize k, REAL alpha_re, REAL alpha_im, const elem *RESTRICT a_first,     \
        isize offset_a, isize lda, const elem *RESTRICT b_first, isize offset_b, isize ldb,    \
        REAL beta_re, REAL beta_im, elem *RESTRICT c_first, isize offset_c,                    \
        isize ldc MAP_ARGUMENTS RUN_IF_ARGUMENT WORKSPACE_ARGUMENT

/* An empty sum stays empty whatever alpha is, and alpha = 0 reads no operand. */
#define MATRICES_OF_ARGUMENTS(x)                                                               \
    elem alpha = elem_scalar(alpha_re, alpha_im);                                              \
    if (k == 0)                                                                                \
        alpha = elem_zero();                                                                   \
    if (elem_is_zero(alpha))                                                                   \
        k = 0;                                                                                 \
    const matrices x = {m, n, k, a_first, offset_a, lda, b_first, offset_b, ldb,               \
                        c_first, offset_c, ldc, alpha, elem_scalar(beta_re, beta_im) MAPS      \
                            STEPS_OF_BATCH};

KERNEL CLUSTER __launch_bounds__(THREADS, MIN_BLOCKS) void gemm(ARGUMENTS)
{
    WAIT_FOR_PREVIOUS();
    RETURN_UNLESS_WANTED
    MATRICES_OF_ARGUMENTS(x)
#if PARALLEL_SPLIT_K
    compute_slice(&x, WORKSPACE);
#else
    if (PERSISTENT)
        compute_tiles(&x, shared_memory(), WORKSPACE);
    else
        compute_tile(&x);
#endif
}

#if PARALLEL_SPLIT_K
KERNEL __launch_bounds__(SECOND_THREADS) void add_parts_of_slices(ARGUMENTS)
{
    WAIT_FOR_PREVIOUS();
    RETURN_UNLESS_WANTED
    MATRICES_OF_ARGUMENTS(x)
    add_slices(&x, WORKSPACE);
}
#endif
