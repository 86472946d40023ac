/* Rung 1, wgmma: a warpgroup multiplies tiles that the copy engine brought.
 *
 * A block is one warpgroup and has 64 x 256 elements of C, as many as one instruction has.  One
 * thread tells the copy engine (TMA) which boxes of A and B to bring; it computes all addresses by
 * itself.  All threads wait for the bytes, start four instructions, and wait for those.
 *
 *     copy engine    | A0 B0 |           | A1 B1 |           | A2 B2 |
 *     tensor cores            | multiply |        | multiply |        | multiply |
 *                     ------------------- time ------------------->
 *
 * What it costs: nothing overlaps within a block.  Only the other blocks of the multiprocessor
 * (three fit) fill the gaps.
 */

#define FULL_AT STAGE_BYTES /* the barrier lies behind the tiles */

KERNEL __launch_bounds__(THREADS) void gemm(TENSOR_ARGUMENTS)
{
    const shared_at stage = shared_memory(), full = stage + FULL_AT;
    isize row, column;
    place_of(BLOCK_ID, m, n, &row, &column);
    if (THREAD_ID == 0) {
        begin_barrier(full, 1);
        publish_barriers();
    }
    BARRIER();

    float sum[SUMS];
    clear(sum);
    const int steps = steps_in(k);
    ROLLED for (int t = 0; t < steps; ++t) {
        if (THREAD_ID == 0) {
            expect_bytes(full, STAGE_BYTES);
            copy_box(&map_a, stage, full, (int)row, t * BLOCK_K);
            copy_box(&map_b, stage + TILE_BYTES_A, full, (int)column, t * BLOCK_K);
        }
        wait_for(full, t & 1);
        start_stage(sum, stage, stage + TILE_BYTES_A);
        wait_for_multiplies<0>();
        BARRIER(); /* nobody reads the tiles any more: they may be overwritten */
    }
    wait_for_multiplies<0>(); /* compilers do not see that the loop has waited */
    store_sums(c, ldc, m, n, row, column, sum);
}
