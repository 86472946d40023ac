/* Tensor cores that multiply doubles (mma.sync, DMMA).  kernel.cuh, which comes next, says
 * what a thread block does all in all.
 *
 * A warp computes WARP_M x WARP_N of C by instructions of MMA_M x 8 x MMA_K.  In each, lane
 * 4 g + t (g below 8, t below 4) holds
 *
 *     of A: rows g and g + 8, steps t, t + 4, ... along k      of B: column g, the same steps
 *     of C: rows g and g + 8, columns 2 t and 2 t + 1
 *
 * An instruction takes its elements of A from consecutive registers, and so those of B; what
 * lies otherwise has to be moved first.  Which rows, columns and steps of the matrices these
 * are is free, as long as A, B and C agree; they are dealt so that what one read of shared
 * memory brings is consecutive:
 *
 *     A, doubles: rows 2 i and 2 i + 1 of 16 in the place of g and g + 8
 *     A, complex: the real and the imaginary part of one row; of the imaginary part of B the
 *                 pair times i, (-im, re), is multiplied, so that both parts of C come together
 *     B, doubles: one element, or two columns
 *     B, complex: both parts; instructions of 4 steps take them one by one
 *
 * Shared memory: an operand keeps the order of its own memory, so that all copies are of 16
 * bytes, whatever op is; with SCALAR they are of single elements, wherever these begin.  Rows are
 * as long as the block's side, or a whole line of 128 bytes, and the units of a line are in another
 * order from row to row.  Doubles, u being the unit that lies 32 u bytes on in the matrix:
 *
 *     along m or n: a row for each step        along k: planes of DEEP steps along k, a row for
 *     along k                                  each of the block's side
 *     +----+----+----+----+----+-- --+         +----+----+----+----+          +----
 *     | 0  | 1  | 2  | 3  | 4  |     |  k      | 0  | 1  | 2  | 3  | row 0    | 4
 *     +----+----+----+----+----+-- --+         +----+----+----+----+          +----
 *     | 1  | 0  | 3  | 2  | 5  |     |  k+1    | 1  | 0  | 3  | 2  | row 1    | 5
 *     +----+----+----+----+----+-- --+         +----+----+----+----+          +----
 *     | 2  | 3  | 0  | 1  | 6  |     |  k+2    | 2  | 3  | 0  | 1  | row 2    | 6
 *                                              plane 0                        plane 1
 *
 * Complex elements have units of 64 bytes along k, two in a line.  Planes of fewer steps (SCALAR,
 * layers of warps) have rows of half a line, two of which are swizzled alike.  Lanes that read at
 * once, two g by four t with 16 bytes, four by four with 8, use all 32 banks so.  Copies need whole
 * lines: of an asynchronous copy's bytes a multiprocessor writes at once those that lie in one line
 * of the caches and in one line of shared memory (docs/dgemm.md).  With TMA the copy engine brings
 * tiles, and swizzles their lines itself (lines.cuh).
 *
 * Rounding: each product and sum is an IEEE fused multiply-add, and an element of C (of its
 * real, of its imaginary part) is one chain of them.  Along k the order of the chain is that
 * of the instructions; within one instruction it is the device's.
 */

#define WARPS_M (BLOCK_M / WARP_M)
#define WARPS_N (BLOCK_N / WARP_N)
#define THREADS (32 * WARPS_M * WARPS_N * WARPS_K)

/* A lane's part of C, and how lanes lie on it. */
#define TILE_M (WARP_M / 8)
#define TILE_N (WARP_N / 4)
#define LANES_M 8

/* Reals of an element. */
#define WORDS (ELEM_BYTES / REAL_BYTES)

/* A line of shared memory's banks, and of the caches. */
#define LINE 128

#if TMA
/* The engine counts lines, by eights, by their addresses. */
#define STAGE_ALIGNED (8 * LINE)
#endif

#include "simt_async/words.cuh"

/* Steps along k in fragments. */
#define STEP_K MMA_K

/* The loop's body is one tile, or a warp's part of it; copies start in all its steps before the
 * barrier. */
#define UNROLL_K (BLOCK_K / WARPS_K)
#define STEPS (UNROLL_K / STEP_K)
#define COPY_GROUPS ((STEPS - 1) * INTERLEAVE)

/* Elements between steps along k, or between planes. */
#define PITCH_A BLOCK_M
#define PITCH_B BLOCK_N
#define BYTES_A (BLOCK_K * PITCH_A * ELEM_BYTES)
#define BYTES_B (BLOCK_K * PITCH_B * ELEM_BYTES)

#include "simt_async/ptx.cuh"
#include "mma_f64/ptx.cuh"
#include "simt_async/warps.cuh"
#include "mma_f64/lanes.cuh"
#if TMA
#include "mma_f64/lines.cuh"
#else
#include "mma_f64/tiles.cuh"
#endif
#include "mma_f64/fragments.cuh"
