/* Of every side its norm, and its magnitudes' sum in units of the norm that BASE moduli leave it.
 *
 *     norms        at least the 2-norm, of which exponent_of makes what the side is multiplied by
 *     magnitudes   sum |x| 2^(exponent - UNIT), at least; UNIT is floor(log2(MOST))
 *     inexact      0: judge.cl; bound.cl says of which sides rounding changes an element
 *
 * A norm outside of 2^-480 to 2^480, or one that is none, leaves the product to the native kernel: sums
 * of squares have lost nothing but what does not count beside that norm.
 *
 * Macros: MOST, a double (moduli.py), UNIT.
 */
#include "residues/tiles.h"

KERNEL THREADS_PER_BLOCK(THREADS) void scales(const GLOBAL double *RESTRICT partial, isize all,
                                              isize chunks, GLOBAL double *RESTRICT norms,
                                              GLOBAL float *RESTRICT magnitudes,
                                              GLOBAL int *RESTRICT inexact,
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
    magnitudes[side] = 0;
    inexact[side] = 0;
    if (norm == 0 && sum == 0)
        return;
    if (!(norm >= power_of_two(-480) && norm <= power_of_two(480))) {
        decision[UNFIT] = 1;
        return;
    }
    const double scaled = sum * power_of_two(exponent_of(norm, MOST) - UNIT);
    magnitudes[side] = (float)(scaled * (1 + 1e-6));
}
