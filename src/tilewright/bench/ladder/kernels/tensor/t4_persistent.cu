/* Rung 4, persistent: blocks stay, and go from one block of C to the next.
 *
 * There are as many thread blocks as multiprocessors.  Block b computes the blocks of C with the
 * numbers b, b + BLOCKS, b + 2 BLOCKS ...  The ring goes on across them: while consumers write one
 * block of C, the producer has already brought the next one's first tiles.
 *
 *     rung 3       | fill | multiply ........ | write | fill | multiply ........ | write |
 *
 *     here         | fill | multiply ........ | write | multiply ........ | write |
 *        producer         | bring, bring, bring ... next ... bring, bring |
 *
 * Both sides count the same steps, so the ring's place is all that they have to agree upon.
 *
 * What it costs: the last round.  Where the blocks of C are no multiple of the multiprocessors,
 * some have nothing to do at the end, and nobody hands them work.
 */
#include "kernels/tensor/ring.h"
#include "kernels/tensor/alone.h"
#include "kernels/tensor/walk.h"

/* How many blocks C has. */
HELPER unsigned int blocks_of(isize m, isize n)
{
    const unsigned int rows = (unsigned int)((m + BLOCK_M - 1) / BLOCK_M);
    return rows * (unsigned int)((n + BLOCK_N - 1) / BLOCK_N);
}

KERNEL __launch_bounds__(THREADS, 1) void gemm(TENSOR_ARGUMENTS)
{
    ring at = {shared_memory(), 0};
    const int group = THREAD_ID / GROUP, steps = steps_in(k);
    const unsigned int count = blocks_of(m, n);
    if (THREAD_ID == 0)
        begin_ring(at.arena, WARPS_OF_CONSUMERS);
    BARRIER();

    isize row, column;
    if (group == CONSUMERS) {
        shrink_to<PRODUCER_REGISTERS>();
        if (THREAD_ID % GROUP == 0)
            for (unsigned int number = BLOCK_ID; number < count; number += gridDim.x) {
                place_of(number, m, n, &row, &column);
                at = produce(at, &map_a, &map_b, steps, row, column);
            }
    } else {
        grow_to<CONSUMER_REGISTERS>();
        for (unsigned int number = BLOCK_ID; number < count; number += gridDim.x) {
            place_of(number, m, n, &row, &column);
            float sum[SUMS];
            clear(sum);
            at = consume(at, group, steps, sum);
            store_sums(c, ldc, m, n, row + 64 * group, column, sum);
        }
    }
}
