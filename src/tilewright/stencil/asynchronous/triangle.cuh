/* Which tiles one triangle of a square C has.  Behind raster.h; what includes this has a tile, the
 * sides of blocks and clusters, and TRIANGLE.
 *
 * They are those of squares on and below the diagonal, or above, whose sides are whole clusters' tiles
 * both ways.  Tiles that are computed one after the other are to share rows and columns, so the squares
 * are folded to a rectangle (prelude/fold.h), which is walked as any C is (prelude/raster.h).  Tiles of
 * a square on the diagonal may lie in the other triangle, all or in part: they are computed, and that
 * is not stored.
 */

#include "prelude/fold.h"

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
    const unsigned int down = squares_down(n);
    tile at;
    place_of_block(number, (isize)folded_rows(down) * SQUARE_DOWN * BLOCK_M,
                   (isize)folded_columns(down) * SQUARE_ACROSS * BLOCK_N, &at.i0, &at.j0);
    const unsigned int i = (unsigned int)at.i0 / BLOCK_M, j = (unsigned int)at.j0 / BLOCK_N;
    unsigned int row = i / SQUARE_DOWN, column = j / SQUARE_ACROSS;
    unfold(down, &row, &column);
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
