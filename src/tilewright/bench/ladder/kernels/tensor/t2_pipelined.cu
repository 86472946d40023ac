/* Rung 2, pipelined: a ring of stages, each with a barrier that says when it is full.
 *
 *      tile      t - 1       t       t + 1     t + 2          STAGES = 4
 *            +---------+---------+---------+---------+
 *      ring  | refilled| multiply| arriving| arriving|
 *            +---------+---------+---------+---------+
 *
 * A block has two warpgroups now, 128 x 256 elements of C: they read the same tile of B, so that
 * half as many bytes of it come for each product.
 *
 * While the tensor cores multiply tile t, the copy engine brings the next ones.  A stage may be
 * refilled when all eight warps are done with it: multiplies of tile t have just started, so we
 * wait for those of t - 1 and meet at a barrier.
 *
 *     copy engine    | 0 | 1 | 2 | 3 |     | 4 |      | 5 |      | 6 |
 *     tensor cores        | multiply 0 | multiply 1 | multiply 2 | multiply 3 |
 *
 * Barriers count phases: a stage's first filling ends its phase 0, the next one phase 1.  A thread
 * waits for the parity of the phase it needs.
 *
 * What it costs: the threads that multiply also mind the ring.  Whoever starts the copies meets all
 * others at a barrier, at every step.
 */

#define FULL_OF(stage) (arena + STAGES * STAGE_BYTES + 8 * (stage))

HELPER void bring(const tensor_map *a, const tensor_map *b, shared_at arena, int t, isize row,
                  isize column)
{
    const int stage = t % STAGES;
    const shared_at to = arena + stage * STAGE_BYTES;
    expect_bytes(FULL_OF(stage), STAGE_BYTES);
    copy_box(a, to, FULL_OF(stage), (int)row, t * BLOCK_K);
    copy_box(b, to + TILE_BYTES_A, FULL_OF(stage), (int)column, t * BLOCK_K);
}

KERNEL __launch_bounds__(THREADS) void gemm(TENSOR_ARGUMENTS)
{
    const shared_at arena = shared_memory();
    isize row, column;
    place_of(BLOCK_ID, m, n, &row, &column);
    const int group = THREAD_ID / GROUP, steps = steps_in(k);
    if (THREAD_ID == 0) {
        for (int s = 0; s < STAGES; ++s) begin_barrier(FULL_OF(s), 1);
        publish_barriers();
        for (int t = 0; t < STAGES && t < steps; ++t) bring(&map_a, &map_b, arena, t, row, column);
    }
    BARRIER(); /* nobody waits at a barrier that has not begun */

    float sum[SUMS];
    clear(sum);
    ROLLED for (int t = 0; t < steps; ++t) {
        const shared_at stage = arena + t % STAGES * STAGE_BYTES;
        wait_for(FULL_OF(t % STAGES), t / STAGES & 1);
        start_stage(sum, stage + group * 64 * ROW_BYTES, stage + TILE_BYTES_A);
        if (t > 0) {
            wait_for_multiplies<1>(); /* all but tile t's */
            BARRIER();
            if (THREAD_ID == 0 && t - 1 + STAGES < steps)
                bring(&map_a, &map_b, arena, t - 1 + STAGES, row, column);
        }
    }
    wait_for_multiplies<0>();
    store_sums(c, ldc, m, n, row + 64 * group, column, sum);
}
