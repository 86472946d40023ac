/* Parallel split-K, for long sums over few tiles.  A part of kernel.cuh.
 *
 * A block multiplies one slice of k of one tile of C and leaves its sums in the workspace, promoted
 * but not yet scaled.  A reduction kernel adds up the parts of each tile in an order that depends on
 * their number alone, and stores C.  How many slices there are is the launch's to say: as many as
 * the grid has blocks for each of T tiles.  A block whose tile is one slice stores it itself, and
 * nothing follows.
 *
 *     blocks       | slice 0: tiles 0, 1, ... T - 1 | slice 1: tiles 0, 1, ... T - 1 | ...
 *     workspace    | words, not used | part of block 0 | part of block 1 | ...
 *     a part       | column 0, BLOCK_M sums | column 1 | ... column BLOCK_N - 1 |
 *
 * Of a part only what lies inside C is written and read.
 */

#define GRID_BLOCKS (gridDim.x)

/* Where parts begin: workspaces of all stencils have words before them. */
#define PARTS_AT 16384

#if PARALLEL_SPLIT_K
#define WORKSPACE_ARGUMENT , unsigned char *workspace

/* The first sum of a block's part. */
HELPER accumulator *part_at(unsigned char *workspace, isize block)
{
    return (accumulator *)(workspace + PARTS_AT) + block * (BLOCK_M * BLOCK_N);
}

struct ALIGNED(8) pair_of_sums {
    accumulator e[2];
};

#if ROWS_OF_A
/* Leave this thread's sums: four lanes write two sectors. */
HELPER void leave_sums(isize m, isize n, tile at, const accumulator *sum, unsigned char *workspace)
{
    UNROLL for (int part = 0; part < ROWS; ++part)
        UNROLL for (int eight = 0; eight < BLOCK_N; eight += 8) {
            const int row = row_of(part), column = eight + THREAD_ID % 32 / 4;
            const sums_of_chunk v = turned(sum, part, eight);
            if (at.i0 + row < m && at.j0 + column < n)
                *(sums_of_chunk *)(part_at(workspace, BLOCK_ID) + column * BLOCK_M + row) = v;
        }
}
#else
/* Leave this thread's sums: four lanes write a sector. */
HELPER void leave_sums(isize m, isize n, tile at, const accumulator *sum, unsigned char *workspace)
{
    const int pair = THREAD_ID % 4 * 2;
    UNROLL for (int line = 0; line < LINES; ++line) {
        const int column = column_of(line);
        if (at.j0 + column >= n)
            continue;
        accumulator *const to = part_at(workspace, BLOCK_ID) + column * BLOCK_M + pair;
        UNROLL for (int row = 0; row < BLOCK_M; row += 8)
            if (at.i0 + row + pair < m) {
                const accumulator *const from = pair_of(sum, line, row);
                const pair_of_sums both = {{from[0], from[1]}};
                *(pair_of_sums *)(to + row) = both;
            }
    }
}

#endif

/* Threads that share four sums: a power of two, at most a warp; none adds up more than eight parts
 * otherwise, all of which are on their way at once.  Parts come from the L2. */
HELPER unsigned int lanes_for(unsigned int slices)
{
    unsigned int lanes = 1;
    while (lanes < 32 && lanes * 8 < slices) lanes *= 2;
    return lanes;
}

/* Every `lanes`-th part, from the lane's own on. */
HELPER sums_of_chunk sum_of_lane(const accumulator *from, unsigned int lane, unsigned int lanes,
                                 unsigned int slices, isize apart)
{
    sums_of_chunk total = {};
    _Pragma("unroll 8") for (unsigned int slice = lane; slice < slices; slice += lanes)
    {
        const sums_of_chunk next = *(const sums_of_chunk *)(from + slice * apart);
        UNROLL for (int e = 0; e < 4; ++e) total.e[e] += next.e[e];
    }
    return total;
}

/* Add up what lanes have of the same sums, by halves; those of lane 0 come first. */
HELPER void add_lanes(sums_of_chunk *shared, unsigned int lanes)
{
    BARRIER();
    ROLLED for (unsigned int half = lanes / 2; half > 0; half /= 2) {
        const unsigned int many = SECOND_THREADS / lanes * half;
        if (THREAD_ID < many)
            UNROLL for (int e = 0; e < 4; ++e)
                shared[THREAD_ID].e[e] += shared[THREAD_ID + many].e[e];
        BARRIER();
    }
}

/* The second kernel has SECOND_BLOCKS blocks of SECOND_THREADS threads for each block of the first;
 * those for a tile take its sums by turns, four a thread, and threads side by side store elements
 * side by side. */
HELPER void add_slices(result to, unsigned char *workspace)
{
    const unsigned int tiles = tiles_of(to.m, to.n).count, blocks = GRID_BLOCKS / tiles;
    const unsigned int slices = blocks / SECOND_BLOCKS, number = BLOCK_ID / tiles;
    const unsigned int which = BLOCK_ID % tiles;
    const tile at = tile_at(to.m, to.n, which, 0);
    const unsigned int rows = to.m - at.i0 < BLOCK_M ? (unsigned int)(to.m - at.i0) : BLOCK_M;
    const unsigned int columns = to.n - at.j0 < BLOCK_N ? (unsigned int)(to.n - at.j0) : BLOCK_N;
    const unsigned int down = (rows + 3) / 4, all = down * columns;
    const unsigned int lanes = lanes_for(slices), chunks = SECOND_THREADS / lanes;
    const unsigned int lane = THREAD_ID / chunks;
    const accumulator *const parts = part_at(workspace, which);
    sums_of_chunk *const shared = second_shared_memory();
    /* As many rounds for all threads of a block: barriers are met by all. */
    ROLLED for (unsigned int first = number * chunks; first < all; first += blocks * chunks) {
        const unsigned int mine = first + THREAD_ID % chunks;
        sums_of_chunk total = {};
        if (mine < all)
            total = sum_of_lane(parts + mine / down * BLOCK_M + mine % down * 4, lane, lanes, slices,
                                (isize)tiles * (BLOCK_M * BLOCK_N));
        shared[THREAD_ID] = total;
        add_lanes(shared, lanes);
        ROLLED for (unsigned int e = THREAD_ID; e < chunks * 4; e += SECOND_THREADS) {
            const unsigned int chunk = first + e / 4, row = chunk % down * 4 + e % 4;
            if (chunk < all && row < rows)
                store_element(to, shared[e / 4].e[e % 4], at.i0 + row, at.j0 + chunk / down);
        }
        BARRIER();
    }
}

#else
#define WORKSPACE_ARGUMENT
#endif
