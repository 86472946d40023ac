/* The order in which blocks of C are computed; BLOCK_M, BLOCK_N and SWIZZLE_ROWS are macros. */

/* The place in C of the block with a number.  The grid is walked in bands of SWIZZLE_ROWS
 * block rows, column by column within a band: neighbours in time then share tiles of both
 * A and B in the cache.  One band holds all rows if SWIZZLE_ROWS is 0. */
HELPER void place_of_block(unsigned int number, isize m, isize n, PRIVATE isize *i0,
                           PRIVATE isize *j0)
{
    /* 32 bits: a grid has fewer than 2^31 blocks. */
    const unsigned int rows = (unsigned int)((m + BLOCK_M - 1) / BLOCK_M);
    const unsigned int columns = (unsigned int)((n + BLOCK_N - 1) / BLOCK_N);
    const unsigned int most = SWIZZLE_ROWS ? SWIZZLE_ROWS : rows;
    const unsigned int first = number / (most * columns) * most;
    const unsigned int band = rows - first < most ? rows - first : most;
    const unsigned int within = number - first * columns;
    *i0 = (isize)(first + within % band) * BLOCK_M;
    *j0 = (isize)(within / band) * BLOCK_N;
}
