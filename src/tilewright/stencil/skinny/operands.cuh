/* How a step of X is read for multiply-adds.  A part of kernel.cuh. */

/* Whether the block reads whole chunks: columns are aligned, and no chunk has rows beyond the last.
 * Rows of blocks and steps of k are whole chunks, so that the first element and the leading
 * dimension decide for all. */
HELPER bool is_wide(product p, place at)
{
    const bool aligned = ADDRESS(p.x) % 16 == 0 && p.ldx % CHUNK == 0;
    return aligned && (K_FAST_X || at.rows == ROWS);
}

/* Row and step of element v of a thread's chunk i along the rows, or u along k, counted from its
 * first element. */
template <bool WIDE> HELPER constexpr int row_from(int i, int v)
{
    if (K_FAST_X)
        return i * LANES_ROWS;
    return WIDE ? i * LANES_ROWS * CHUNK + v : (i * CHUNK + v) * LANES_ROWS;
}

template <bool WIDE> HELPER constexpr int step_from(int u, int v)
{
    if (!K_FAST_X)
        return u * LANES_K;
    return WIDE ? u * LANES_K * CHUNK + v : (u * CHUNK + v) * LANES_K;
}

template <bool WIDE> HELPER int first_row(void)
{
    return WIDE && !K_FAST_X ? LANE_ROW * CHUNK : LANE_ROW;
}

template <bool WIDE> HELPER int first_step(void)
{
    return WIDE && K_FAST_X ? LANE_K * CHUNK : LANE_K;
}

/* A thread's share of a step of X. */
struct share {
    chunk e[HELD_K][HELD_ROWS];
};

/* Read a chunk, element by element or at once: those of its elements that lie before the last row,
 * and before `left` in k where CHECKED; others are zero.  `rows` and `left` are counted from the
 * thread's first, `at` is the chunk's first element. */
template <bool WIDE, bool CHECKED>
HELPER void read_chunk(chunk *to, const operand *at, int i, int u, int rows, int left)
{
    if (WIDE && (!CHECKED || !K_FAST_X)) {
        chunk found = {};
        if ((!K_FAST_X || row_from<WIDE>(i, 0) < rows) &&
            (!CHECKED || step_from<WIDE>(u, 0) < left))
            found = load_chunk(at);
        *to = found;
        return;
    }
    const int apart = WIDE ? 1 : K_FAST_X ? LANES_K : LANES_ROWS;
    *to = {};
    UNROLL for (int v = 0; v < CHUNK; ++v)
        if (row_from<WIDE>(i, v) < rows && (!CHECKED || step_from<WIDE>(u, v) < left))
            put_element(to, v, load_element(at + v * apart));
}

/* Read a thread's share of a step.  `x` is its first element there; what is left of rows and of k
 * is counted from it.  Columns of X are `ld` apart: the outer loop goes along them, so that all
 * else is immediate offsets. */
template <bool WIDE, bool CHECKED>
HELPER void read_share(share *mine, const operand *x, isize ld, int rows, int left)
{
    const int outer = K_FAST_X ? HELD_ROWS : HELD_K, inner = K_FAST_X ? HELD_K : HELD_ROWS;
    const isize apart = ld * (K_FAST_X ? LANES_ROWS : LANES_K);
    UNROLL for (int o = 0; o < outer; ++o) {
        UNROLL for (int n = 0; n < inner; ++n) {
            const int i = K_FAST_X ? o : n, u = K_FAST_X ? n : o;
            const int beside = K_FAST_X ? step_from<WIDE>(u, 0) : row_from<WIDE>(i, 0);
            read_chunk<WIDE, CHECKED>(&mine->e[u][i], x + beside, i, u, rows, left);
        }
        if (o + 1 < outer)
            x = step(x, apart);
    }
}
