/* Rung 5, multicast: two blocks of a cluster share the tile of B, and each brings half of it.
 *
 * Blocks 0 and 1 of a cluster run on neighbouring multiprocessors.  Theirs are blocks of C one
 * above the other, which need different rows of A and the same tile of B:
 *
 *                         +---------- 256 ----------+
 *                  64 k   |  half 0   |   half 1    |  B: block 0 brings half 0, block 1 half 1,
 *                         +-------------------------+     and the copy engine writes each half
 *            +----+       +-------------------------+     into both blocks' shared memory
 *     block 0| A0 |  128  |                         |
 *            +----+       +-------------------------+
 *     block 1| A1 |  128  |                         |
 *            +----+       +-------------------------+
 *
 * The L2 cache is asked for 128 + 128 rows a block instead of 128 + 256: a third less.
 *
 * A block's stage is full when its own A, its own half of B and the other's half are there: its
 * barrier counts them all, whoever brought them.  And a stage may be refilled only when the warps
 * of both blocks have done with it, for a copy writes to both.
 *
 * What it costs: the two blocks wait for each other.
 */
#include "kernels/tensor/ring.h"

/* CLUSTER_M, the blocks of a cluster, is 2.  Rows of B that a block brings; the box of map_b. */
#define HALF (BLOCK_N / CLUSTER_M)

/* How many pairs of blocks C has: block rows are counted in twos. */
HELPER unsigned int pairs_of(isize m, isize n)
{
    const unsigned int rows = (unsigned int)((m + CLUSTER_M * BLOCK_M - 1) / (CLUSTER_M * BLOCK_M));
    return rows * (unsigned int)((n + BLOCK_N - 1) / BLOCK_N);
}

/* Pair `number` lies where a block would in a C of half the height. */
HELPER void place_of_pair(unsigned int number, isize m, isize n, unsigned int rank, isize *row,
                          isize *column)
{
    place_of(number, (m + CLUSTER_M - 1) / CLUSTER_M, n, row, column);
    *row = *row * CLUSTER_M + rank * BLOCK_M;
}

/* Start copying our A, and our half of B to both blocks. */
HELPER void bring(ring at, const tensor_map *a, const tensor_map *b, int t, isize row, isize column)
{
    const int half = cluster_rank() * HALF;
    copy_box(a, stage_of(at), full_of(at), (int)row, t * BLOCK_K);
    copy_box_to_all(b, stage_of(at) + TILE_BYTES_A + half * ROW_BYTES, full_of(at),
                    (int)column + half, t * BLOCK_K, 3);
}

/* A warp has done with a stage: both blocks are told, by lanes 0 and 1. */
HELPER void give_back(ring at)
{
    if (THREAD_ID % 32 < CLUSTER_M)
        arrive_at(empty_of(at), THREAD_ID % 32);
}

#include "kernels/tensor/walk.h"

KERNEL CLUSTER_OF(CLUSTER_M) __launch_bounds__(THREADS, 1) void gemm(TENSOR_ARGUMENTS)
{
    ring at = {shared_memory(), 0};
    const int group = THREAD_ID / GROUP, steps = steps_in(k);
    const unsigned int rank = cluster_rank(), count = pairs_of(m, n);
    const unsigned int first = BLOCK_ID / CLUSTER_M, stride = gridDim.x / CLUSTER_M;
    if (THREAD_ID == 0)
        begin_ring(at.arena, CLUSTER_M * WARPS_OF_CONSUMERS);
    cluster_barrier(); /* the other block's barriers have begun too */

    isize row, column;
    if (group == CONSUMERS) {
        shrink_to<PRODUCER_REGISTERS>();
        if (THREAD_ID % GROUP == 0)
            for (unsigned int pair = first; pair < count; pair += stride) {
                place_of_pair(pair, m, n, rank, &row, &column);
                at = produce(at, &map_a, &map_b, steps, row, column);
            }
    } else {
        grow_to<CONSUMER_REGISTERS>();
        for (unsigned int pair = first; pair < count; pair += stride) {
            place_of_pair(pair, m, n, rank, &row, &column);
            float sum[SUMS];
            clear(sum);
            at = consume(at, group, steps, sum);
            store_sums(c, ldc, m, n, row + 64 * group, column, sum);
        }
    }
    cluster_barrier(); /* nobody leaves while the other copies to it or reports to it */
}
