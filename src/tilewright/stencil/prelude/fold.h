/* One triangle of squares, those on the diagonal with it, folded to a rectangle without holes.
 *
 * What is right of the rectangle's last column goes into its empty corner.  Square (row, column) of
 * the lower triangle, where the rectangle has it:
 *
 *     4 x 4                       5 x 2          5 x 5                          5 x 3
 *     | 00 .  .  . |              | 33 22 |      | 00 .  .  .  . |              | 00 44 33 |
 *     | 10 11 .  . |              | 00 32 |      | 10 11 .  .  . |              | 10 11 43 |
 *     | 20 21 22 . |              | 10 11 |      | 20 21 22 .  . |              | 20 21 22 |
 *     | 30 31 32 33|              | 20 21 |      | 30 31 32 33 . |              | 30 31 32 |
 *                                 | 30 31 |      | 40 41 42 43 44|              | 40 41 42 |
 *
 * The upper triangle has them transposed.
 */

/* Rows and columns of the rectangle for so many squares down. */
HELPER unsigned int folded_rows(unsigned int down) { return down + (down % 2 == 0); }
HELPER unsigned int folded_columns(unsigned int down) { return (down + 1) / 2; }

/* From a place in the rectangle to the square that it has. */
HELPER void unfold(unsigned int down, PRIVATE unsigned int *row, PRIVATE unsigned int *column)
{
    const unsigned int even = down % 2 == 0;
    if (*row >= *column + even) {
        *row -= even;
    } else {
        *column = down - even - *column;
        *row += *column;
    }
}
