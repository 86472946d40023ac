/* Which tiles of C a cluster computes, and in which order.  A part of kernel.cuh. */

#include "prelude/raster.h"

/* Numbers of the tiles of a cluster's size; a cluster takes every stride-th. */
struct tiles {
    isize m, n; /* all of C in whole tiles, where CLUSTER_M x CLUSTER_N blocks count as one */
    unsigned int first, count, stride;
};

/* A block's first row and column of C. */
struct tile {
    isize i0, j0;
};

HELPER tiles tiles_of(isize m, isize n)
{
    const isize rows = (m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M);
    const isize columns = (n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N);
    tiles all;
    all.m = rows * BLOCK_M;
    all.n = columns * BLOCK_N;
    all.first = BLOCK_ID / CLUSTER_BLOCKS;
    all.count = (unsigned int)(rows * columns);
    all.stride = gridDim.x / CLUSTER_BLOCKS;
    return all;
}

/* The tile of the block with a rank in the cluster.  It may lie outside C: its block still
 * brings what others need. */
HELPER tile tile_at(tiles all, unsigned int number, unsigned int rank)
{
    tile at;
    place_of_block(number, all.m, all.n, &at.i0, &at.j0);
    at.i0 = at.i0 * CLUSTER_M + rank % CLUSTER_M * BLOCK_M;
    at.j0 = at.j0 * CLUSTER_N + rank / CLUSTER_M * BLOCK_N;
    return at;
}
