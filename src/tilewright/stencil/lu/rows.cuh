/* Rows of a row-major matrix brought into the order of pivots (panel.cuh), as one permutation.
 *
 *     order[k], k < top: the row that comes to row k;
 *     order[order[k]] where order[k] >= top: the row of the top that takes its place.
 *
 * A block moves so many columns as LINE_BYTES hold.
 *
 * WAY 0: rows that come to the top go to another matrix, `to`, and the top stays as it is.
 *     1: in place.   2: in place, the other way round: what was row k becomes row order[k].
 *
 * Macros: WAY, LINE_BYTES, THREADS (256).
 */
#define COLUMNS (LINE_BYTES / ELEM_BYTES)
#define APART (THREADS / COLUMNS)
#define SOME_AT_ONCE _Pragma("unroll 8")

KERNEL THREADS_PER_BLOCK(THREADS) void lu_rows(GLOBAL elem *a, isize ld, isize columns, int top,
                                               const GLOBAL int *order, GLOBAL elem *to,
                                               isize to_ld)
{
    const isize column = (isize)BLOCK_ID * COLUMNS + THREAD_ID % COLUMNS;
    const int first = THREAD_ID / COLUMNS;
    const bool inside = column < columns;
    a += column;
#if WAY == 0
    if (inside) {
        SOME_AT_ONCE for (int k = first; k < top; k += APART) {
            const int from = order[k];
            const elem v = a[from * ld];
            if (from >= top)
                a[from * ld] = a[order[from] * ld];
            to[k * to_ld + column] = v;
        }
    }
#else
    DYNAMIC_SHARED_ARRAY elem held[];
    if (inside)
        SOME_AT_ONCE for (int k = first; k < top; k += APART)
            held[k * COLUMNS + THREAD_ID % COLUMNS] = a[(WAY == 1 ? order[k] : k) * ld];
    BARRIER();
    if (inside)
        SOME_AT_ONCE for (int k = first; k < top; k += APART) {
            const int other = order[k];
            if (other < top)
                continue;
            if (WAY == 1) {
                a[other * ld] = a[order[other] * ld];
            } else {
                a[order[other] * ld] = a[other * ld];
                a[other * ld] = held[k * COLUMNS + THREAD_ID % COLUMNS];
            }
        }
    BARRIER();
    if (inside)
        for (int k = first; k < top; k += APART)
            if (WAY == 1)
                a[k * ld] = held[k * COLUMNS + THREAD_ID % COLUMNS];
            else if (order[k] < top)
                a[order[k] * ld] = held[k * COLUMNS + THREAD_ID % COLUMNS];
#endif
}
