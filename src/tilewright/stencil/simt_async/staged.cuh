/* Results on their way to a C whose columns begin anywhere.  A part of store.cuh.
 *
 * A thread has its results by chunks, 16 bytes of a column.  Where columns of C are not aligned to
 * these it stores single elements, so that one store of a warp takes every CHUNK-th row of
 * 32 / LANES_M columns: it touches CHUNK times the sectors that hold as many elements.  With
 * STAGED the chunks that all lanes have at one place of their tiles, a round, pass through shared
 * memory, and a store takes ROUND_ROWS consecutive rows.  Floats, LANES_M = 8:
 *
 *     written, a chunk a lane                      stored, an element a lane
 *
 *     n = 0 | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |      e = 0: lanes 0 to 31 down column 0
 *     n = 1 | 4 | 5 | 6 | 7 | 0 | 1 | 2 | 3 |      e = 1: lanes 0 to 31 down column 1
 *     n = 2 | 2 | 3 | 0 | 1 | 6 | 7 | 4 | 5 |      ...    RUN columns of C apart
 *     n = 3 | 6 | 7 | 4 | 5 | 2 | 3 | 0 | 1 |
 *             m, the lane's row of chunks; swizzled, so that lanes 8 q to 8 q + 7, which write at
 *             once, use all banks
 *
 * Each warp has PLACES of these: it writes as many rounds, then stores them in a loop of its own,
 * or, where all of a small tile is stored, in a text without questions.
 * Sums are in registers, which a loop cannot number, so that writing them is code of its own for
 * each; code that runs once for each tile misses the instruction caches, and storing is most of it.
 *
 * They lie in the ring, which from the loop's last barrier on nobody reads but to throw away.
 * Where blocks stay the copies of a next tile start before this one is stored, and fill all
 * stages but the last, whose start behind a barrier of the block.  With TMA they are the engine's,
 * which has to be told that threads have done with that stage.
 *
 *     | stages 0 to STAGES - 2 | last stage: places of warp 0 | places of warp 1 | ...
 */

#define ROUND_ROWS (LANES_M * CHUNK)
#define ROUND_BYTES (32 * 16)
#define ROUNDS_OF_COLUMN (TILE_M / CHUNK)

#define STAGED_AT (PERSISTENT || TMA ? (STAGES - 1) * STAGE_BYTES : 0)
/* With TMA barriers lie behind each stage. */
#define STAGED_END ((STAGES - 1) * STAGE_BYTES + BARRIER_AT)
#define ROOM_OF_WARP ((STAGED_END - STAGED_AT) / (THREADS / 32))
#define PLACES_THAT_FIT (ROOM_OF_WARP / ROUND_BYTES)
#define PLACES (PLACES_THAT_FIT < MOST_PLACES ? PLACES_THAT_FIT : MOST_PLACES)
/* More save no text worth it: storing is then a fourth of it. */
#define MOST_PLACES 8

/* The lane's row and column among a warp's lanes, of chunks of rows and runs of columns. */
HELPER int lane_m(void) { return thread_row() % ROUND_ROWS / CHUNK; }
HELPER int lane_n(void) { return thread_column() / RUN % (32 / LANES_M); }

/* From the first element that the thread has to the first that it stores. */
HELPER void begin_where_stored(result *c)
{
    const int lane = THREAD_ID % 32;
    const int down = lane % ROUND_ROWS - lane_m() * CHUNK;
    const int right = (lane / ROUND_ROWS - lane_n()) * RUN;
    c->at += down + right * c->ld;
    c->m_first -= down;
    c->m_left -= down;
    c->n_first -= right;
    c->n_left -= right;
}

/* What is exchanged in the row of column n, unless what multiplies numbers lanes so that
 * neighbours have rows four apart. */
#ifndef EXCHANGED
#define EXCHANGED(N) (((N) % 2 * 4 + (N) / 2 % 2 * 2) % LANES_M)
#endif

/* Where the chunk of the lane in row m and column n of a warp's lanes lies. */
HELPER int place_of_lane(int m, int n)
{
    return (n * LANES_M + (m ^ EXCHANGED(n))) * 16;
}

/* A lane's part in a round. */
struct staging {
    shared_at to;          /* where its chunk goes */
    shared_at from[CHUNK]; /* where the elements lie that it stores */
};

HELPER staging staging_in(shared_at tiles)
{
    const shared_at own = tiles + STAGED_AT + THREAD_ID / 32 * (PLACES * ROUND_BYTES);
    const int lane = THREAD_ID % 32, row = lane % ROUND_ROWS;
    staging s;
    s.to = own + place_of_lane(lane_m(), lane_n());
    UNROLL for (int e = 0; e < CHUNK; ++e)
        s.from[e] = own + place_of_lane(row / CHUNK, (32 * e + lane) / ROUND_ROWS) +
                    row % CHUNK * ELEM_BYTES;
    return s;
}

