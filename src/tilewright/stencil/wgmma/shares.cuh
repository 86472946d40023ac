/* Tiles that all blocks share (asynchronous/division.cuh), in pieces of steps along k.  A part of
 * kernel.cuh.
 *
 * Producer and consumers go through the same pieces, whole tiles first, then those of the block's
 * share.  An idle warp of the producer's draws the block's number and divides while whole tiles
 * are multiplied.  What it finds it leaves behind a barrier, where configs whose consumers take
 * ping-pong has its own (no config has both):
 *
 *     | barrier, 8 bytes | others << 16 | worker | first tile | first step | steps |   4 bytes each
 *
 * `others` is how many workers behind this one leave it parts of the tile that it begins last.
 *
 * A part is what consumers have summed, promoted but not yet scaled: number i of thread t at
 *
 *     part + (i * threads of all consumers + t) * 4 bytes
 */

/* What is divided. */
struct work {
    unsigned int tiles, steps;
};

HELPER unsigned int tiles_of_all(const work *all) { return all->tiles; }
HELPER unsigned int steps_of_tile(const work *all) { return all->steps; }

#include "asynchronous/division.cuh"

#define WORKER_AT 8
#define TILE_AT 12
#define FIRST_AT 16
#define COUNT_AT 20

#define SUMS_BYTES ((isize)(BLOCK_M * BLOCK_N * 4))
#define SUMS_STEP (GROUP * CONSUMERS * 4)

/* The thread that draws: the first of the producer's second warp. */
#define DRAWING_THREAD (GROUP * CONSUMERS + 32)

HELPER shared_at share_of(shared_at arena) { return turn_of(arena, 0); }

/* How many workers behind one leave it parts: those whose shares begin in the tile that it ends in. */
HELPER unsigned int others_of(division d, unsigned int worker, unsigned int end)
{
    const unsigned int tile_end = ((end - 1) / d.steps + 1) * d.steps; /* no share is empty */
    unsigned int next = worker + 1;
    ROLLED while (share_at(d, next) < tile_end) ++next;
    return next - worker - 1;
}

/* Draw this block's share and tell all its warps; all blocks draw, or none. */
HELPER void draw_share(shared_at arena, division d, unsigned char *workspace)
{
    const shared_at to = share_of(arena);
    const unsigned int worker =
        d.workers - 1 - draw_number((unsigned int *)workspace, GRID_BLOCKS - 1);
    const bool works = worker < d.workers; /* a block too many has no share */
    const unsigned int begin = works ? share_at(d, worker) : 0;
    const unsigned int end = works ? share_at(d, worker + 1) : 0;
    write_word(to + WORKER_AT, works ? others_of(d, worker, end) << 16 | worker : 0);
    write_word(to + TILE_AT, d.whole + begin / d.steps);
    write_word(to + FIRST_AT, begin % d.steps);
    write_word(to + COUNT_AT, end - begin);
    arrive(to, 0);
}

/* What comes after a piece; after NO_TILE, the first of all; behind the last, no piece. */
HELPER piece piece_after(piece last, division d, shared_at arena)
{
    const bool begun = last.tile != NO_TILE;
    piece next = {begun ? last.tile + GRID_BLOCKS : BLOCK_ID, 0, d.steps};
    if ((!begun || last.tile < d.whole) && next.tile < d.whole)
        return next;
    const piece none = {d.whole, 0, 0};
    if (d.shared == 0)
        return none;
    const shared_at from = share_of(arena);
    wait_for(from, 0);
    next.tile = read_word(from + TILE_AT);
    next.first = read_word(from + FIRST_AT);
    next.count = read_word(from + COUNT_AT);
    if (begun && last.tile >= d.whole) {
        const unsigned int done =
            (last.tile - next.tile) * d.steps + last.first + last.count - next.first;
        next.count = done < next.count ? next.count - done : 0;
        next.tile = last.tile + 1;
        next.first = 0;
    }
    const unsigned int left = d.steps - next.first;
    next.count = next.count < left ? next.count : left;
    return next;
}

