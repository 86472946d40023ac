/* A result compared with what is right, bit for bit, and made useless for the next one.
 *
 *     c        words (i, j) of a column-major matrix, i < rows, j < columns, column j at ld j
 *     right    what they should be: words (i modulo PERIOD, j modulo COLUMNS), of a smaller matrix
 *     found    how many threads found a wrong word; row and column of a word that is wrong
 *
 * Zeros of either sign are equal.  Every word of c has all bits set afterwards, which is NaN in any
 * element of floating point: what the next kernel leaves out shows.
 *
 * Macros: WORD_BYTES (2 or 4, of which an element is one or more), THREADS.
 */
#if WORD_BYTES == 2
typedef unsigned short word;
#define MAGNITUDE 0x7fffu
#else
typedef unsigned int word;
#define MAGNITUDE 0x7fffffffu
#endif

/* Rows that a block compares at a time. */
#define ROWS 4096

KERNEL THREADS_PER_BLOCK(THREADS) void compare(isize rows, isize columns, GLOBAL word *RESTRICT c,
                                               isize ld, const GLOBAL word *RESTRICT right,
                                               int period, int period_columns,
                                               GLOBAL int *RESTRICT found)
{
    const isize pieces = (rows + ROWS - 1) / ROWS;
    const int step = THREADS % period;
    int wrong_row = -1, wrong_column = 0;
    for (isize piece = BLOCK_ID; piece < pieces * columns; piece += BLOCK_COUNT) {
        const isize j = piece / pieces, first = piece % pieces * ROWS;
        const GLOBAL word *const expected = right + j % period_columns * period;
        const int left = (int)(rows - first < ROWS ? rows - first : ROWS);
        GLOBAL word *const got = c + j * ld + first;
        int at = (int)((first + THREAD_ID) % period);
        for (int i = THREAD_ID; i < left; i += THREADS) {
            const unsigned int x = got[i], y = expected[at];
            got[i] = (word)~0u;
            if (x != y && ((x | y) & MAGNITUDE) != 0)
                wrong_row = (int)(first + i), wrong_column = (int)j;
            at += step;
            at -= at < period ? 0 : period;
        }
    }
    if (wrong_row >= 0 && ATOMIC_ADD(found, 1) == 0)
        found[1] = wrong_row, found[2] = wrong_column;
}
