/* What either operand's sides are multiplied by before their magnitudes become bytes (measure.cl): the
 * power of two that brings the largest of SAMPLES elements to 2^8 and above.
 *
 * Nothing of the result depends on how good a sample is: an element that is too large for a byte counts
 * as the largest there is, one that is too small as zero.
 */
#include "residues/tiles.h"

#define SAMPLES 128
#define TAKEN (SAMPLES / (THREADS / SIDES))

KERNEL THREADS_PER_BLOCK(THREADS) void sample(MATRICES, GLOBAL int *RESTRICT units,
                                              GLOBAL int *RESTRICT places,
                                              GLOBAL int *RESTRICT decision)
{
    SHARED_ARRAY int found[THREADS];
    const isize of_a = (sides_a + SIDES - 1) / SIDES;
    const int is_b = (isize)BLOCK_ID >= of_a, own = THREAD_ID / SIDES;
    const matrix of = MATRIX(is_b);
    const isize side = ((isize)BLOCK_ID - (is_b ? of_a : 0)) * SIDES + THREAD_ID % SIDES;
    const isize along = is_b ? K_FAST_B : K_FAST_A;
    const isize across_k = along ? of.ld : 1, along_k = along ? 1 : of.ld;
    const isize stride = (k + SAMPLES - 1) / SAMPLES;
    int most = 0;
    UNROLL for (int i = 0; i < TAKEN; ++i) {
        const isize at = (i * (THREADS / SIDES) + own) * stride;
        if (side < of.sides && at < k)
            UNROLL for (int p = 0; p < PARTS; ++p) {
                const double x = of.x[(side * across_k + at * along_k) * PARTS + p];
                const int exponent = (int)(bits_of(x) >> 52 & 0x7ff);
                most = exponent > most ? exponent : most;
            }
    }
    found[THREAD_ID] = most;
    BARRIER();
    if (BLOCK_ID == 0 && THREAD_ID < TABLE_AT)
        decision[THREAD_ID] = 0;
    if (THREAD_ID >= SIDES)
        return;
    for (int i = 1; i < THREADS / SIDES; ++i)
        most = found[i * SIDES + THREAD_ID] > most ? found[i * SIDES + THREAD_ID] : most;
    const int unit = 8 + 1023 - most;
    units[of.first_side + side] = most == 0 ? 0 : unit < -500 ? -500 : unit > 500 ? 500 : unit;
    places[of.first_side + side] = NO_PLACE;
}
