/* Do two column-major matrices share an element?  Decided exactly, on addresses:
 *
 *     x:  |column 0|....|column 1|....|column 2|      rows side by side, then ld - rows
 *     y:        |column 0|..|column 1|..|column 2|       elements that are somebody else's
 *
 * Parts of one larger matrix, say its upper and its lower half, lie within each other's
 * extent and share nothing.
 */
#include "tilewright_internal.h"

/* Elements from the first to the end of the last. */
static int64_t extent(const tilewright_matrix *x) { return (x->columns - 1) * x->ld + x->rows; }

int tilewright_fits(const tilewright_matrix *x, int64_t element_bytes)
{
    const int64_t most = INT64_MAX / element_bytes;
    if (x->rows == 0 || x->columns == 0)
        return 1;
    if (x->rows > most || (x->columns > 1 && x->ld > (most - x->rows) / (x->columns - 1)))
        return 0;
    return (uintptr_t)(extent(x) * element_bytes) <= UINTPTR_MAX - x->first;
}

/* The quotient rounded down; y is positive. */
static int64_t floor_divided(int64_t x, int64_t y) { return x / y - (x % y < 0); }

/* Whether an interval [at, at + length) meets a column of y, whose first element is at 0. */
static int meets(int64_t at, int64_t length, const tilewright_matrix *y)
{
    /* The first column that ends behind the interval's beginning. */
    int64_t column = floor_divided(at - y->rows, y->ld) + 1;
    if (column < 0)
        column = 0;
    return column < y->columns && column * y->ld < at + length;
}

/* As above for all columns of x; they have y's leading dimension, so that only the difference
 * between two columns' numbers counts.  At most two differences bring columns together. */
static int meets_alike(int64_t at, const tilewright_matrix *x, const tilewright_matrix *y)
{
    int64_t later = floor_divided(at - y->rows, y->ld) + 1;
    for (; later * y->ld < at + x->rows; ++later) {
        /* Column j of x meets column j + later of y: is there such a j? */
        const int64_t first = later < 0 ? -later : 0;
        const int64_t end = y->columns - later < x->columns ? y->columns - later : x->columns;
        if (first < end)
            return 1;
    }
    return 0;
}

int tilewright_batch_fits(const tilewright_matrix *x, int64_t step, int64_t batch,
                          int64_t element_bytes)
{
    if (!tilewright_fits(x, element_bytes))
        return 0;
    if (batch < 2 || step == 0 || x->rows == 0 || x->columns == 0)
        return 1;
    const int64_t most = INT64_MAX / element_bytes - extent(x);
    return step <= most / (batch - 1) &&
           (uintptr_t)((extent(x) + step * (batch - 1)) * element_bytes) <= UINTPTR_MAX - x->first;
}

int tilewright_batches_meet(const tilewright_matrix *x, int64_t step_x, const tilewright_matrix *y,
                            int64_t step_y, int64_t batch, int64_t element_bytes)
{
    const int64_t along_x = extent(x) + step_x * (batch - 1);
    const int64_t along_y = extent(y) + step_y * (batch - 1);
    return x->first < y->first + (uintptr_t)(along_y * element_bytes) &&
           y->first < x->first + (uintptr_t)(along_x * element_bytes);
}

/* No two do where the batch steps over whole matrices, or its matrices lie between columns. */
int tilewright_meets_itself(const tilewright_matrix *x, int64_t step, int64_t batch)
{
    if (batch < 2 || step >= extent(x))
        return 0;
    return step < x->rows || batch - 1 > (x->ld - x->rows) / step;
}

int tilewright_overlap(const tilewright_matrix *x, const tilewright_matrix *y,
                       int64_t element_bytes)
{
    if (x->rows == 0 || x->columns == 0 || y->rows == 0 || y->columns == 0)
        return 0;
    if (x->first >= y->first + (uintptr_t)(extent(y) * element_bytes) ||
        y->first >= x->first + (uintptr_t)(extent(x) * element_bytes))
        return 0;
    if (x->columns > y->columns) {
        const tilewright_matrix *const other = x;
        x = y;
        y = other;
    }
    const int64_t at = x->first < y->first
                           ? -(int64_t)((y->first - x->first) / (uintptr_t)element_bytes)
                           : (int64_t)((x->first - y->first) / (uintptr_t)element_bytes);
    if (x->ld == y->ld)
        return meets_alike(at, x, y);
    for (int64_t j = 0; j < x->columns; ++j)
        if (meets(at + j * x->ld, x->rows, y))
            return 1;
    return 0;
}
