/* Which tiles of C a cluster computes, and in which order.  A part of kernel.cuh. */

#include "prelude/raster.h"

/* Numbers of the tiles of a cluster's size; a cluster takes every stride-th. */
struct tiles {
    unsigned int first, count, stride;
};

/* A block's first row and column of C. */
struct tile {
    isize i0, j0;
};

/* Tiles of a cluster's size down and across C. */
HELPER isize tiles_down(isize m) { return (m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M); }
HELPER isize tiles_across(isize n) { return (n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N); }

HELPER tiles tiles_of(isize m, isize n)
{
    tiles all;
    all.first = BLOCK_ID / CLUSTER_BLOCKS;
    all.count = (unsigned int)(tiles_down(m) * tiles_across(n));
    all.stride = gridDim.x / CLUSTER_BLOCKS;
    return all;
}

/* The tile of the block with a rank in the cluster.  It may lie outside C: its block still
 * brings what others need. */
HELPER tile tile_at(isize m, isize n, unsigned int number, unsigned int rank)
{
    tile at;
    /* Clusters count as blocks here. */
    place_of_block(number, tiles_down(m) * BLOCK_M, tiles_across(n) * BLOCK_N, &at.i0, &at.j0);
    at.i0 = at.i0 * CLUSTER_M + rank % CLUSTER_M * BLOCK_M;
    at.j0 = at.j0 * CLUSTER_N + rank / CLUSTER_M * BLOCK_N;
    return at;
}
