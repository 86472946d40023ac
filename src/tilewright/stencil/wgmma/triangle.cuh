/* Which tiles one triangle of a square C has.  A part of tiles.cuh.
 *
 * They are those of squares on and below the diagonal, or above, whose sides are whole clusters' tiles
 * both ways.  A band of tiles that are computed one after the other is to share rows and columns, so
 * the squares are folded to a rectangle, which is walked as any C is (prelude/raster.h): what is right
 * of its middle goes into the empty corner.  Square (row, column) of the lower triangle:
 *
 *     4 x 4                       5 x 2          5 x 5                          5 x 3
 *     | 00 .  .  . |              | 33 22 |      | 00 .  .  .  . |              | 00 44 33 |
 *     | 10 11 .  . |              | 00 32 |      | 10 11 .  .  . |              | 10 11 43 |
 *     | 20 21 22 . |              | 10 11 |      | 20 21 22 .  . |              | 20 21 22 |
 *     | 30 31 32 33|              | 20 21 |      | 30 31 32 33 . |              | 30 31 32 |
 *                                 | 30 31 |      | 40 41 42 43 44|              | 40 41 42 |
 *
 * The upper triangle has them transposed.  Tiles of a square on the diagonal may lie in the other
 * triangle, all or in part: they are computed, and that is not stored.
 */

/* Rows and columns of a square: what clusters' tiles have as a common multiple. */
HELPER constexpr int common_divisor(int x, int y) { return y ? common_divisor(y, x % y) : x; }
#define CLUSTER_ROWS (BLOCK_M * CLUSTER_M)
#define CLUSTER_COLUMNS (BLOCK_N * CLUSTER_N)
#define SQUARE (CLUSTER_ROWS / common_divisor(CLUSTER_ROWS, CLUSTER_COLUMNS) * CLUSTER_COLUMNS)
#define SQUARE_DOWN (SQUARE / CLUSTER_ROWS)
#define SQUARE_ACROSS (SQUARE / CLUSTER_COLUMNS)

HELPER unsigned int squares_down(isize n) { return (unsigned int)((n + SQUARE - 1) / SQUARE); }

/* The triangle's tiles of a cluster's size. */
HELPER unsigned int tiles_of_triangle(isize n)
{
    const unsigned int down = squares_down(n);
    return down * (down + 1) / 2 * (SQUARE_DOWN * SQUARE_ACROSS);
}

/* Where a cluster's tile of the triangle is, clusters counting as blocks. */
HELPER tile tile_of_triangle(isize n, unsigned int number, bool lower)
{
    const unsigned int down = squares_down(n), even = down % 2 == 0;
    tile at;
    place_of_block(number, (isize)(down + even) * SQUARE_DOWN * BLOCK_M,
                   (isize)((down + 1) / 2) * SQUARE_ACROSS * BLOCK_N, &at.i0, &at.j0);
    const unsigned int i = (unsigned int)at.i0 / BLOCK_M, j = (unsigned int)at.j0 / BLOCK_N;
    unsigned int row = i / SQUARE_DOWN, column = j / SQUARE_ACROSS;
    if (row >= column + even) {
        row -= even;
    } else {
        column = down - even - column;
        row += column;
    }
    at.i0 = (isize)((lower ? row : column) * SQUARE_DOWN + i % SQUARE_DOWN) * BLOCK_M;
    at.j0 = (isize)((lower ? column : row) * SQUARE_ACROSS + j % SQUARE_ACROSS) * BLOCK_N;
    return at;
}

/* Whether element (i, j) is in the triangle that is written. */
HELPER bool in_triangle(bool lower, isize i, isize j)
{
    return !TRIANGLE || (lower ? i >= j : i <= j);
}

/* Whether all elements of a block's tile are. */
HELPER bool is_of_triangle(bool lower, tile at)
{
    return lower ? in_triangle(lower, at.i0, at.j0 + BLOCK_N - 1)
                 : in_triangle(lower, at.i0 + BLOCK_M - 1, at.j0);
}
