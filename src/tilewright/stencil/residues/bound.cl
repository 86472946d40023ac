/* Second pass: a lower bound of every magnitude, in FP8 (E5M2), for a bound of |A| |B| from below.
 *
 *     byte   |x| 2^(exponent - UNIT + 14) cut to 3 significant bits, 0 below 2^-16
 *
 * exponent is the side's for BASE moduli, so that |x| 2^(exponent - UNIT) < 2.  Sides of which rounding
 * to integers changes an element are marked in `inexact`.
 *
 * Macros: MOST, UNIT.
 */
#include "residues/planes.h"

/* The bits of a positive number in E5M2, cut. */
HELPER int cut(double x)
{
    const int high = (int)(bits_of(x) >> 50), e = (high >> 2) - 1023; /* with two bits behind it */
    if (e >= -14)
        return (e + 15) << 2 | (high & 3);
    return e == -15 ? 2 + (high >> 1 & 1) : e == -16;
}

/* A magnitude, or what is at most one. */
HELPER double magnitude(const PRIVATE double *x)
{
#if PARTS == 1
    return fabs(x[0]);
#else
    const double re = fabs(x[0]), im = fabs(x[1]), most = re > im ? re : im;
    const double mean = 0.7071 * (re + im);
    return most > mean ? most : mean;
#endif
}

KERNEL THREADS_PER_BLOCK(THREADS) void bound(MATRICES, PLANES_OF_BOTH,
                                             const GLOBAL double *RESTRICT norms,
                                             GLOBAL int *RESTRICT inexact,
                                             const GLOBAL int *RESTRICT decision)
{
    SHARED_ARRAY double space[SPACE];
    double v[STEPS * 4 * PARTS];
    if (decision[UNFIT])
        return;
    BLOCK_OF_BOTH(v, space)
    UNROLL for (int step = 0; step < STEPS; ++step) {
        const isize side = t.side0 + step * DOWN + down;
        const int inside = step * DOWN + down < t.sides_left && at < t.ks_left;
        const int exponent = exponent_of(norms[of.first_side + side], MOST);
        const double whole = power_of_two(exponent), unit = power_of_two(exponent - UNIT + 14);
        int rounds = 0, bytes[4];
        UNROLL for (int e = 0; e < 4; ++e) {
            const PRIVATE double *const x = v + (step * 4 + e) * PARTS;
            UNROLL for (int p = 0; p < PARTS; ++p) rounds |= rint(x[p] * whole) != x[p] * whole;
            bytes[e] = cut(magnitude(x) * unit);
        }
        if (inside && rounds)
            inexact[of.first_side + side] = 1; /* whoever writes it writes this */
        if (inside)
            *(GLOBAL unsigned int *)(to.first + side * ld_planes + t.k0 + at) =
                four_bytes(bytes[0], bytes[1], bytes[2], bytes[3]);
    }
}
