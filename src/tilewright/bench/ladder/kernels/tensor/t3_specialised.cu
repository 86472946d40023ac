/* Rung 3, warp-specialised: one warpgroup brings tiles, two multiply, and no barrier holds all.
 *
 *      threads 0 ... 127      consumer 0:  rows 0 ... 63 of the block
 *            128 ... 255      consumer 1:  rows 64 ... 127
 *            256 ... 383      producer:    one thread of it starts copies
 *
 *                 +---------------- 256 ----------------+
 *              64 |  consumer 0                         |     both read the same tile of B: for
 *                 +-------------------------------------+     twice the work, the block brings
 *              64 |  consumer 1                         |     only A's other half more
 *                 +-------------------------------------+
 *
 * The producer runs ahead as far as the ring lets it; consumers wait for nothing but bytes.  The
 * two drift apart, and while one waits, the other has multiplies under way.
 *
 * Registers are dealt out equally when a block starts.  The producer needs hardly any and gives its
 * own away (setmaxnreg), so that consumers hold 128 sums and lose none to memory.
 *
 * What it costs: a block ends with writing C, and the tensor cores stand still until the next block
 * has its first tiles.
 */
#include "kernels/tensor/ring.h"
#include "kernels/tensor/alone.h"
#include "kernels/tensor/walk.h"

KERNEL __launch_bounds__(THREADS, 1) void gemm(TENSOR_ARGUMENTS)
{
    const ring start = {shared_memory(), 0};
    isize row, column;
    place_of(BLOCK_ID, m, n, &row, &column);
    const int group = THREAD_ID / GROUP;
    if (THREAD_ID == 0)
        begin_ring(start.arena, WARPS_OF_CONSUMERS);
    BARRIER(); /* the last one that all threads meet */

    if (group == CONSUMERS) {
        shrink_to<PRODUCER_REGISTERS>();
        if (THREAD_ID % GROUP == 0)
            produce(start, &map_a, &map_b, steps_in(k), row, column);
    } else {
        grow_to<CONSUMER_REGISTERS>();
        float sum[SUMS];
        clear(sum);
        consume(start, group, steps_in(k), sum);
        store_sums(c, ldc, m, n, row + 64 * group, column, sum);
    }
}
