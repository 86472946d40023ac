/* Inverses of the diagonal blocks of a row-major matrix's triangle: a block inverts WIDTH rows.
 *
 * UPPER 0: L, whose diagonal is 1; 1: U, whose transpose is inverted.
 *
 * Macros: UPPER, WIDTH, SLAB, THREADS.
 */
#define UNIT (!UPPER)

#include "lu/words.cuh"
#include "lu/inverse.cuh"

KERNEL THREADS_PER_BLOCK(THREADS) void lu_invert(isize n, const GLOBAL elem *a, isize ld,
                                                 GLOBAL elem *inverses)
{
    DYNAMIC_SHARED_ARRAY chunk shared[];
    elem *const inverted = (elem *)shared;        /* WIDTH x PITCH */
    elem *const rows = inverted + WIDTH * PITCH;  /* SLAB x PITCH */
    elem *const product = rows + SLAB * PITCH;
    const isize before = (isize)BLOCK_ID * WIDTH;
    const int width = n - before < WIDTH ? (int)(n - before) : WIDTH;
    a += before * (ld + 1);
    for (int i = THREAD_ID; i < WIDTH * PITCH; i += THREADS) inverted[i] = elem_zero();
    ROLLED for (int first = 0; first < WIDTH; first += SLAB) {
        BARRIER();
        for (int i = THREAD_ID; i < SLAB * WIDTH; i += THREADS) {
            /* Threads side by side read memory side by side. */
            const int k = UPPER ? i % SLAB : i / WIDTH, c = UPPER ? i / SLAB : i % WIDTH;
            const int row = first + k;
            elem v = row == c ? elem_one() : elem_zero(); /* outside: identity */
            if (row < width && c <= row)
                v = UPPER ? a[c * ld + row] : a[row * ld + c];
            rows[k * PITCH + c] = v;
        }
        BARRIER();
        grow_inverse(inverted, rows, product, first);
    }
    BARRIER();
    inverses += (isize)BLOCK_ID * WIDTH * WIDTH;
    for (int i = THREAD_ID; i < WIDTH * WIDTH; i += THREADS) {
        const int k = i / WIDTH, c = i % WIDTH;
        inverses[i] = UPPER ? inverted[c * PITCH + k] : inverted[k * PITCH + c];
    }
}
