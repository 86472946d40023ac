/* Who computes what.  A part of kernel.cuh. */

/* D = X Y: `rows` x `columns`, sums of k. */
struct product {
    isize rows, columns, k;
    const operand *x;
    isize ldx;
    const operand *y;
    isize ldy;
    output *c;
    isize ldc;
    elem alpha, beta;
};

/* A block's place in D, and how much of it lies inside. */
struct place {
    isize row, column;
    int rows, columns;
};

/* Steps along k, from one element of it to another. */
struct range {
    isize from, to;
};

HELPER int least(isize x, int most) { return x < most ? (int)x : most; }

HELPER unsigned int tiles_along(isize side, int tile)
{
    return (unsigned int)((side + tile - 1) / tile);
}

/* 32 bits: a grid has fewer than 2^31 blocks. */
HELPER unsigned int tiles_of(product p)
{
    return tiles_along(p.rows, ROWS) * tiles_along(p.columns, SHORT);
}

HELPER place place_of(product p, unsigned int tile)
{
    const unsigned int down = tiles_along(p.rows, ROWS);
    const isize row = (isize)(tile % down) * ROWS, column = (isize)(tile / down) * SHORT;
    return {row, column, least(p.rows - row, ROWS), least(p.columns - column, SHORT)};
}

/* Slice `number` of so many: whole steps, as many each or one more.  Steps are counted in 32 bits:
 * a sum that has more of them is longer than any memory. */
HELPER range range_of(isize k, unsigned int number, unsigned int slices)
{
    const unsigned int steps = tiles_along(k, BLOCK_K);
    const unsigned int each = steps / slices, more = steps % slices;
    const unsigned int first = each * number + (number < more ? number : more);
    const isize from = (isize)first * BLOCK_K;
    const isize to = from + (isize)(each + (number < more)) * BLOCK_K;
    return {from, to < k ? to : k};
}
