/* How tiles lie that the copy engine brings, and where fragments are read.  A part of mma.cuh, in the
 * place of tiles.cuh.
 *
 * A box is a line of 128 bytes wide: 16 doubles, or 8 complex elements, side by side in the matrix.
 * Its lines are steps along k where an operand lies along m or n, else rows or columns; and in line r
 * the engine puts the piece of 16 bytes that is c-th in the matrix in place c ^ r % 8.  Boxes along m
 * or n are many; where that side of the matrix is whole lines, its map has a third dimension, from
 * line to line, and all are one box with that:
 *
 *     along m or n, a part for each 16 rows       along k, a box for each 16 steps
 *     +----+----+----+----+-- --+----+            +----+----+----+----+-- --+----+
 *     | 0  | 1  | 2  | 3  |     | 7  |  k         | 0  | 1  | 2  | 3  |     | 7  |  row 0
 *     +----+----+----+----+-- --+----+            +----+----+----+----+-- --+----+
 *     | 1  | 0  | 3  | 2  |     | 6  |  k + 1     | 1  | 0  | 3  | 2  |     | 6  |  row 1
 *     +----+----+----+----+-- --+----+            +----+----+----+----+-- --+----+
 *     | 2  | 3  | 0  | 1  |     | 5  |  k + 2     | 2  | 3  | 0  | 1  |     | 5  |  row 2
 *
 * Lanes that read at once, two g by four t with 16 bytes, four by four with 8, use all banks where
 * what they read differs in these bits: of pieces along m or n, four t swizzle the lower two, so that
 * neighbours g have pieces four apart; of rows, four t have two pieces, so that g have every second
 * row, or of complex elements all four, and neighbours rows four apart.  Which rows and columns of
 * the matrices lanes have is free, and so lane g has of a side, and C's columns of lane t follow:
 *
 *     doubles along k                  rows 2 g and 2 g + 1 of 16       columns 4 t to 4 t + 3 of 16
 *     doubles along m or n, in pairs   both of piece `piece_of(g)`      2 t, 2 t + 1 of each 8
 *     doubles along n, one by one      8 (g / 2) + g % 2, and every     8 t to 8 t + 7 of 32
 *                                      second behind it, of 32
 *     complex                          `piece_of(g)` of 8               t of each 4
 */

/* Elements of a line. */
#define IN_LINE (LINE / ELEM_BYTES)

/* Where doubles of B along n are read one by one. */
#define ONE_BY_ONE (WORDS == 1 && PAIR_N == 1)

/* Columns of C that a lane has side by side. */
#define RUN (WORDS == 2 ? 1 : ONE_BY_ONE ? 8 : K_FAST_B ? 4 : 2)

/* Of eight pieces, 0 4 1 5 2 6 3 7. */
HELPER int piece_of(int g) { return g / 2 + g % 2 * 4; }

/* Rows of A along m: staged results (simt_async/staged.cuh) have pieces q and q + 4 of four columns
 * written at once. */
#if !K_FAST_A
#define EXCHANGED(N) ((N) % 4)
#endif

/* Lane g's first row or column of a warp's. */
template <int K_FAST, int PAIR> HELPER int first_of_lane(void)
{
    const int g = lane_g();
    if (WORDS == 2)
        return piece_of(g);
    return PAIR == 1 ? g / 2 * 8 + g % 2 : 2 * (K_FAST ? g : piece_of(g));
}
HELPER int first_row(void) { return first_of_lane<K_FAST_A, PAIR_M>(); }

/* Where the lane's first element lies in a tile; `side` is where its warp's part begins. */
template <int PITCH, int K_FAST, int PAIR> HELPER int first_fragment(int side)
{
    const int at = side + first_of_lane<K_FAST, PAIR>(), t = lane_t();
    if (K_FAST)
        return at * LINE + (t * ELEM_BYTES ^ at % 8 * 16);
    return (at / IN_LINE * BLOCK_K + t) * LINE + (at % IN_LINE * ELEM_BYTES ^ t * 16);
}

/* Where the element lies that is k steps (of four) and x lines of 8 rows or columns from there. */
template <int PITCH, int K_FAST, int PAIR> HELPER shared_at fragment_at(shared_at from, int k, int x)
{
    /* Rows or columns on, and from these lines and what swizzles a place in a line. */
    const int on = WORDS == 2 ? 8 * x : PAIR == 1 ? x / 4 * 32 + x % 4 * 2 : x / 2 * 16 + x % 2;
    if (K_FAST)
        return (from ^ (k % IN_LINE * ELEM_BYTES ^ on % 8 * 16))
            + (k / IN_LINE * PITCH + on) * LINE;
    return (from ^ (on % IN_LINE * ELEM_BYTES ^ k % 8 * 16)) + (on / IN_LINE * BLOCK_K + k) * LINE;
}
