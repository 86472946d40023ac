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
 *             m, the lane's row of chunks; turned, so that lanes 8 q to 8 q + 7, which write at
 *             once, use all banks, in whatever order lanes are numbered
 *
 * Each warp has two such places and takes them in turns: when a lane writes to one again, all have
 * met since they read from it, so that one barrier of the warp a round is enough.  They lie in the
 * ring's last stage.  From the loop's last barrier on nobody reads it but to throw away, and the
 * copies of a next tile that start before this one is stored fill the other stages; the last one's
 * start behind a barrier of the block.
 *
 *     | stages 0 to STAGES - 2 | warp 0: place 0, place 1 | warp 1: place 0, place 1 | ...
 */

#define ROUND_ROWS (LANES_M * CHUNK)
#define ROUND_BYTES (32 * 16)

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

/* Where the chunk of the lane in row m and column n of a warp's lanes lies. */
HELPER int place_of_lane(int m, int n)
{
    const int turned = (n % 2 * 4 + n / 2 % 2 * 2) % LANES_M;
    return (n * LANES_M + (m ^ turned)) * 16;
}

/* A lane's part in a round. */
struct staging {
    shared_at to;          /* where its chunk goes */
    shared_at from[CHUNK]; /* where the elements lie that it stores */
};

HELPER staging staging_in(shared_at tiles)
{
    const shared_at own =
        tiles + (STAGES - 1) * STAGE_BYTES + THREAD_ID / 32 * (2 * ROUND_BYTES);
    const int lane = THREAD_ID % 32, row = lane % ROUND_ROWS;
    staging s;
    s.to = own + place_of_lane(lane_m(), lane_n());
    UNROLL for (int e = 0; e < CHUNK; ++e)
        s.from[e] = own + place_of_lane(row / CHUNK, (32 * e + lane) / ROUND_ROWS) +
                    row % CHUNK * ELEM_BYTES;
    return s;
}

/* Write chunk i of column j of all lanes' tiles; what `at` points to is one place or the other. */
HELPER void store_round(result c, const elem *sum, int j, int i, staging s, shared_at at)
{
    const int row = i * ROUND_ROWS;
    elem v[CHUNK];
    /* Scaled before: a chunk takes its elements from consecutive registers, sums are anywhere. */
    UNROLL for (int e = 0; e < CHUNK; ++e)
        v[e] = elem_scale(c.alpha, finished(&c, sum[e], row + e, column_of(j)));
    write_chunk(s.to + at, chunk_of(v));
    warp_barrier();
    elem *const to = c.at + column_of(j) * c.ld + row;
    bool own[CHUNK]; /* whether it is the block's own, of this lane's */
    UNROLL for (int e = 0; e < CHUNK; ++e) {
        const int column = column_of(j) + e * (32 / ROUND_ROWS) * RUN;
        own[e] = row >= c.m_first && row < c.m_left && column >= c.n_first && column < c.n_left;
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

/* Store `count` columns of the lanes' tiles, from `first` on. */
HELPER void store_staged(result c, const elem *sum, int first, int count, shared_at tiles)
{
    const staging s = staging_in(tiles);
    UNROLL for (int j = 0; j < count; ++j) {
        keep(&c.ld);
        UNROLL for (int i = 0; i < TILE_M / CHUNK; ++i) {
            const int round = j * (TILE_M / CHUNK) + i;
            store_round(c, sum + j * TILE_M + i * CHUNK, first + j, i, s, round % 2 * ROUND_BYTES);
        }
    }
}
