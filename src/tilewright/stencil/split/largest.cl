/* First pass over an operand: the largest magnitude of each side, as bits.
 *
 * Bits of magnitudes are ordered as the numbers are; infinity and NaN come out above them all.
 */
#include "split/numbers.h"
#include "split/tiles.h"

KERNEL THREADS_PER_BLOCK(THREADS) void largest(isize inner, isize outer,
                                               const GLOBAL float *RESTRICT first, isize offset,
                                               isize ld, GLOBAL int *RESTRICT sides,
                                               isize first_side)
{
    SHARED_ARRAY int found[SLOTS];
    const tile t = tile_of(inner, outer);
    const GLOBAL float *const x = first + offset + t.inner0 + t.outer0 * ld;
    const int across = THREAD_ID % ACROSS, down = THREAD_ID / ACROSS;
    const int aligned = is_aligned(x, ld);
    int most[VECTOR] = {0, 0, 0, 0};
    for (int step = 0; step < STEPS; ++step) {
        const int o = step * DOWN + down;
        floats v = {{0, 0, 0, 0}};
        if (o < t.outer_left)
            v = read_floats(x + o * ld, across * VECTOR, t.inner_left, aligned);
        UNROLL for (int e = 0; e < VECTOR; ++e) {
            const int size = (int)(bits_of(v.e[e]) & 0x7fffffffu);
            if (size > most[SIDE_INNER ? e : 0])
                most[SIDE_INNER ? e : 0] = size;
        }
        if (!SIDE_INNER) {
            found[slot(o, across)] = most[0];
            most[0] = 0;
        }
    }
    if (SIDE_INNER)
        UNROLL for (int e = 0; e < VECTOR; ++e) found[slot(across * VECTOR + e, down)] = most[e];
    BARRIER();
    const int left = SIDE_INNER ? t.inner_left : t.outer_left;
    if (THREAD_ID < left) {
        int size = 0;
        for (int s = 0; s < SHARERS; ++s)
            if (found[slot(THREAD_ID, s)] > size)
                size = found[slot(THREAD_ID, s)];
        ATOMIC_MAX(sides + first_side + (SIDE_INNER ? t.inner0 : t.outer0) + THREAD_ID, size);
    }
}
