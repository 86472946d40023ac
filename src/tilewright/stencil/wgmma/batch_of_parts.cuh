/* Batches of products of parts, each held back by a word of its own.
 *
 *     maps of A, of B:  | product 0: part 0, part 1 ... | `step_parts` parts on: product 1 ...
 *     exponents:        | product 0: of A's and B's sides | `step_exponents` ints on: product 1 ...
 *     run_if:           | product 0: a word | `step_run_if` ints on: product 1 ...
 *
 * Blocks go through the tiles of all products, as kernel.cuh's through one's, and pass over those of
 * products whose word is not `run_value`: all of a cluster see the same ones.
 */

#include "wgmma/parts.cuh"

KERNEL CLUSTER __launch_bounds__(THREADS, MIN_BLOCKS) void gemm(
    isize m, isize n, isize k, scalar alpha, const GRID_CONSTANT tensor_map a,
    const GRID_CONSTANT tensor_map b, scalar beta, output *c, isize ldc, const int *exponents_a,
    const int *exponents_b, const int *run_if, int run_value, int batch, int step_parts,
    isize step_c, int step_exponents, int step_run_if)
{
    const unsigned int rank = cluster_rank();
    const shared_at arena = shared_memory();
    if (THREAD_ID == 0) {
        expect_map(&a);
        expect_map(&b);
        begin_barriers(arena);
    }
    cluster_barrier();
    WAIT_FOR_PREVIOUS();
    const unsigned int steps = alpha == 0 ? 0 : (unsigned int)((k + BLOCK_K - 1) / BLOCK_K);
    const tiles all = tiles_of(m, n);
    const unsigned int end = all.count * (unsigned int)batch;
    ring at = {0, 0};
    if (THREAD_ID / GROUP == CONSUMERS) {
        give_registers();
        if (THREAD_ID % GROUP == 0)
            for (unsigned int number = all.first; number < end; number += all.stride) {
                const int product = (int)(number / all.count);
                if (run_if[product * step_run_if] == run_value)
                    bring_tile(&a, &b, product * step_parts, product * step_parts, arena, &at,
                               tile_at(m, n, number % all.count, rank), 0, steps, bytes_of_stage(m, n));
            }
    } else {
        take_registers();
        const unsigned int turn = PINGPONG ? of_whole_warp(THREAD_ID / GROUP) : 0;
        const unsigned int turns = PINGPONG ? CONSUMERS : 1;
        unsigned int round = turn == 0, next = 0; /* whose turn it is */
        for (unsigned int number = all.first; number < end; number += all.stride) {
            if (run_if[(int)(number / all.count) * step_run_if] != run_value)
                continue;
            const bool is_mine = next == turn;
            next = next + 1 == turns ? 0 : next + 1;
            if (!is_mine) {
                skip(&at, steps);
                continue;
            }
            accumulator sum[SUMS_OF_THREAD];
            if (PINGPONG)
                wait_for(turn_of(arena, turn), round);
            multiply_tile(sum, arena, &at, rank, steps);
            if (PINGPONG && THREAD_ID % 32 == 0)
                arrive(turn_of(arena, (turn + 1) % turns), rank);
            round ^= 1;
            /* Only now: sums leave no registers for it. */
            const isize of = number / all.count;
            output *const to = c + of * step_c;
            const bool aligned = (ADDRESS(to) | (unsigned long long)ldc * OUTPUT_BYTES) % 8 == 0;
            store_tile({to, ldc, m, n, alpha, beta, exponents_a + of * step_exponents,
                        exponents_b + of * step_exponents, aligned, EPILOGUE_OF_ARGUMENTS},
                       tile_at(m, n, number % all.count, rank), sum);
        }
    }
    if (CLUSTER_BLOCKS > 1)
        cluster_barrier(); /* nobody leaves while others copy to it or report to it */
}
