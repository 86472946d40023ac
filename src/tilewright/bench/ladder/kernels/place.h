/* Which block of C a thread block computes.
 *
 * Blocks of C have numbers; they go through C in bands of BAND block rows, column by column within
 * a band.  With BAND 1 that is row by row.
 *
 *     BAND 1    0 1 2 3        BAND 2    0 2 4 6
 *               4 5 6 7                  1 3 5 7        (4 x 2 blocks of C)
 *
 * Blocks that run at the same time then need few rows of A and few columns of B, and find them in
 * the L2 cache. */

/* First row and column of C of block `number`. */
HELPER void place_of(unsigned int number, isize m, isize n, PRIVATE isize *row,
                     PRIVATE isize *column)
{
    /* 32 bits: a grid has fewer than 2^31 blocks. */
    const unsigned int rows = (unsigned int)((m + BLOCK_M - 1) / BLOCK_M);
    const unsigned int columns = (unsigned int)((n + BLOCK_N - 1) / BLOCK_N);
    const unsigned int first = number / (BAND * columns) * BAND;
    const unsigned int band = rows - first < BAND ? rows - first : BAND;
    const unsigned int within = number - first * columns;
    *row = (isize)(first + within % band) * BLOCK_M;
    *column = (isize)(within / band) * BLOCK_N;
}