/* Write a chunk of the sums, whose first element lies in `row` and `column` of the thread's. */
HELPER void stage_round(result c, const elem *sum, int row, int column, shared_at to)
{
    elem v[CHUNK];
    /* Scaled before: a chunk takes its elements from consecutive registers, sums are anywhere. */
    UNROLL for (int e = 0; e < CHUNK; ++e)
        v[e] = elem_scale(c.alpha, finished(&c, sum[e], row + e, column));
    write_chunk(to, chunk_of(v));
}

/* Store what lies at a place, from `row` and `column` of the thread's on. */
HELPER void store_round(result c, int row, int column, staging s, shared_at at)
{
    elem *const to = c.at + column * c.ld + row;
    elem v[CHUNK];
    bool own[CHUNK]; /* whether it is the block's own, of this lane's */
    UNROLL for (int e = 0; e < CHUNK; ++e) {
        const int right = column + e * (32 / ROUND_ROWS) * RUN;
        own[e] = row >= c.m_first && row < c.m_left && right >= c.n_first && right < c.n_left;
        v[e] = read_element(s.from[e] + at);
    }
    if (!elem_is_zero(c.beta)) {
        elem old[CHUNK];
        UNROLL for (int e = 0; e < CHUNK; ++e)
            old[e] = own[e] ? to[e * (32 / ROUND_ROWS) * RUN * c.ld] : elem_zero();
        UNROLL for (int e = 0; e < CHUNK; ++e)
            v[e] = with_old(c, v[e], &old[e]);
    }
    UNROLL for (int e = 0; e < CHUNK; ++e)
        if (own[e])
            to[e * (32 / ROUND_ROWS) * RUN * c.ld] = v[e];
}

/* Where all of the tile is the block's own and C does not count nothing is asked of any element:
 * with k = 100 what is asked is a tenth of all instructions of a block.  `to` is where the lane's
 * elements of a round go, each in a column of C, and moves on behind a column's last round. */
HELPER void store_whole_round(elem **to, isize ld, int i, int j, staging s, shared_at at)
{
    elem v[CHUNK];
    UNROLL for (int e = 0; e < CHUNK; ++e) v[e] = read_element(s.from[e] + at);
    UNROLL for (int e = 0; e < CHUNK; ++e) {
        to[e][i * ROUND_ROWS] = v[e];
        if (i == ROUNDS_OF_COLUMN - 1)
            to[e] += (column_of(j + 1) - column_of(j)) * ld;
    }
}

/* Large tiles are stored seldom, by code that misses the instruction caches: there it is a loop. */
#if TILE_M * TILE_N <= 64
#define UNROLL_WHOLE_ROUNDS UNROLL
#else
#define UNROLL_WHOLE_ROUNDS ROLLED
#endif

/* Store `count` columns of the lanes' tiles, from `first` on. */
HELPER void store_staged(result c, const elem *sum, int first, int count, shared_at tiles)
{
    const staging s = staging_in(tiles);
    const int rounds = count * ROUNDS_OF_COLUMN;
    const bool whole = c.whole && elem_is_zero(c.beta);
    elem *to[CHUNK];
    UNROLL for (int e = 0; e < CHUNK; ++e)
        to[e] = c.at + (column_of(first) + e * (32 / ROUND_ROWS) * RUN) * c.ld;
    UNROLL for (int done = 0; done < rounds; done += PLACES) {
        const int now = rounds - done < PLACES ? rounds - done : PLACES;
        /* Between tiles of a persistent block there is no other barrier where k is 0. */
        if (done > 0 || PERSISTENT)
            warp_barrier(); /* all have read what lay there */
        UNROLL for (int r = 0; r < now; ++r) {
            const int i = (done + r) % ROUNDS_OF_COLUMN, j = (done + r) / ROUNDS_OF_COLUMN;
            stage_round(c, sum + (done + r) * CHUNK, i * ROUND_ROWS, column_of(first + j),
                        s.to + r * ROUND_BYTES);
        }
        warp_barrier();
        if (whole) {
            UNROLL_WHOLE_ROUNDS for (int r = 0; r < now; ++r)
                store_whole_round(to, c.ld, (done + r) % ROUNDS_OF_COLUMN,
                                  first + (done + r) / ROUNDS_OF_COLUMN, s, r * ROUND_BYTES);
            continue;
        }
        ROLLED for (int r = 0; r < now; ++r) {
            const int i = (done + r) % ROUNDS_OF_COLUMN, j = (done + r) / ROUNDS_OF_COLUMN;
            store_round(c, i * ROUND_ROWS, column_of(first + j), s, r * ROUND_BYTES);
        }
    }
#if TMA
    leave_to_engine();
#endif
}
