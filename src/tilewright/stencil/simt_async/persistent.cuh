/* Blocks that stay: whole tiles in turns, the rest shared evenly.  A part of kernel.cuh.
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
 * in the order of k, the parts that the workers after it leave in device memory, and stores the
 * tile.  So a sum's order depends on sizes, config and grid alone: the same bits in every run.
 * A worker computes the part that it leaves to others before anything else of its share, so that
 * it is there long before its owner, who comes to it at the end of a share, looks for it.
 *
 * While a result is stored, or others are waited for, the copies of the next piece's first tiles
 * are on their way: shared memory is free then.
 *
 * The workspace, zero up to the parts before a launch and after it:
 *
 *     | number | a flag for each worker | part of worker 0 | part of worker 1 | ...
 *
 * Progress, whatever order blocks are started in and however few run at once: a block draws its
 * worker's number when it runs, the last numbers first, and waits for higher numbers only: for
 * blocks that were running before it.  And no block waits before it has left its own part, so
 * the one that drew first waits for nobody, and so on.
 */

#define GRID_BLOCKS (gridDim.x)

/* A share has at least 64 steps of k: parts of C are written and read at the cost of some 40. */
#define LEAST_STEPS (64 / BLOCK_K)

/* Shared memory behind the stages: the number that the block drew. */
#define NUMBER_AT (STAGES * STAGE_BYTES)

/* The workspace, as the package lays it out. */
#define FLAGS_AT 128
#define PARTS_AT 16384
#define PART_BYTES ((isize)(BLOCK_M * BLOCK_N * ELEM_BYTES))

/* Numbers in an element: 2 in complex arithmetic. */
#define REALS (ELEM_BYTES / REAL_BYTES)

#if STREAM_K
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

HELPER division divide(const matrices *x)
{
    const unsigned int rows = (unsigned int)((x->m + BLOCK_M - 1) / BLOCK_M);
    const unsigned int columns = (unsigned int)((x->n + BLOCK_N - 1) / BLOCK_N);
    const unsigned int tiles = rows * columns, rest = tiles % GRID_BLOCKS;
    division d;
    d.steps = (unsigned int)((x->k + BLOCK_K - 1) / BLOCK_K);
    d.shared = 0;
    if (STREAM_K && rest && d.steps)
        d.shared = rest + (STREAM_K > 1 && tiles > GRID_BLOCKS ? GRID_BLOCKS : 0);
    d.whole = tiles - d.shared;
    const unsigned int each = d.steps > LEAST_STEPS ? d.steps / LEAST_STEPS : 1;
    const isize most = (isize)d.shared * each;
    d.workers = most < GRID_BLOCKS ? (unsigned int)most : GRID_BLOCKS;
    return d;
}

/* Where a worker's share begins, in steps of all shared tiles. */
HELPER isize share_at(division d, unsigned int worker)
{
    return (isize)d.shared * d.steps * worker / d.workers;
}

/* This block's number among the workers; a block too many has none of theirs. */
HELPER unsigned int worker_of(division d, shared_at tiles)
{
    return d.workers - 1 - read_word(tiles + NUMBER_AT);
}

/* What comes after a piece; after NO_TILE, the first of all. */
HELPER piece piece_after(piece last, division d, shared_at tiles)
{
    const piece none = {NO_TILE, 0, 0};
    const bool shares = last.tile != NO_TILE && last.tile >= d.whole;
    if (!shares) {
        const unsigned int tile = last.tile == NO_TILE ? BLOCK_ID : last.tile + GRID_BLOCKS;
        const piece next = {tile, 0, d.steps};
        if (tile < d.whole)
            return next;
    }
    if (!STREAM_K || d.workers == 0)
        return none;
    if (last.tile == NO_TILE)
        BARRIER(); /* the number is there; later there have been others */
    const unsigned int worker = worker_of(d, tiles);
    if (worker >= d.workers)
        return none;
    const isize end = share_at(d, worker + 1);
    const isize at = shares ? (isize)(last.tile - d.whole) * d.steps + last.first + last.count
                            : share_at(d, worker);
    if (at >= end)
        return none;
    const unsigned int tile = (unsigned int)(at / d.steps), first = (unsigned int)(at % d.steps);
    const unsigned int left = d.steps - first;
    const piece next = {d.whole + tile, first, end - at < left ? (unsigned int)(end - at) : left};
    return next;
}

HELPER unsigned int *flag_of(unsigned char *workspace, unsigned int worker)
{
    return (unsigned int *)(workspace + FLAGS_AT) + worker;
}

