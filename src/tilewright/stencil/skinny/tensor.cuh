/* The loop along k on tensor cores, for operands of 16 and 8 bits.  A part of kernel.cuh.
 *
 * An instruction multiplies 16 rows of X with 8 columns of Y, 32 bytes of k deep.  What its lanes
 * hold, lane 4 g + t, are two rows, and of k two registers of elements, pairs of 16 bits:
 *
 *              k  2t 2t+1   2t+8 2t+9                      columns  2t 2t+1
 *     X  row g     | a0   |   a2   |      Y, column g      D  row g     | d0 d1 |
 *        row g + 8 | a1   |   a3   |         b0, b1           row g + 8 | d2 d3 |
 *
 * or fours of 8 bits.  Which rows these are, and in which order sums go along k, is free as long as
 * X, Y and D agree.  So lanes take what a load of 16 bytes brings:
 *
 *     X along k      8 or 16 steps of a row: two instructions take half of them each, and two of
 *                    a thread's rows are rows g and g + 8
 *     X along rows   16 bits: 8 rows of a step: four steps are side by side in k, their elements
 *                    of two neighbouring rows are put into pairs, and these are rows g and g + 8
 *
 * Y lies in the slab along k, so that a lane's elements of a column are side by side, and PITCH
 * puts the columns of neighbouring lanes into different banks.
 *
 * Two slabs are in shared memory: copies bring the next one while this one is multiplied.
 *
 * Where columns of X are not aligned, a chunk is read as the two aligned ones that hold it.
 */

/* Columns of an instruction; and steps of k of a thread that are side by side. */
#define COLUMNS 8
#define THREAD_STEPS (K_FAST_X ? CHUNK : 4)

/* Elements of a slab. */
#define SLAB (SHORT * PITCH)

/* Row of a thread's chunk i, and step of its chunk u, counted from its first. */
HELPER constexpr int row_from(int i) { return i * LANES_ROWS * CHUNK_ROWS; }

HELPER constexpr int step_from(int u)
{
    return K_FAST_X ? u * LANES_K * CHUNK
                    : u / THREAD_STEPS * LANES_K * THREAD_STEPS + u % THREAD_STEPS;
}

HELPER int first_row(void) { return LANE_ROW * CHUNK_ROWS; }

HELPER int first_step(void) { return LANE_K * THREAD_STEPS; }

HELPER bool is_wide(product p, place at)
{
    return ADDRESS(p.x) % 16 == 0 && p.ldx % CHUNK == 0;
}

/* Elements from one of X to another so many rows and steps on. */
HELPER isize place_in_x(int row, int step, isize ld)
{
    return K_FAST_X ? row * ld + step : row + step * ld;
}

/* A thread's share of a step of X: chunks; or until `align` the first 16 of the 32 aligned bytes
 * that each lies in, and the other ones. */
template <bool WIDE> struct share {
    chunk e[HELD_K][HELD_ROWS], high[WIDE ? 1 : HELD_K][WIDE ? 1 : HELD_ROWS];
};

/* Elements of a chunk's address beyond the last multiple of 16 bytes. */
HELPER int shift_of(const operand *at) { return (int)(ADDRESS(at) % 16) / OPERAND_BYTES; }

/* The word that begins so many bits behind the first one's low end. */
HELPER word funnel(word low, word high, int bits)
{
    return (word)(((unsigned long long)high << 32 | low) >> bits);
}

/* The 16 bytes that begin `shift` elements behind the first of 32. */
HELPER chunk shifted(chunk low, chunk high, int shift)
{
    const int bytes = shift * OPERAND_BYTES;
    word w[8];
    UNROLL for (int i = 0; i < 4; ++i) w[i] = low.r[i], w[i + 4] = high.r[i];
    UNROLL for (int i = 0; i < 6; ++i) w[i] = bytes & 8 ? w[i + 2] : w[i];
    UNROLL for (int i = 0; i < 5; ++i) w[i] = bytes & 4 ? w[i + 1] : w[i];
    chunk found;
    UNROLL for (int i = 0; i < 4; ++i) found.r[i] = funnel(w[i], w[i + 1], bytes % 4 * 8);
    return found;
}

/* Read all chunks of a step, each as the two aligned ones that it lies in.  Both have elements of
 * it, and so lie in memory that the operand has.  A row beyond the last reads `there`: without a
 * branch all loads are on their way together. */
HELPER void read_pairs(share<false> *mine, const operand *x, isize ld, int rows,
                       const operand *there)
{
    UNROLL for (int i = 0; i < HELD_ROWS; ++i)
        UNROLL for (int u = 0; u < HELD_K; ++u) {
            const operand *const in = x + place_in_x(row_from(i), step_from(u), ld);
            const operand *const at = row_from(i) < rows ? in : there;
            const int shift = shift_of(at);
            mine->e[u][i] = load_chunk_for_two(at - shift);
            mine->high[u][i] = load_chunk_for_two(at - shift + (shift ? CHUNK : 0));
        }
}

