/* From shared memory to registers, and multiplied.  A part of kernel.cuh. */

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

/* One column of the thread's part of op(A), and one row of its part of op(B). */
struct fragments {
    elem a[TILE_M], b[TILE_N];
};

/* `from_a` and `from_b` are where the thread's parts begin at l = 0 of a stage. */
HELPER void read_fragments(fragments *f, shared_at from_a, shared_at from_b, int l)
{
    UNROLL for (int c = 0; c < TILE_M / CHUNK; ++c) {
        const chunk v = read_chunk(from_a + (l * PITCH_A * ELEM_BYTES + c * LANES_M * 16));
        UNROLL for (int e = 0; e < CHUNK; ++e) f->a[c * CHUNK + e] = element_of(v, e);
    }
    UNROLL for (int c = 0; c < TILE_N / CHUNK; ++c) {
        const chunk v = read_chunk(from_b + (l * PITCH_B * ELEM_BYTES + c * LANES_N * 16));
        UNROLL for (int e = 0; e < CHUNK; ++e) f->b[c * CHUNK + e] = element_of(v, e);
    }
}

HELPER void multiply(elem *sum, const fragments *f)
{
    /* Down one column and up the next: a's last element is at hand where a column begins. */
    UNROLL for (int j = 0; j < TILE_N; ++j)
        UNROLL for (int step = 0; step < TILE_M; ++step) {
            const int i = j % 2 ? TILE_M - 1 - step : step;
            elem *to = &sum[j * TILE_M + i];
            *to = elem_madd(*to, CONJ_A ? elem_conj(f->a[i]) : f->a[i],
                            CONJ_B ? elem_conj(f->b[j]) : f->b[j]);
        }
}