/* Whole tiles may have no steps, pieces of shares have some. */
HELPER bool is_piece(piece p, division d) { return p.tile < d.whole || p.count > 0; }

/* Leave a part to the owner of its tile. */
HELPER void leave_part(const accumulator *sum, shared_at arena, unsigned char *workspace)
{
    const unsigned int worker = read_word(share_of(arena) + WORKER_AT) & 0xffff;
    unsigned char *const to = workspace + PARTS_AT + worker * SUMS_BYTES + THREAD_ID * 4;
    UNROLL for (int i = 0; i < SUMS_OF_THREAD; ++i) write_part(to + i * SUMS_STEP, sum[i]);
    consumers_barrier();
    if (THREAD_ID == 0)
        raise_flag(flag_of(workspace, worker));
}

/* Add what others have of a tile that this block owns, in the order of k. */
HELPER void add_parts(accumulator *sum, shared_at arena, unsigned char *workspace)
{
    const unsigned int word = read_word(share_of(arena) + WORKER_AT);
    const unsigned int worker = word & 0xffff, last = worker + (word >> 16);
    ROLLED for (unsigned int other = worker + 1; other <= last; ++other) {
        if (THREAD_ID == 0) {
            unsigned int *const flag = flag_of(workspace, other);
            await_flag(flag);
            lower_flag(flag); /* for the next launch: nobody else looks at it */
        }
        consumers_barrier();
        const unsigned char *const from =
            workspace + PARTS_AT + other * SUMS_BYTES + THREAD_ID * 4;
        UNROLL for (int i = 0; i < SUMS_OF_THREAD; ++i) sum[i] += read_part(from + i * SUMS_STEP);
    }
}

/* Store a piece that has been multiplied, or leave it to who does. */
HELPER void finish_piece(result to, piece p, accumulator *sum, division d, shared_at arena,
                         unsigned char *workspace)
{
    if (!is_piece(p, d))
        return;
    if (p.first > 0) {
        leave_part(sum, arena, workspace);
        return;
    }
    if (p.count < d.steps)
        add_parts(sum, arena, workspace);
    store_tile(to, tile_at(to.m, to.n, p.tile, 0), sum);
}

/* The producer: one thread of it draws, and one brings operands. */
HELPER void bring_pieces(const tensor_map *a, const tensor_map *b, shared_at arena, ring *at,
                         division d, isize m, isize n, unsigned char *workspace)
{
    if (d.shared && THREAD_ID == DRAWING_THREAD)
        draw_share(arena, d, workspace);
    if (THREAD_ID != GROUP * CONSUMERS)
        return;
    piece p = {NO_TILE, 0, 0};
    while (is_piece(p = piece_after(p, d, arena), d))
        bring_tile(a, b, 0, 0, arena, at, tile_at(m, n, p.tile, 0), p.first, p.count);
}

/* The consumers.  How often they go round must follow from the kernel's arguments: where it
 * follows from what was drawn, the compiler keeps the ring's place in registers of threads, and
 * copies it to where the tensor core wants it before each multiply.  So all go round for their
 * whole tiles (where any are shared, so many that each block has as many) and as often more as a
 * share can have pieces, be there any or not: a share is at most STREAM_K tiles long. */
HELPER void multiply_pieces(result to, shared_at arena, ring *at, division d,
                            unsigned char *workspace)
{
    const unsigned int more = d.shared ? (STREAM_K + 1) * GRID_BLOCKS : 0;
    piece p = {NO_TILE, 0, 0};
    for (unsigned int turn = BLOCK_ID; turn < d.whole + more; turn += GRID_BLOCKS) {
        accumulator sum[SUMS_OF_THREAD];
        p = piece_after(p, d, arena);
        multiply_tile(sum, arena, at, 0, p.count);
        finish_piece(to, p, sum, d, arena, workspace);
    }
}
