/* From shared memory to registers, and multiplied.  A part of mma.cuh, which has g and t.
 * Where fragments lie is in tiles.cuh, or with TMA in lines.cuh. */

/* The lane's first element in the block's part of C, and where its column j lies from there. */
HELPER int thread_row(void) { return warp_row() + first_row(); }
HELPER int thread_column(void) { return warp_column() + lane_t() * RUN; }
HELPER int column_of(int j) { return j / RUN * 4 * RUN + j % RUN; }

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

/* Read one of INTERLEAVE groups of step l, from where the lane's first element of the tile lies. */
template <int SIDE, int PITCH, int K_FAST, int PAIR>
HELPER void read_side(side<SIDE> *to, shared_at from, int l, int part)
{
    enum { ALONG_SIDE = !K_FAST && PAIR == 2 }; /* whether 16 bytes are two neighbours there */
    UNROLL for (int kk = 0; kk < STEP_K / 4; ++kk) {
        const int k = (l * (STEP_K / 4) + kk) * 4;
        UNROLL for (int x = 0; x < SIDE / 8; x += 1 + ALONG_SIDE) {
            if ((kk * (SIDE / 8) + x) * INTERLEAVE / (STEP_K / 4 * (SIDE / 8)) != part)
                continue;
            const shared_at place = fragment_at<PITCH, K_FAST, PAIR>(from, k, x);
            if (WORDS == 2 || ALONG_SIDE) {
                const chunk v = read_chunk(place);
                to->at[kk][x][0] = v.r[0];
                to->at[kk][x + ALONG_SIDE][WORDS - 1] = v.r[1];
            } else {
                to->at[kk][x][0] = read_real(place);
            }
        }
    }
}

HELPER void read_fragments(fragments *f, shared_at from_a, shared_at from_b, int l, int part)
{
    read_side<WARP_M, PITCH_A, K_FAST_A, PAIR_M>(&f->a, from_a, l, part);
    read_side<WARP_N, PITCH_B, K_FAST_B, PAIR_N>(&f->b, from_b, l, part);
}

/* conj(a) b is the conjugate of a conj(b): sums are of these, so that A's parts are multiplied as
 * they were read, whichever conjugates are asked for.  A conjugate of B multiplies A by -i. */
#define SUMS_CONJUGATE CONJ_A
#define TURNED_BACK (CONJ_A != CONJ_B)

/* The pair of A that an instruction takes for four steps along k: two rows; or the parts of a
 * complex row, for the imaginary parts of B times i. */
HELPER void pair_of_a(REAL *to, const fragments *f, int i, int kk, int part)
{
    if (WORDS == 1) {
        UNROLL for (int r = 0; r < 2; ++r) to[r] = f->a.at[kk][2 * i + r][0];
        return;
    }
    const REAL re = f->a.at[kk][i][0], im = f->a.at[kk][i][WORDS - 1];
    to[0] = part == 0 ? re : TURNED_BACK ? im : negative(im);
    to[1] = part == 0 ? im : TURNED_BACK ? negative(re) : re;
}

/* Instruction (i, j) of four steps, or more, from kk on, with one part of B. */
HELPER void multiply_lines(elem *sum, const fragments *f, int i, int j, int kk, int part)
{
    REAL a[MMA_K / 2], b[MMA_K / 4], *c[4];
    UNROLL for (int s = 0; s < MMA_K / 4; ++s) {
        pair_of_a(a + 2 * s, f, i, kk + s, part);
        b[s] = f->b.at[kk + s][j][part];
    }
    UNROLL for (int r = 0; r < 2; ++r)
        UNROLL for (int e = 0; e < 2; ++e) {
            const int column = PAIR_N == 2 ? j / 2 * 4 + 2 * e + j % 2 : 2 * j + e;
            const int row = WORDS == 1 ? 2 * i + r : i;
            c[2 * r + e] = (REAL *)&sum[column * TILE_M + row] + (WORDS == 1 ? 0 : r);
        }
    UNROLL for (int r = 0; r < 2; r += MMA_M / 8) mma(c + 2 * r, a + r, b);
}

/* One of INTERLEAVE groups of a step's instructions, serpentine, so that neighbours share an
 * operand; a complex sum's two are far apart. */
HELPER void multiply(elem *sum, const fragments *f, int part)
{
    enum { ROWS = WARP_M * WORDS / 16, COLUMNS = WARP_N / 8,
           FAST = SERPENTINE_ROWS ? COLUMNS : ROWS };
    enum { ROUND = ROWS * COLUMNS, ALL = STEP_K / MMA_K * WORDS * ROUND };
    UNROLL for (int at = 0; at < ALL; ++at) {
        if (at * INTERLEAVE / ALL != part)
            continue;
        const int n = at % ROUND, kk = at / ROUND / WORDS * (MMA_K / 4), word = at / ROUND % WORDS;
        const int slow = n / FAST, fast = slow % 2 ? FAST - 1 - n % FAST : n % FAST;
        multiply_lines(sum, f, SERPENTINE_ROWS ? slow : fast, SERPENTINE_ROWS ? fast : slow, kk,
                       word);
    }
}
