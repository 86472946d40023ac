/* From shared memory to registers, and multiplied.  A part of mma.cuh, which has g and t. */

/* Neighbours of a side that a lane has: of 16 rows or columns, x = 0 and 1 are CHUNK g + x.
 * Longer instructions want B's elements one by one where they lie along n: columns g and g + 8. */
#define PAIR_M (PLANAR ? 2 : CHUNK)
#define PAIR_N (K_FAST_B || MMA_K == 4 ? CHUNK : 1)

/* Columns of C that a lane has side by side. */
#define RUN (2 * PAIR_N)

HELPER int lane_g(void) { return THREAD_ID % 32 / 4; }
HELPER int lane_t(void) { return THREAD_ID % 4; }
HELPER int warp_row(void) { return THREAD_ID / 32 % WARPS_M * WARP_M; }
HELPER int warp_column(void) { return THREAD_ID / 32 / WARPS_M * WARP_N; }

/* The lane's first element in the block's part of C, and where its column j lies from there. */
HELPER int thread_row(void) { return warp_row() + lane_g() * CHUNK; }
HELPER int thread_column(void) { return warp_column() + lane_t() * RUN; }
HELPER int column_of(int j) { return j / RUN * 4 * RUN + j % RUN; }

/* Where the lane's first element lies in a tile; `side` is where its warp's part begins. */
template <int PITCH, int K_FAST, int PAIR> HELPER int first_fragment(int side)
{
    const int t = lane_t() * (1 + PAIRED_K);
    if (K_FAST)
        return (side + lane_g()) * PLANE_ROW + t * LAID_BYTES;
    return (t * PITCH + side + lane_g() * PAIR) * LAID_BYTES;
}
HELPER int first_fragment_a(void)
{
    return first_fragment<PITCH_A, K_FAST_A, PAIR_M>(warp_row());
}
HELPER int first_fragment_b(void)
{
    return first_fragment<PITCH_B, K_FAST_B, PAIR_N>(warp_column());
}

/* A lane's elements of one operand for a step: by fours of steps along k, lines of 8 rows or
 * columns, and real and imaginary part. */
template <int SIDE> struct side {
    REAL at[STEP_K / 4][SIDE / 8][WORDS];
};
struct fragments {
    side<WARP_M> a;
    side<WARP_N> b;
};

/* Read what is due in turn `part` of step l, from where the lane's first element of the tile lies:
 * reads take `turns` turns from `first` on.  `word` is the part of elements that is read, where
 * tiles are PLANAR. */
template <int SIDE, int PITCH, int K_FAST, int PAIR>
HELPER void read_side(side<SIDE> *to, shared_at from, int l, int part, int first, int turns,
                      int word)
{
    /* What 16 bytes are: an element, two along k, or two along the side. */
    enum { WHOLE = WORDS == 2 && !PLANAR };
    enum { ALONG_K = !WHOLE && K_FAST && PAIRED_K, ALONG_SIDE = !K_FAST && PAIR == 2 };
    UNROLL for (int kk = 0; kk < STEP_K / 4; kk += 1 + ALONG_K) {
        const int at = l * (STEP_K / 4) + kk;
        /* Steps along k lie PITCH apart; with pairs, the second of two fours one step on. */
        const int k = K_FAST ? 0 : PAIRED_K ? at / 2 * 8 + at % 2 : at * 4;
        const int plane = K_FAST ? at * 4 / DEEP : 0;
        UNROLL for (int x = 0; x < SIDE / 8; x += 1 + ALONG_SIDE) {
            if (first + (kk * (SIDE / 8) + x) * turns / (STEP_K / 4 * (SIDE / 8)) != part)
                continue;
            const shared_at place =
                from + (K_FAST ? (plane * PITCH + 8 * x) * PLANE_ROW : (k * PITCH + 8 * x) * LAID_BYTES);
            if (WHOLE || ALONG_K || ALONG_SIDE) {
                const chunk v = read_chunk(place);
                to->at[kk][x][word] = v.r[0];
                to->at[kk + ALONG_K][x + ALONG_SIDE][WHOLE ? 1 : word] = v.r[1];
            } else {
                to->at[kk][x][word] = read_real(place);
            }
        }
    }
}

/* conj(a) b is the conjugate of a conj(b): sums are of these, so that A's parts are multiplied as
 * they were read, whichever conjugates are asked for. */
#define SUMS_CONJUGATE CONJ_A
/* A conjugate of B turns A the other way. */
#define TURNED_BACK (CONJ_A != CONJ_B)
