/* Parallel split-K, for long sums over few tiles.  A part of kernel.cuh.
 *
 * A block multiplies one slice of one tile of C and leaves all of its sums in the workspace.  A
 * reduction kernel adds up the parts of each tile in the order of k, so that the same grid gives the
 * same bits in every run, and stores C.  How many slices there are is the launch's to say: as many
 * as the grid has blocks for each of T tiles.  A block whose tile is one slice stores it itself, and
 * nothing follows.
 *
 *     blocks       | slice 0: tiles 0, 1, ... T - 1 | slice 1: tiles 0, 1, ... T - 1 | ...
 *     workspace    | words, not used | part of block 0 | part of block 1 | ...
 *     a part       | column 0, BLOCK_M elements | column 1 | ... column BLOCK_N - 1 |
 *
 * A part's columns are aligned whatever C's are, so that threads leave and read 16 bytes at once;
 * and who adds up reads and writes down columns, neighbours side by side.
 */

#if PARALLEL_SPLIT_K

/* The first element of a block's part. */
HELPER elem *part_at(unsigned char *workspace, isize block)
{
    return (elem *)(workspace + PARTS_AT + block * PART_BYTES);
}

/* Leave this thread's sums. */
HELPER void leave_sums(const elem *sum, unsigned char *workspace)
{
    elem *const to = part_at(workspace, BLOCK_ID) + thread_row() + thread_column() * BLOCK_M;
    UNROLL for (int j = 0; j < TILE_N; ++j)
        UNROLL for (int i = 0; i < TILE_M / CHUNK; ++i) {
            elem v[CHUNK];
            UNROLL for (int e = 0; e < CHUNK; ++e) {
                const elem found = sum[j * TILE_M + i * CHUNK + e];
                v[e] = SUMS_CONJUGATE ? elem_conj(found) : found;
            }
            *(chunk *)(to + column_of(j) * BLOCK_M + i * LANES_M * CHUNK) = chunk_of(v);
        }
}

/* One slice of one tile. */
HELPER void compute_slice(const matrices *x, unsigned char *workspace)
{
    const unsigned int tiles = tiles_of_all(x);
    const place p = place_in(x->m, x->n, BLOCK_ID % tiles);
    const steps mine = steps_of(x->k, BLOCK_ID / tiles, GRID_BLOCKS / tiles);
    const shared_at at = shared_memory();
    elem sum[TILE_M * TILE_N];
    multiply_steps(sum, operand_a(x, p.i), operand_b(x, p.j), mine, at);
    if (GRID_BLOCKS == tiles) {
        store_own_sums(result_in(x, p), sum, at);
    } else {
        LET_NEXT_BEGIN();
        leave_sums(sum, workspace);
    }
}

/* The second kernel has SECOND_BLOCKS blocks of SECOND_THREADS threads for each block of the first.
 * Those for a tile add up and store its chunks, as many each. */
HELPER void add_slices(const matrices *x, unsigned char *workspace)
{
    const unsigned int tiles = tiles_of_all(x), blocks = GRID_BLOCKS / tiles;
    const unsigned int slices = blocks / SECOND_BLOCKS;
    const unsigned int tile = BLOCK_ID % tiles, number = BLOCK_ID / tiles;
    const place p = place_in(x->m, x->n, tile);
    const int rows = least(x->m - p.i.at, BLOCK_M), columns = least(x->n - p.j.at, BLOCK_N);
    elem *const c = x->c + x->offset_c + p.i.at + p.j.at * x->ldc;
    const int all = BLOCK_M * BLOCK_N / CHUNK;
    for (int at = number * SECOND_THREADS + THREAD_ID; at < all; at += blocks * SECOND_THREADS) {
        const int row = at % (BLOCK_M / CHUNK) * CHUNK, column = at / (BLOCK_M / CHUNK);
        if (row + CHUNK <= p.i.before || row >= rows || column < p.j.before || column >= columns)
            continue;
        const chunk *from = (const chunk *)part_at(workspace, tile) + at;
        elem total[CHUNK];
        const chunk first = *from;
        UNROLL for (int e = 0; e < CHUNK; ++e) total[e] = element_of(first, e);
        /* Eight reads are on their way at once: parts come from the L2. */
        _Pragma("unroll 8") for (unsigned int slice = 1; slice < slices; ++slice)
        {
            from += tiles * (PART_BYTES / 16);
            const chunk next = *from;
            UNROLL for (int e = 0; e < CHUNK; ++e)
                total[e] = elem_add(total[e], element_of(next, e));
        }
        elem *const to = c + row + column * x->ldc;
        UNROLL for (int e = 0; e < CHUNK; ++e) {
            if (row + e < p.i.before || row + e >= rows)
                continue;
            const elem v = elem_scale(x->alpha, total[e]);
            to[e] = elem_is_zero(x->beta) ? v : elem_add(v, elem_scale(x->beta, to[e]));
        }
    }
}

#endif
