/* Results on their way to C through shared memory, where a block has room for it.  A part of
 * store.cuh.
 *
 * A thread has pairs of every 8 rows: stored from registers, 32 bytes of eight columns each leave a
 * warp at once.  Through shared memory whole lines leave it: where columns are aligned in a quarter of
 * the accesses, and where they are not only a line's first and last sectors are written in part.
 *
 *     shared memory    | stages | barriers | of warp 0, 2048 bytes | of warp 1 | ...
 */

#define PIECE_BYTES 16
#define LINES_OF_WARP 2048

/* Where all warps' lines lie, behind the barriers. */
#define BARRIERS_END (BARRIERS_AT + (2 * STAGES + CONSUMERS) * 8)
#define STAGED_AT ((BARRIERS_END + 127) / 128 * 128)

HELPER int least(isize x, int y) { return x < y ? (int)x : y; }

#if OUTPUT_BYTES == 4
/* Write a result that lies in shared memory. */
HELPER void write_result(result to, output *into, shared_at from)
{
    const output v = read_result(from);
    *into = to.beta == 0 ? v : v + to.beta * *into;
}
#endif

#if ROWS_OF_A
#include "wgmma/staged_rows.cuh"
#else
#include "wgmma/staged_lines.cuh"
#endif
