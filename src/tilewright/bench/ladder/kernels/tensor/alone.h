/* A block that shares nothing: it brings its own tiles, and only it empties them. */

/* Start copying both tiles of step t. */
HELPER void bring(ring at, const tensor_map *a, const tensor_map *b, int t, isize row, isize column)
{
    copy_box(a, stage_of(at), full_of(at), (int)row, t * BLOCK_K);
    copy_box(b, stage_of(at) + TILE_BYTES_A, full_of(at), (int)column, t * BLOCK_K);
}

/* A warp has done with a stage. */
HELPER void give_back(ring at)
{
    if (THREAD_ID % 32 == 0)
        arrive(empty_of(at));
}