/* Make chunks of what `read_pairs` has read. */
HELPER void align(share<false> *mine, const operand *x, isize ld)
{
    UNROLL for (int i = 0; i < HELD_ROWS; ++i)
        UNROLL for (int u = 0; u < HELD_K; ++u) {
            const int shift = shift_of(x + place_in_x(row_from(i), step_from(u), ld));
            mine->e[u][i] = shifted(mine->e[u][i], mine->high[u][i], shift);
        }
}

HELPER void align(share<true> *, const operand *, isize) {}

/* The first elements of a chunk, fewer than all or not aligned; others are zero. */
HELPER chunk read_some(const operand *at, int count)
{
    chunk found = {};
    UNROLL for (int v = 0; v < CHUNK; ++v)
        if (v < count)
            put_element(&found, v, load_element(at + v));
    return found;
}

/* Elements that may be read from a chunk's first on: with fewer, k or X's memory ends. */
#define REACH (WIDE ? CHUNK : 2 * CHUNK)

/* Read a thread's share of a step.  `x` is its first element there; what is left of rows and of k
 * is counted from it.  Rows beyond the last are read along with others of a chunk: nobody stores
 * what comes of them.  CHECKED: k, or X's memory, may end within the step; chunks from there on are
 * read by elements. */
template <bool WIDE, bool CHECKED>
HELPER void read_share(share<WIDE> *mine, const operand *x, isize ld, int rows, int left)
{
    UNROLL for (int i = 0; i < HELD_ROWS; ++i) {
        int ending = HELD_K; /* the first chunk that is read by elements */
        UNROLL for (int u = 0; u < HELD_K; ++u) {
            const int step = step_from(u), room = K_FAST_X ? left - step : rows - row_from(i);
            const bool in = row_from(i) < rows && (!CHECKED || step < left);
            /* Elements from the chunk's first to X's last. */
            const isize behind = K_FAST_X ? room : room + (left - 1 - step) * ld;
            const bool ends = CHECKED && in && behind < REACH;
            const operand *const at = x + place_in_x(row_from(i), step, ld);
            mine->e[u][i] = {};
            if (ends)
                ending = u < ending ? u : ending;
            else if (in && WIDE)
                mine->e[u][i] = load_chunk(at);
            else if (in)
                mine->e[u][i] = shifted(load_chunk_for_two(at - shift_of(at)),
                                        load_chunk_for_two(at - shift_of(at) + CHUNK),
                                        shift_of(at));
        }
        ROLLED for (int last = ending; CHECKED && last < HELD_K && step_from(last) < left; ++last) {
            const int step = step_from(last), room = K_FAST_X ? left - step : rows - row_from(i);
            const chunk some = read_some(x + place_in_x(row_from(i), step, ld), room);
            UNROLL for (int u = 0; u < HELD_K; ++u)
                if (u == last)
                    mine->e[u][i] = some;
        }
    }
}

/* A thread's sums: of pairs of rows and eight columns each, as an instruction leaves them. */
#define PAIRS (TILE_ROWS / 2)
#define SUM_OF(pair, c) (((pair) * (SHORT / COLUMNS) + (c)) * 4)

/* Chunks along k. */
template <bool WIDE>
HELPER void multiply_along_k(elem *sum, const share<WIDE> *mine, const operand *slab)
{
    UNROLL for (int u = 0; u < HELD_K; ++u)
        UNROLL for (int c = 0; c < SHORT / COLUMNS; ++c) {
            const chunk y = *(const chunk *)(slab + slab_at(step_from(u), c * COLUMNS));
            UNROLL for (int pair = 0; pair < PAIRS; ++pair) {
                const chunk a = mine->e[u][2 * pair], b = mine->e[u][2 * pair + 1];
                UNROLL for (int half = 0; half < 4; half += 2)
                    mma(sum + SUM_OF(pair, c), a.r[half], b.r[half], a.r[half + 1], b.r[half + 1],
                        y.r[half], y.r[half + 1]);
            }
        }
}

/* The low halves of two words, and the high ones. */
HELPER word lows(word x, word y) { return (x & 0xffff) | y << 16; }

HELPER word highs(word x, word y) { return x >> 16 | (y & 0xffff0000); }

struct ALIGNED(8) half_chunk {
    word r[2];
};

/* Chunks along the rows, four steps at a time. */
template <bool WIDE>
HELPER void multiply_along_rows(elem *sum, const share<WIDE> *mine, const operand *slab)
{
    UNROLL for (int u = 0; u < HELD_K; u += 4)
        UNROLL for (int c = 0; c < SHORT / COLUMNS; ++c) {
            const half_chunk y = *(const half_chunk *)(slab + slab_at(step_from(u), c * COLUMNS));
            UNROLL for (int pair = 0; pair < PAIRS; ++pair) {
                word x[4];
                UNROLL for (int v = 0; v < 4; ++v) x[v] = mine->e[u + v][pair / 4].r[pair % 4];
                mma(sum + SUM_OF(pair, c), lows(x[0], x[1]), highs(x[0], x[1]), lows(x[2], x[3]),
                    highs(x[2], x[3]), y.r[0], y.r[1]);
            }
        }
}

