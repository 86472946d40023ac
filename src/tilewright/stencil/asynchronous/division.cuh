/* Persistent blocks: whole tiles, then the rest shared evenly.  What includes this has
 * STREAM_K, LEAST_STEPS (of a share), and what sizes come to: tiles_of_all and steps_of_tile.
 *
 * A grid of one block for each tile ends in a wave that leaves multiprocessors idle.  Here as
 * many blocks as fit at once divide all steps along k of all tiles of C (Osama et al.,
 * "Stream-K", PPoPP 2023).  Four blocks, seven tiles of six steps, STREAM_K 1: tiles 0 to 3 are
 * computed as ever; tiles 4 to 6, which would leave a block without work, are 18 steps, and each
 * block takes the next 4 or 5 of them, whichever tile they are of:
 *
 *     block   0        1        2        3
 *             [  0   ] [  1   ] [  2   ] [  3   ]       a tile each: all six steps
 *     worker  0        1        2        3              (numbered as said below)
 *             [ 4  ][4 | 5 ][ 5  |6 ][  6  ]            18 steps in shares of 4 or 5
 *
 * A share begins inside a tile, or with one.  Who has a tile's first step owns it: it adds up,
 * in the order of k, the parts that the workers after it leave in device memory (with
 * TREE_REDUCTION some of these have added up others' before), and stores the tile.  So a sum's order
 * depends on sizes, config and grid alone: the same bits in every run.
 * A worker computes the part that it leaves to others before anything else of its share, so that
 * it is there long before its owner, who comes to it at the end of a share, looks for it.
 *
 * The workspace, zero up to the parts before a launch and after it:
 *
 *     | number | a flag for each worker | part of worker 0 | part of worker 1 | ...
 *
 * Progress, whatever order blocks are started in and however few run at once: a block draws its
 * worker's number when it runs, the last numbers first, and waits for higher numbers only: for
 * blocks that were running before it.  So the one that drew first waits for nobody, the second
 * only for what the first leaves, and so on.
 *
 * Steps of shared tiles are counted in 32 bits.  A division of 64 bits is a call, which takes
 * registers from all that lives across it.
 */

#define GRID_BLOCKS (gridDim.x)

/* Shares of a tile, where a text limits them: who owns it adds parts up one after another. */
#ifndef MOST_SHARES
#define MOST_SHARES 0xffffffffu
#endif

/* The workspace, as the package lays it out. */
#define FLAGS_AT 128
#define PARTS_AT 16384

#if STREAM_K || PARALLEL_SPLIT_K
#define WORKSPACE_ARGUMENT , unsigned char *workspace
#define WORKSPACE workspace
#else
#define WORKSPACE_ARGUMENT
#define WORKSPACE ((unsigned char *)0)
#endif

/* So many steps along k of one tile of C; none at all where k is 0. */
struct piece {
    unsigned int tile, first, count;
};

#define NO_TILE 0xffffffffu

/* Who computes what. */
struct division {
    unsigned int steps;   /* along k, of one tile */
    unsigned int whole;   /* tiles that one block computes each: the first ones */
    unsigned int shared;  /* tiles behind them, of which all take shares */
    unsigned int workers; /* how many shares */
};

template <class SIZES> HELPER division divide(const SIZES *x)
{
    const unsigned int tiles = tiles_of_all(x), rest = tiles % GRID_BLOCKS;
    division d;
    d.steps = steps_of_tile(x);
    d.shared = 0;
    if (STREAM_K && rest && d.steps) {
        const unsigned int all = rest + (STREAM_K > 1 && tiles > GRID_BLOCKS ? GRID_BLOCKS : 0);
        /* Where they have 2^32 steps and more, a tile takes so long that it may as well stay
         * whole.  Said by a division: a product of 64 bits is not what machine code's model has. */
        d.shared = all <= 0xffffffffu / d.steps ? all : 0;
    }
    d.whole = tiles - d.shared;
    const unsigned int each = d.steps > LEAST_STEPS ? d.steps / LEAST_STEPS : 1;
    const unsigned int most = d.shared * (each < MOST_SHARES ? each : MOST_SHARES);
    d.workers = most < GRID_BLOCKS ? most : GRID_BLOCKS;
    return d;
}

/* Where a worker's share begins, in steps of all shared tiles: steps * worker / workers, rounded
 * down.  What is left of equal shares is dealt by itself, so that no product leaves 32 bits: it
 * is less than the workers, and these are fewer than the flags that the workspace has room for. */
HELPER unsigned int share_at(division d, unsigned int worker)
{
    const unsigned int steps = d.shared * d.steps;
    const unsigned int each = steps / d.workers, left = steps % d.workers;
    return each * worker + left * worker / d.workers;
}

HELPER unsigned int *flag_of(unsigned char *workspace, unsigned int worker)
{
    return (unsigned int *)(workspace + FLAGS_AT) + worker;
}
