/* Of every side its norm, and what it has to do with errors, in units of its bytes (measure.cl).
 *
 *     norms        the 2-norm, of which exponent_of makes what the side is multiplied by
 *     magnitudes   sum |x| 2^unit, at least
 *     steps        2^(unit + UNIT - exponent), with the fewest moduli, or 0 where all elements are
 *                  integers at that exponent; then of all sides the same with the most moduli; UNIT is
 *                  floor(log2(MOST))
 *
 * A norm outside of 2^-480 to 2^480, or one that is none, leaves the product to the native kernel: sums
 * of squares have lost nothing but what does not count beside that norm.  So do sides whose sample
 * said nothing of them: FP32 holds all others' numbers.
 *
 * Macros: MOST, TOP_MOST, doubles (moduli.py), UNIT.
 */
#include "residues/tiles.h"

KERNEL THREADS_PER_BLOCK(THREADS) void scales(const GLOBAL double *RESTRICT partial, isize all,
                                              isize chunks, const GLOBAL int *RESTRICT units,
                                              const GLOBAL int *RESTRICT places,
                                              GLOBAL double *RESTRICT norms,
                                              GLOBAL float *RESTRICT magnitudes,
                                              GLOBAL float *RESTRICT steps,
                                              GLOBAL int *RESTRICT decision)
{
    const isize side = (isize)BLOCK_ID * THREADS + THREAD_ID;
    if (side >= all)
        return;
    double squares = 0, sum = 0;
    for (isize c = 0; c < chunks; ++c) {
        squares += partial[c * all + side];
        sum += partial[(chunks + c) * all + side];
    }
    const double norm = sqrt(squares);
    norms[side] = norm;
    magnitudes[side] = steps[side] = steps[all + side] = 0;
    if (norm == 0 && sum == 0)
        return;
    const int unit = units[side], exponent = exponent_of(norm, MOST), top = exponent_of(norm, TOP_MOST);
    const double scaled = sum * power_of_two(unit);
    if (!(norm >= power_of_two(-480) && norm <= power_of_two(480) && scaled >= power_of_two(-60) &&
          scaled <= power_of_two(60))) {
        decision[UNFIT] = 1;
        return;
    }
    magnitudes[side] = (float)(scaled * (1 + 1e-6));
    if (places[side] > exponent)
        steps[side] = (float)power_of_two(unit + UNIT - exponent);
    if (places[side] > top)
        steps[all + side] = (float)power_of_two(unit + UNIT - top);
}
