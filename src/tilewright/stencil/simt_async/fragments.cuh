/* From shared memory to registers, and multiplied.  A part of simt.cuh. */

/* A thread's place in its block: which of the block's chunks of rows and columns. */
HELPER int thread_m(void)
{
    const int lane = THREAD_ID % 32, warp = THREAD_ID / 32 % WARPS_M;
    return warp * (LANES_M * TILE_M / CHUNK) + (lane % 2 + lane / 4 % (LANES_M / 2) * 2);
}

HELPER int thread_n(void)
{
    const int lane = THREAD_ID % 32, warp = THREAD_ID / 32 / WARPS_M;
    return warp * (LANES_N * TILE_N / CHUNK) + (lane / 2 % 2 + lane / 4 / (LANES_M / 2) * 2);
}

HELPER int first_fragment_a(void) { return thread_m() * 16 * (KEPT_A ? PITCH_A : 1); }
HELPER int first_fragment_b(void) { return thread_n() * 16 * (KEPT_B ? PITCH_B : 1); }

/* The thread's first element in the block's part of C, and where its rows and columns lie from
 * there. */
HELPER int thread_row(void) { return thread_m() * CHUNK; }
HELPER int thread_column(void) { return thread_n() * CHUNK; }
template <int LANES> HELPER int line_of(int x) { return x / CHUNK * LANES * CHUNK + x % CHUNK; }
HELPER int column_of(int j) { return line_of<LANES_N>(j); }

/* One column of the thread's part of op(A), and one row of its part of op(B). */
struct fragments {
    elem a[TILE_M], b[TILE_N];
};

/* Of an operand that is kept: as many steps as one read brings, for each of the thread's lines
 * (rows of A, or columns of B).  One copy of it is enough, because the last of these steps goes
 * from line to line, and a line that is done is read anew. */
struct kept {
    elem at[KEPT_A ? TILE_M : KEPT_B ? TILE_N : 1][CHUNK];
};

/* Read CHUNK steps of a line, from step l on. */
HELPER void read_line(kept *to, shared_at from_a, shared_at from_b, int x, int l)
{
    const int at = KEPT_A ? line_of<LANES_M>(x) * PITCH_A : line_of<LANES_N>(x) * PITCH_B;
    const chunk v = read_chunk((KEPT_A ? from_a : from_b) + (at + l) * ELEM_BYTES);
    UNROLL for (int e = 0; e < CHUNK; ++e) to->at[x][e] = element_of(v, e);
}

HELPER void read_first(kept *to, shared_at from_a, shared_at from_b)
{
    if (KEPT_A || KEPT_B)
        UNROLL for (int x = 0; x < (KEPT_A ? TILE_M : TILE_N); ++x)
            read_line(to, from_a, from_b, x, 0);
}

/* Read COUNT elements in chunks that lie LANES chunks apart. */
template <int COUNT, int LANES> HELPER void read_side(elem *to, shared_at from)
{
    UNROLL for (int c = 0; c < COUNT / CHUNK; ++c) {
        const chunk v = read_chunk(from + c * LANES * 16);
        UNROLL for (int e = 0; e < CHUNK; ++e) to[c * CHUNK + e] = element_of(v, e);
    }
}

/* `from_a` and `from_b` are where the thread's parts begin in row 0; row l is read. */
HELPER void read_fragments(fragments *f, shared_at from_a, shared_at from_b, int l, int)
{
    if (!B_FIRST && !KEPT_A)
        read_side<TILE_M, LANES_M>(f->a, from_a + l * PITCH_A * ELEM_BYTES);
    if (!KEPT_B)
        read_side<TILE_N, LANES_N>(f->b, from_b + l * PITCH_B * ELEM_BYTES);
    if (B_FIRST && !KEPT_A)
        read_side<TILE_M, LANES_M>(f->a, from_a + l * PITCH_A * ELEM_BYTES);
}

/* The element of the thread's tile that is multiplied as number `step`.  What a compiler makes
 * of an order shows in its registers: which operands it reuses, and which banks it reads. */
template <int ORDER> HELPER int in_order(int step)
{
    /* The tile is walked by lines of LINE: columns, or rows. */
    enum { ROWWISE = ORDER % 2, LINE = ROWWISE ? TILE_N : TILE_M };
    int line, at;
    if (ORDER < 2) { /* along one line and back the next: one operand is at hand at the turn */
        line = step / LINE;
        at = line % 2 ? LINE - 1 - step % LINE : step % LINE;
    } else { /* two lines at once, taking turns */
        const int pair = step / (2 * LINE), in = step % (2 * LINE);
        at = pair % 2 ? LINE - 1 - in / 2 : in / 2;
        line = 2 * pair + (at + in + pair) % 2;
    }
    return ROWWISE ? at * TILE_M + line : line * TILE_M + at;
}

HELPER void multiply_element(elem *sum, const fragments *f, const kept *held, int at, int l)
{
    const int i = at % TILE_M, j = at / TILE_M;
    const elem a = KEPT_A ? held->at[i][l % CHUNK] : f->a[i];
    const elem b = KEPT_B ? held->at[j][l % CHUNK] : f->b[j];
    sum[at] = elem_madd(sum[at], CONJ_A ? elem_conj(a) : a, CONJ_B ? elem_conj(b) : b);
}

/* Step l.  The next one's lie from `next_a` and `next_b` on. */
HELPER void multiply(elem *sum, const fragments *f, kept *held, shared_at next_a,
                     shared_at next_b, int l, int)
{
    if (!(KEPT_A || KEPT_B) || l % CHUNK < CHUNK - 1) {
        UNROLL for (int step = 0; step < TILE_M * TILE_N; ++step)
            multiply_element(sum, f, held, in_order<WALK>(step), l);
        return;
    }
    /* By rows of A or columns of B, or by two of them. */
    enum { ORDER = WALK / 2 * 2 + KEPT_A, ABREAST = 1 + WALK / 2 };
    enum { ALONG = ABREAST * (KEPT_A ? TILE_N : TILE_M), LINES = KEPT_A ? TILE_M : TILE_N };
    UNROLL for (int x = 0; x < LINES; x += ABREAST) {
        UNROLL for (int step = 0; step < ALONG; ++step)
            multiply_element(sum, f, held, in_order<ORDER>(x / ABREAST * ALONG + step), l);
        UNROLL for (int done = x; done < x + ABREAST; ++done)
            read_line(held, next_a, next_b, done, (l + 1) % STEPS);
    }
}
