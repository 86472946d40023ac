/* Persistent blocks: whole tiles, then the rest shared evenly (asynchronous/division.cuh).
 * A part of kernel.cuh.
 *
 * While a result is stored, or others are waited for, the copies of the next piece's first tiles
 * are on their way: shared memory is free then.
 */

/* A share has at least 64 steps of k: parts of C are written and read at the cost of some 40. */
#define LEAST_STEPS (64 / BLOCK_K)

/* In single precision a tile has at most so many, as asynchronous/division.py says, and why;
 * elsewhere a step takes longer beside a part. */
#if ELEM_BYTES == 4
#define MOST_SHARES (TREE_REDUCTION ? 32 : 12)
#endif

/* Shared memory behind the stages: the number that the block drew. */
#define NUMBER_AT (STAGES * STAGE_BYTES)

#define PART_BYTES ((isize)(BLOCK_M * BLOCK_N * ELEM_BYTES))

/* Numbers in an element: 2 in complex arithmetic. */
#define REALS (ELEM_BYTES / REAL_BYTES)

#include "simt_async/products.cuh"

HELPER unsigned int tiles_of_all(const matrices *x) { return tiles_of_product(x) * PRODUCTS(x); }

HELPER unsigned int steps_of_tile(const matrices *x)
{
    return (unsigned int)((x->k + BLOCK_K - 1) / BLOCK_K);
}

#include "asynchronous/division.cuh"

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
    const unsigned int end = share_at(d, worker + 1);
    const unsigned int at = shares ? (last.tile - d.whole) * d.steps + last.first + last.count
                                   : share_at(d, worker);
    if (at >= end)
        return none;
    const unsigned int tile = at / d.steps, first = at % d.steps, left = d.steps - first;
    const piece next = {d.whole + tile, first, end - at < left ? end - at : left};
    return next;
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

HELPER unsigned int last_bit(unsigned int x) { return x & (0u - x); }

/* Add what others have of a tile, in the order of k: of one that this worker owns, all of it.
 *
 * TREE_REDUCTION: a worker that leaves its part, too, and whose number ends in z zeros, first adds
 * up the parts of the 2^z - 1 workers behind it.  So an owner waits for as many parts as a number
 * has bits, and not for each.  Of workers 5 (the owner) to 12:
 *
 *     5 <- 6 <- 7        6 ends in one zero: it has 7 with it; 8 in three: 9, and 10 and 12 with
 *     5 <- 8 <- 9        what they have
 *          8 <- 10 <- 11
 *          8 <- 12
 *
 * Whoever waits does so for higher numbers, as ever, which began before it: the highest waits for
 * nobody, and so each leaves its part. */
HELPER void add_parts(elem *sum, piece p, division d, unsigned int worker,
                      unsigned char *workspace)
{
    const unsigned int tile_end = (p.tile - d.whole + 1) * d.steps;
    const unsigned int last = p.first > 0 ? worker + last_bit(worker) : d.workers;
    const unsigned int end = last < d.workers ? last : d.workers;
    ROLLED for (unsigned int other = worker + 1;
                (!TREE_REDUCTION || other < end) && share_at(d, other) < tile_end;
                other += TREE_REDUCTION ? last_bit(other) : 1) {
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
        if (TREE_REDUCTION)
            add_parts(sum, p, d, worker_of(d, tiles), workspace);
        leave_part(sum, worker_of(d, tiles), workspace);
        return;
    }
    if (STREAM_K && p.count < d.steps)
        add_parts(sum, p, d, worker_of(d, tiles), workspace);
    store_own_sums(result_in(PRODUCT_OF(x, p.tile), PLACE_OF(x, p.tile)), sum, tiles);
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
        const place at = PLACE_OF(&x, now.tile);
        const operand a = operand_a(PRODUCT_OF(&x, now.tile), at.i);
        const operand b = operand_b(PRODUCT_OF(&x, now.tile), at.j);
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
