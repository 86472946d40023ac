/* Ordinary arithmetic units.  kernel.cuh, which comes next, says what they do all in all.
 *
 * Where a multiprocessor issues one instruction a cycle and has room for one multiply-add
 * a cycle, every other instruction costs a multiply-add.
 *
 * Shared memory: in each stage k is the slow index whatever op is, so that one source
 * multiplies for every op.
 *
 *     stage 0                            stage 1
 *     | A: BLOCK_K rows of PITCH_A | B: BLOCK_K rows of PITCH_B | A ...
 *
 * How an operand gets there depends on which index its memory runs along:
 *
 *     along m or n: 16 bytes a copy      along k: one element a copy, transposed by its
 *     +----+----+----+----+              address.  Rows are 4 (or 8) elements longer than
 *     | 0  | 1  | 2  | 3  |  k           the block's side, so that what a warp writes at
 *     +----+----+----+----+              once, RUN_BYTES of k by some rows, lies in
 *     | 4  | 5  | 6  | 7  |  k + 1       different banks (tiles.cuh).
 *     +----+----+----+----+
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
 */

#define LANES_N (32 / LANES_M)
#define WARPS_M (BLOCK_M / (LANES_M * TILE_M))
#define WARPS_N (BLOCK_N / (LANES_N * TILE_N))
#define THREADS (32 * WARPS_M * WARPS_N * WARPS_K)

/* Fragments are of one k, read one step ahead. */
#define STEP_K 1
#define STEPS UNROLL_K
#define INTERLEAVE 1
#define DOUBLE_BUFFERED 1

#include "simt_async/words.cuh"
#include "simt_async/ptx.cuh"
#include "simt_async/warps.cuh"
#include "simt_async/tiles.cuh"
#include "simt_async/fragments.cuh"
