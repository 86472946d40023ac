/* Slices of k: what blocks leave, and the second kernel, which adds it up.  A part of kernel.cuh.
 *
 *     blocks       | slice 0: tiles 0, 1, ... T - 1 | slice 1: tiles 0, 1, ... T - 1 | ...
 *     workspace    | words, not used | part of block 0 | part of block 1 | ...
 *
 * There may be hundreds of slices of a tile with one element: as many threads as bring eight
 * slices to each share an element, so that reads of the L2 do not wait for one another, and add up
 * through shared memory.  The order of a sum depends on the number of slices alone.
 */

/* Where parts begin in the workspace, as the package lays it out. */
#define PARTS_AT 16384

/* The first element of a block's part. */
HELPER elem *part_of(unsigned char *workspace, isize block)
{
    return (elem *)(workspace + PARTS_AT) + block * PART_ELEMENTS;
}

HELPER void leave_tile(const elem *tile, unsigned char *workspace)
{
    elem *const to = part_of(workspace, BLOCK_ID);
    ROLLED for (int e = THREAD_ID; e < TILE; e += THREADS) to[e] = tile[e];
}

/* Threads that share an element: a power of two, at most a warp. */
HELPER int lanes_for(unsigned int slices)
{
    int lanes = 1;
    while (lanes < 32 && lanes * 8 < slices) lanes *= 2;
    return lanes;
}

/* Every `lanes`-th slice of an element, from the lane's own on. */
HELPER elem sum_of_lane(const elem *from, unsigned int lane, int lanes, unsigned int slices,
                        isize apart)
{
    elem total = elem_zero();
    _Pragma("unroll 8") for (unsigned int slice = lane; slice < slices; slice += lanes)
        total = elem_add(total, from[slice * apart]);
    return total;
}

/* The second kernel has SECOND_BLOCKS blocks for each block of the first; those for a tile take its
 * elements alternately. */
HELPER void add_slices(product p, unsigned char *workspace)
{
    const unsigned int tiles = tiles_of(p), blocks = BLOCK_COUNT / tiles;
    const unsigned int slices = blocks / SECOND_BLOCKS;
    const unsigned int tile = BLOCK_ID % tiles, number = BLOCK_ID / tiles;
    const place at = place_of(p, tile);
    const int lanes = lanes_for(slices), elements = SECOND_THREADS / lanes;
    const int lane = THREAD_ID / elements, mine = THREAD_ID % elements;
    elem *const shared = second_shared_memory();
    /* As many rounds for all threads of a block: barriers are met by all. */
    ROLLED for (int first = number * elements; first < TILE; first += blocks * elements) {
        const int e = first + mine;
        elem total = elem_zero();
        if (e < TILE)
            total = sum_of_lane(part_of(workspace, tile) + e, lane, lanes, slices,
                                (isize)tiles * PART_ELEMENTS);
        shared[THREAD_ID] = total;
        BARRIER();
        ROLLED for (int half = lanes / 2; half > 0; half /= 2) {
            if (lane < half)
                shared[THREAD_ID] =
                    elem_add(shared[THREAD_ID], shared[THREAD_ID + half * elements]);
            BARRIER();
        }
        if (lane == 0 && e < TILE)
            store(p, at, e, shared[THREAD_ID]);
        BARRIER();
    }
}
