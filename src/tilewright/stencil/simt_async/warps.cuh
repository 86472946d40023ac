/* Which part of a block's work a warp does.  A part of simt.cuh and mma.cuh.
 *
 * WARPS_M x WARPS_N warps lie on a tile of C.  With WARPS_K as many more lie on the same tile, and
 * each of them multiplies its part of the steps of every stage:
 *
 *     steps of a stage  0 1 2 3 | 4 5 6 7      WARPS_K = 2, BLOCK_K = 8
 *     warp along k          0   |    1
 *
 * So a multiprocessor that has one small tile of C still has warps enough to hide latencies, and
 * these have large tiles each.  Their sums are added up through shared memory (store.cuh).
 */

/* Threads on a tile of C, of one part along k. */
#define LAYER (32 * WARPS_M * WARPS_N)

/* A thread's number within its layer, and the layer's. */
#define PLACE_IN_LAYER (WARPS_K > 1 ? THREAD_ID % LAYER : THREAD_ID)
HELPER int layer(void) { return WARPS_K > 1 ? THREAD_ID / LAYER : 0; }
