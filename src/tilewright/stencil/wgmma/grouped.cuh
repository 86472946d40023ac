/* Products of sizes of their own in one launch, as prelude/grouped.h has it: a block computes one
 * tile of the problem that is its place in z, as kernel.cuh's do, and goes.  Persistent ones, which
 * look in the table for the problem of each tile, took a little less for large products and much more
 * for small ones. */

#include "wgmma/parts.cuh"

/* `Table` of stencil/table.py: tensor maps, if any, then rows of 16 bytes. */
#if TMA
struct problem {
    output *c;
    int m, n;
    isize ldc;
    int k, tiles;
    short map_a, map_b; /* which maps */
    int stage_bytes;    /* of boxes of these maps, whose operands may be longer than m and n */
    int i0, j0;         /* where in the maps the operands begin */
};
struct group {
    tensor_map maps[MAPS];
    problem of[PROBLEMS];
};
#else
struct problem {
    const operand_bits *a;
    int m, n;
    const operand_bits *b;
    int k, tiles;
    output *c;
    isize ldc, lda, ldb;
};
struct group {
    problem of[PROBLEMS];
};
#endif

KERNEL __launch_bounds__(THREADS, MIN_BLOCKS) void gemm(scalar alpha, scalar beta,
                                                       const GRID_CONSTANT group problems)
{
    const problem *const mine = &problems.of[blockIdx.z];
    if (BLOCK_ID >= (unsigned int)mine->tiles)
        return;
    const shared_at arena = shared_memory();
#if TMA
    const operand *const a = &problems.maps[mine->map_a], *const b = &problems.maps[mine->map_b];
    const tile begin = {mine->i0, mine->j0};
    const int stage_bytes = mine->stage_bytes;
#else
    const operand all_a = {mine->a, mine->lda, mine->m, mine->k}, *const a = &all_a;
    const operand all_b = {mine->b, mine->ldb, mine->n, mine->k}, *const b = &all_b;
    const tile begin = {0, 0};
    const int stage_bytes = STAGE_BYTES;
#endif
    if (THREAD_ID == 0) {
#if TMA
        expect_map(a);
        expect_map(b);
#endif
        begin_barriers(arena);
    }
    BARRIER();
    const isize m = mine->m, n = mine->n;
    const unsigned int steps = alpha == 0 ? 0 : (unsigned int)((mine->k + BLOCK_K - 1) / BLOCK_K);
    const tile to = tile_at(m, n, BLOCK_ID, 0);
    ring at = {0, 0};
    if (THREAD_ID / GROUP == CONSUMERS) {
        give_registers();
        const tile from = {to.i0 + begin.i0, to.j0 + begin.j0};
        if (THREAD_ID % GROUP < PRODUCERS)
            bring_tile(a, b, 0, 0, arena, &at, from, 0, steps, stage_bytes);
    } else {
        take_registers();
        const bool aligned =
            (ADDRESS(mine->c) | (unsigned long long)mine->ldc * OUTPUT_BYTES) % 8 == 0;
        const result c = {mine->c, mine->ldc, m, n, alpha, beta, 0, 0, aligned, {}};
        accumulator sum[SUMS_OF_THREAD];
        multiply_tile(sum, arena, &at, 0, steps);
        store_tile(c, to, sum);
    }
}