/* Whether Y lies along k and its columns are aligned, so that copies bring them. */
HELPER bool is_copied(product p)
{
    return K_FAST_Y && ADDRESS(p.y) % 16 == 0 && (p.ldy % CHUNK == 0 || p.columns == 1);
}

/* Begin to fill a slab as `fill_slab` does.  What lies beyond Y's last column is nobody's, and not
 * written by copies. */
HELPER void start_slab(operand *slab, product p, place at, isize from, isize to)
{
    if (from >= to)
        return;
    if (!is_copied(p)) {
        fill_slab(slab, p, at, from, to);
        return;
    }
    const operand *const y = p.y + from + at.column * p.ldy;
    const int left = least(to - from, SLAB_K), whole = (left + BLOCK_K - 1) / BLOCK_K * BLOCK_K;
    const int across = SLAB_K / CHUNK, all = at.columns * across;
    ROLLED for (int e = THREAD_ID; e < all; e += THREADS) {
        const int l = e % across * CHUNK, w = e / across;
        const int inside = l < left ? least(left - l, CHUNK) : 0;
        if (l < whole) /* of nothing, an address that may be read */
            copy_chunk(slab + slab_at(l, w), inside ? y + l + w * p.ldy : y, inside);
    }
}

/* One step: its share of X is on the way before the slab is waited for, where that is due.  All
 * have multiplied with the slab before it then, whose place the next one takes. */
template <bool WIDE, bool CHECKED>
HELPER void multiply_step(elem *sum, const operand *x, product p, place at, isize l, range r,
                          int step, operand *slabs)
{
    share<WIDE> mine;
    const int rows = at.rows - first_row();
    if constexpr (WIDE || CHECKED)
        read_share<WIDE, CHECKED>(&mine, x, p.ldx, rows, least(r.to - l, BLOCK_K) - first_step());
    else
        read_pairs(&mine, x, p.ldx, rows, p.x);
    const int number = step % SLAB_STEPS, turn = step / SLAB_STEPS % 2;
    if (number == 0) {
        wait_for_copies();
        BARRIER();
        start_slab(slabs + (turn ? 0 : SLAB), p, at, l + SLAB_K, r.to);
    }
    const operand *const from =
        slabs + (turn ? SLAB : 0) +
        slab_at(number * BLOCK_K + first_step(), THREAD_ID % 32 / WARP_LANES_K);
    if (!CHECKED)
        align(&mine, x, p.ldx);
    if (K_FAST_X)
        multiply_along_k(sum, &mine, from);
    else
        multiply_along_rows(sum, &mine, from);
}

/* Leave the thread's sums in shared memory for `add_lanes`: an instruction has added up its
 * lanes'. */
HELPER void leave_sums(const elem *sum, elem *parts)
{
    elem *const to = parts + LANE_K / WARP_LANES_K * TILE;
    UNROLL for (int pair = 0; pair < PAIRS; ++pair)
        UNROLL for (int c = 0; c < SHORT / COLUMNS; ++c)
            UNROLL for (int e = 0; e < 4; ++e) {
                const int r = 2 * pair + e / 2;
                const int row = first_row() + row_from(r / CHUNK_ROWS) + r % CHUNK_ROWS;
                const int column = c * COLUMNS + LANE_K % WARP_LANES_K * 2 + e % 2;
                to[part_at(row, column)] = sum[SUM_OF(pair, c) + e];
            }
}

/* All steps of a range.  Those at the end of k may be a part of one, and where columns are not
 * aligned, reach beyond the last. */
template <bool WIDE>
HELPER void multiply_range(elem *sum, product p, place at, range r, elem *shared)
{
    isize l = r.from;
    const isize row = at.row + first_row(), from = l + first_step();
    operand *const slabs = (operand *)shared;
    const operand *x = p.x + (K_FAST_X ? row * p.ldx + from : row + from * p.ldx);
    const isize apart = (isize)BLOCK_K * (K_FAST_X ? 1 : p.ldx);
    const bool reach = !WIDE || (!K_FAST_X && at.rows < ROWS);
    const isize end = p.k - (reach ? 2 * CHUNK : 0), whole = end < r.to ? end : r.to;
    int step = 0;
    start_slab(slabs, p, at, l, r.to);
    ROLLED for (; l + BLOCK_K <= whole; l += BLOCK_K, x += apart)
        multiply_step<WIDE, false>(sum, x, p, at, l, r, step++, slabs);
    ROLLED for (; l < r.to; l += BLOCK_K, x += apart)
        multiply_step<WIDE, true>(sum, x, p, at, l, r, step++, slabs);
    BARRIER(); /* sums take the slabs' place */
    leave_sums(sum, shared);
}
