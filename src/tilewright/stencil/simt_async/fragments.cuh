/* From shared memory to registers, and multiplied.  A part of simt.cuh. */

/* A thread's place in its block: which of the block's chunks of rows and columns. */
HELPER int thread_m(void)
{
    const int lane = THREAD_ID % 32, warp = PLACE_IN_LAYER / 32 % WARPS_M;
    return warp * (LANES_M * TILE_M / CHUNK) + (lane % 2 + lane / 4 % (LANES_M / 2) * 2);
}

HELPER int thread_n(void)
{
    const int lane = THREAD_ID % 32, warp = PLACE_IN_LAYER / 32 / WARPS_M;
    return warp * (LANES_N * TILE_N / CHUNK) + (lane / 2 % 2 + lane / 4 / (LANES_M / 2) * 2);
}

HELPER int first_fragment_a(void) { return thread_m() * 16; }
HELPER int first_fragment_b(void) { return thread_n() * 16; }

/* Columns of C that a thread has side by side. */
#define RUN CHUNK

/* The thread's first element in the block's part of C, and where its column j lies from there. */
HELPER int thread_row(void) { return thread_m() * CHUNK; }
HELPER int thread_column(void) { return thread_n() * CHUNK; }
HELPER int column_of(int j) { return j / CHUNK * LANES_N * CHUNK + j % CHUNK; }

/* One column of the thread's part of op(A), and one row of its part of op(B). */
struct fragments {
    elem a[TILE_M], b[TILE_N];
};

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
    if (!B_FIRST)
        read_side<TILE_M, LANES_M>(f->a, from_a + l * PITCH_A * ELEM_BYTES);
    read_side<TILE_N, LANES_N>(f->b, from_b + l * PITCH_B * ELEM_BYTES);
    if (B_FIRST)
        read_side<TILE_M, LANES_M>(f->a, from_a + l * PITCH_A * ELEM_BYTES);
}

/* The element of the thread's tile that is multiplied as number `step`.  What a compiler makes
 * of an order shows in its registers: which operands it reuses, and which banks it reads. */
HELPER int in_order(int step)
{
    /* Serpentine: along one line of LINE, a column or with SERPENTINE_ROWS a row, and back along the
     * next, so that neighbours share an operand. */
    enum { LINE = SERPENTINE_ROWS ? TILE_N : TILE_M };
    const int line = step / LINE, at = line % 2 ? LINE - 1 - step % LINE : step % LINE;
    return SERPENTINE_ROWS ? at * TILE_M + line : line * TILE_M + at;
}

HELPER void multiply(elem *sum, const fragments *f, int)
{
    UNROLL for (int step = 0; step < TILE_M * TILE_N; ++step) {
        const int at = in_order(step), i = at % TILE_M, j = at / TILE_M;
        sum[at] = elem_madd(sum[at], CONJ_A ? elem_conj(f->a[i]) : f->a[i],
                            CONJ_B ? elem_conj(f->b[j]) : f->b[j]);
    }
}
