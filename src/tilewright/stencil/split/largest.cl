/* First pass over both operands: the largest magnitude of each side, as bits.
 *
 * Bits of magnitudes are ordered as the numbers are; infinity and NaN come out above them all.
 * Tops are zero before (guard.h); what the second pass counts in, `words` ints, is made so here.
 */
#include "split/numbers.h"
#include "split/tiles.h"
#include "split/guard.h"

/* Leave the largest of this thread's elements of each side. */
HELPER void leave_largest(SHARED int *found, const PRIVATE floats *v, int side_inner)
{
    const int across = THREAD_ID % ACROSS, down = THREAD_ID / ACROSS;
    int most[VECTOR] = {0, 0, 0, 0};
    UNROLL for (int step = 0; step < STEPS; ++step) {
        UNROLL for (int e = 0; e < VECTOR; ++e) {
            const int size = (int)(bits_of(v[step].e[e]) & 0x7fffffffu);
            const int of = side_inner ? e : 0;
            most[of] = size > most[of] ? size : most[of];
        }
        if (!side_inner) {
            found[slot(step * DOWN + down, across, 0)] = most[0];
            most[0] = 0;
        }
    }
    if (side_inner)
        UNROLL for (int e = 0; e < VECTOR; ++e)
            found[slot(across * VECTOR + e, down, 1)] = most[e];
}

/* Tell the largest of a side that any of its sharers left. */
HELPER void tell_largest(GLOBAL int *top, const SHARED int *found, int side_inner)
{
    int size = 0;
    UNROLL for (int s = 0; s < SHARERS(side_inner); ++s) {
        const int one = found[slot(THREAD_ID, s, side_inner)];
        size = one > size ? one : size;
    }
    if (size)
        ATOMIC_MAX(top, size);
}

KERNEL THREADS_AND_BLOCKS(THREADS, TOGETHER) void largest(
    MATRICES, GLOBAL int *RESTRICT tops, GLOBAL int *RESTRICT sides, isize all, isize words
    STEPS_OF_BATCH)
{
    SHARED_ARRAY int found[SLOTS];
    LET_NEXT_BEGIN();
    GO_TO_PRODUCT
    const isize of_a = tiles_of(inner_a, outer_a);
    const int is_b = (isize)BLOCK_ID >= of_a, side_inner = is_b ? SIDE_INNER_B : SIDE_INNER_A;
    const matrix of = MATRIX(is_b);
    const tile t = tile_of((isize)BLOCK_ID - (is_b ? of_a : 0), of.inner, of.outer);
    floats v[STEPS];
    read_tile(v, of, t);
    for (isize w = (isize)BLOCK_ID * THREADS + THREAD_ID; w < words;
         w += (isize)BLOCK_COUNT * THREADS)
        sides[COUNT(w, 0)] = 0;
    if (side_inner) /* the compiler sees a number here */
        leave_largest(found, v, 1);
    else
        leave_largest(found, v, 0);
    BARRIER();
    GLOBAL int *const top =
        tops + TOP(of.first_side + (side_inner ? t.inner0 : t.outer0) + THREAD_ID);
    if (THREAD_ID >= SIDES_LEFT(t, side_inner))
        return;
    if (side_inner)
        tell_largest(top, found, 1);
    else
        tell_largest(top, found, 0);
}