/* Where this thread's first number of a worker's part lies; real by real, consecutive threads
 * side by side.  Vectors would want sums in aligned groups of registers, which then conflict in
 * the loop over k. */
HELPER unsigned char *part_of(unsigned char *workspace, unsigned int worker)
{
    return workspace + PARTS_AT + worker * PART_BYTES + THREAD_ID * REAL_BYTES;
}

/* Leave a part to the owner of its tile. */
HELPER void leave_part(const elem *sum, unsigned int worker, unsigned char *workspace)
{
    unsigned char *const to = part_of(workspace, worker);
    UNROLL for (int e = 0; e < TILE_M * TILE_N; ++e)
        UNROLL for (int r = 0; r < REALS; ++r)
            write_part(to + (e * REALS + r) * THREADS * REAL_BYTES, real_of(sum[e], r));
    BARRIER();
    if (THREAD_ID == 0)
        raise_flag(flag_of(workspace, worker));
}

/* Add what others have of a tile that this worker owns, in the order of k. */
HELPER void add_parts(elem *sum, piece p, division d, unsigned int worker,
                      unsigned char *workspace)
{
    const isize tile_end = (isize)(p.tile - d.whole + 1) * d.steps;
    ROLLED for (unsigned int other = worker + 1; share_at(d, other) < tile_end; ++other) {
        if (THREAD_ID == 0) {
            unsigned int *const flag = flag_of(workspace, other);
            await_flag(flag);
            lower_flag(flag); /* for the next launch: nobody else looks at it */
        }
        BARRIER();
        const unsigned char *const from = part_of(workspace, other);
        UNROLL for (int e = 0; e < TILE_M * TILE_N; ++e) {
            REAL v[REALS];
            UNROLL for (int r = 0; r < REALS; ++r)
                v[r] = read_part(from + (e * REALS + r) * THREADS * REAL_BYTES);
            sum[e] = elem_add(sum[e], elem_scalar(v[0], v[REALS - 1]));
        }
    }
}

/* Store a piece that has been multiplied, or leave it to who does. */
HELPER void finish_piece(const matrices *x, elem *sum, piece p, division d, shared_at tiles,
                         unsigned char *workspace)
{
    if (STREAM_K && p.first > 0) {
        leave_part(sum, worker_of(d, tiles), workspace);
        return;
    }
    if (STREAM_K && p.count < d.steps)
        add_parts(sum, p, d, worker_of(d, tiles), workspace);
    store_own_sums(result_in(x, place_in(x->m, x->n, p.tile)), sum);
}

/* Compute this block's share of all tiles. */
HELPER void compute_tiles(const matrices *given, shared_at tiles, unsigned char *workspace)
{
    elem sum[TILE_M * TILE_N];
    if (STREAM_K && THREAD_ID == 0)
        write_word(tiles + NUMBER_AT, draw_number((unsigned int *)workspace, GRID_BLOCKS - 1));
    piece done = {NO_TILE, 0, 0};
    for (;;) {
        /* All that follows from sizes, and from the thread's number, is computed anew for each
         * piece: what lives on takes registers from the loop over k. */
        matrices x = *given;
        keep(&x.m);
        keep(&x.n);
        keep(&x.k);
        const division d = divide(&x);
        const piece now = piece_after(done, d, tiles);
        const place at = place_in(x.m, x.n, now.tile);
        const operand a = operand_at(x.a + x.offset_a, x.lda, at.i, x.m, x.k, BLOCK_M, K_FAST_A);
        const operand b = operand_at(x.b + x.offset_b, x.ldb, at.j, x.n, x.k, BLOCK_N, K_FAST_B);
        const bool wide = a.wide && b.wide;
        const steps mine = {now.first, now.count, (int)(x.k - (isize)(d.steps - 1) * BLOCK_K)};
        feeds f;
        if (now.tile != NO_TILE && now.count) {
            if (wide)
                begin_tiles<true>(&f, a, b, mine, tiles);
            else
                begin_tiles<false>(&f, a, b, mine, tiles);
        }
        if (done.tile != NO_TILE)
            finish_piece(&x, sum, done, d, tiles, workspace);
        if (now.tile == NO_TILE)
            return;
        UNROLL for (int i = 0; i < TILE_M * TILE_N; ++i) sum[i] = elem_zero();
        if (now.count) {
            if (wide)
                multiply_tiles<true>(sum, &f, a, b, mine, tiles);
            else
                multiply_tiles<false>(sum, &f, a, b, mine, tiles);
        }
        done = now;
    }
}
