/* Double-double arithmetic on pairs, for the preludes of double-double elements.
 *
 * FAST 0: "accurate".  Sums by AccurateDWPlusDW (algorithm 6: 20 operations, relative error
 *         below 3 u^2 + 13 u^3), products by DWTimesDW3 (algorithm 12: 9 operations, error
 *         below 4 u^2), u = 2^-53: 29 operations a multiply-add.
 * FAST 1: "fast".  The high words are summed without error, and all errors go into a low word
 *         (Dot2 of Ogita, Rump & Oishi, SIAM J. Sci. Comput. 26(6), 2005, on pairs): 12
 *         operations a multiply-add.  The low word grows and its own rounding with it, so
 *         SETTLE_STEPS steps are the most between two renormalisations.
 *
 * An intermediate result that is not finite makes a low word NaN, and soon the high one.
 * Kernels therefore look at their sums once, at the end, and compute those that are not
 * finite anew as a plain loop would (pair_plain): overflow, infinities and NaN are IEEE's.
 */
#include "prelude/error_free.h"

#if FAST
/* A power of two, and a multiple of every step of the kernels' loops over k. */
#define SETTLE_STEPS 32
#endif

HELPER pair pair_sum(pair x, pair y)
{
    const pair s = two_sum(x.x, y.x), t = two_sum(x.y, y.y);
    const pair v = fast_two_sum(s.x, plus(s.y, t.x));
    return fast_two_sum(v.x, plus(t.y, v.y));
}

HELPER pair pair_product(pair x, pair y)
{
    const pair c = two_product(x.x, y.x);
    const double low = fused(x.y, y.x, fused(x.x, y.y, times(x.y, y.y)));
    return fast_two_sum(c.x, plus(c.y, low));
}

/* sum + x y. */
HELPER pair pair_madd(pair sum, pair x, pair y)
{
#if FAST
    const pair p = two_product(x.x, y.x);
    const double low = fused(x.x, y.y, fused(x.y, y.x, p.y));
    const pair s = two_sum(sum.x, p.x);
    return pair_of(s.x, plus(sum.y, plus(s.y, low)));
#else
    return pair_sum(sum, pair_product(x, y));
#endif
}

/* A pair whose low word may have grown, normalised. */
HELPER pair pair_settled(pair x) { return FAST ? fast_two_sum(x.x, x.y) : x; }

/* The same sum in double precision, for what is not finite. */
HELPER pair pair_plain(pair sum, pair x, pair y)
{
    return pair_of(plus(sum.x, times(x.x, y.x)), 0.0);
}

/* Sum and product that are IEEE's where the result is not finite. */
HELPER pair pair_add(pair x, pair y)
{
    const pair z = pair_sum(x, y);
    return is_finite(z.x) ? z : pair_of(plus(x.x, y.x), 0.0);
}

HELPER pair pair_multiply(pair x, pair y)
{
    const pair z = pair_product(x, y);
    return is_finite(z.x) ? z : pair_of(times(x.x, y.x), 0.0);
}
