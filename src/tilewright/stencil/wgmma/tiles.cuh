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

/* Which tile of which product of a batch is next, one product's behind another's, and how far on the
 * one after it is: divided once, since copies of small products wait for a division a tile. */
struct way {
    unsigned int tile, product;
    unsigned int tiles_on, products_on;
};

/* Tiles of a cluster's size down and across C. */
HELPER isize tiles_down(isize m) { return (m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M); }
HELPER isize tiles_across(isize n) { return (n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N); }

#include "asynchronous/triangle.cuh"

HELPER tiles tiles_of(isize m, isize n)
{
    tiles all;
    all.first = BLOCK_ID / CLUSTER_BLOCKS;
    all.count = TRIANGLE ? tiles_of_triangle(n) : (unsigned int)(tiles_down(m) * tiles_across(n));
    all.stride = gridDim.x / CLUSTER_BLOCKS;
    return all;
}

/* The way of who takes every `turns`-th of a cluster's tiles, from number `turn` on. */
HELPER way way_of(tiles all, unsigned int turn, unsigned int turns)
{
    way at = {all.first + turn * all.stride, 0, 0, 0};
    if (BATCHED == 2) {
        const unsigned int first = at.tile, on = turns * all.stride;
        at.tile = first % all.count;
        at.product = first / all.count;
        at.tiles_on = on % all.count;
        at.products_on = on / all.count;
    }
    return at;
}

/* Whether there is a tile, where a block goes through those of so many products. */
HELPER bool is_there(way at, tiles all, unsigned int products)
{
    return BATCHED == 2 ? at.product < products : at.tile < all.count;
}

HELPER void go_on(way *at, tiles all, unsigned int turns)
{
    if (BATCHED != 2) {
        at->tile += turns * all.stride;
        return;
    }
    at->tile += at->tiles_on;
    at->product += at->products_on;
    if (at->tile >= all.count) {
        at->tile -= all.count;
        ++at->product;
    }
}

/* The tile of the block with a rank in the cluster.  It may lie outside C: its block still
 * brings what others need. */
HELPER tile tile_at(isize m, isize n, unsigned int number, unsigned int rank, bool lower = true)
{
    tile at = {0, 0};
    /* Clusters count as blocks here.  Small products of a batch have one tile: no division. */
    if (TRIANGLE)
        at = tile_of_triangle(n, number, lower);
    else if (BATCHED != 2 || number > 0)
        place_of_block(number, tiles_down(m) * BLOCK_M, tiles_across(n) * BLOCK_N, &at.i0,
                       &at.j0);
    at.i0 = at.i0 * CLUSTER_M + rank % CLUSTER_M * BLOCK_M;
    at.j0 = at.j0 * CLUSTER_N + rank / CLUSTER_M * BLOCK_N;
    return at;
}
