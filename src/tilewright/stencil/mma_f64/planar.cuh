/* Fragments of PLANAR tiles: complex elements as real and imaginary parts, four real products.  A
 * part of mma.cuh.
 *
 *     product    0           1           2           3
 *                X Re(B)     Y Re(B)     X Im(B)     -Y Im(B)      X, Y: A's parts
 *     reads      Y                       Im(B)       X and Re(B) of the next step
 *                            Im(B)
 *
 * An instruction takes what it needs from consecutive registers as it was read; nothing is moved.
 * Before product 3 X and Re(B) have been multiplied for the last time, so that the next step's
 * are read in their place: reads run ahead, and fragments of one step are all that is held.
 *
 * X is Re(A), and products 0 and 3 go to C's real part, 1 and 2 to its imaginary part; if B is
 * conjugate X is Im(A), and it is the other way round.  So one sign of Y's is all that changes.
 */

#define FIRST_OF_A TURNED_BACK

/* Turns of a product. */
#define TURNS_OF_ONE (TURNS / 4)

HELPER void read_fragments(fragments *f, shared_at from_a, shared_at from_b, int l, int part)
{
    enum { ONE = TURNS_OF_ONE };
    UNROLL for (int word = 0; word < WORDS; ++word)
        read_side<WARP_M, PITCH_A, K_FAST_A, PAIR_M>(
            &f->a, from_a + word * imaginary<PITCH_A>(), l, part,
            word == FIRST_OF_A ? LAST_PRODUCT : 0, ONE, word);
    UNROLL for (int word = 0; word < WORDS; ++word)
        read_side<WARP_N, PITCH_B, K_FAST_B, PAIR_N>(&f->b, from_b + word * imaginary<PITCH_B>(), l,
                                                     part, word ? ONE : LAST_PRODUCT, ONE, word);
}

/* Instruction (i, j) of a product. */
HELPER void multiply_lines(elem *sum, const fragments *f, int i, int j, int product)
{
    REAL a[MMA_K / 2], b[MMA_K / 4], *c[4];
    const int of_a = (product & 1) ^ FIRST_OF_A, of_b = product >> 1;
    UNROLL for (int s = 0; s < MMA_K / 4; ++s) {
        UNROLL for (int r = 0; r < 2; ++r) {
            const REAL v = f->a.at[s][2 * i + r][of_a];
            a[2 * s + r] = product == 3 ? negative(v) : v;
        }
        b[s] = f->b.at[s][j][of_b];
    }
    UNROLL for (int r = 0; r < 2; ++r)
        UNROLL for (int e = 0; e < 2; ++e)
            c[2 * r + e] = (REAL *)&sum[(2 * j + e) * TILE_M + 2 * i + r] + (of_a ^ of_b);
    mma(c, a, b);
}

/* One of TURNS of a step's instructions, each product there and back. */
HELPER void multiply(elem *sum, const fragments *f, int part)
{
    enum { ROWS = WARP_M / 16, COLUMNS = WARP_N / 8, FAST = WALK ? COLUMNS : ROWS };
    enum { ROUND = ROWS * COLUMNS, ALL = 4 * ROUND };
    UNROLL for (int at = 0; at < ALL; ++at) {
        if (at * TURNS / ALL != part)
            continue;
        const int n = at % ROUND;
        const int slow = n / FAST, fast = slow % 2 ? FAST - 1 - n % FAST : n % FAST;
        multiply_lines(sum, f, WALK ? slow : fast, WALK ? fast : slow, at / ROUND);
    }
}
