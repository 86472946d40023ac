/* Double-double arithmetic on pairs, for the preludes of double-double elements.
 * docs/double_double.md has the proofs; u = 2^-53.
 *
 * FAST 0: "accurate".  Sums as AccurateDWPlusDW (algorithm 6) and products as DWTimesDW2
 *         (algorithm 11), but neither product nor sum is normalised on the way, since the next
 *         step's sums without error do that: 21 operations a multiply-add, where the algorithms
 *         one after the other take 29, and the error of a step is as small.
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

/* sum + x y, both words of which may overlap: pair_settled ends a sum. */
HELPER pair pair_madd(pair sum, pair x, pair y)
{
    const pair p = two_product(x.x, y.x);
    const double low = fused(x.x, y.y, fused(x.y, y.x, p.y));
    const pair s = two_sum(sum.x, p.x);
#if FAST
    return pair_of(s.x, plus(sum.y, plus(s.y, low)));
#else
    const pair t = two_sum(sum.y, low);
    const pair v = fast_two_sum(s.x, plus(s.y, t.x));
    return pair_of(v.x, plus(t.y, v.y));
#endif
}

/* A pair whose low word may have grown, normalised. */
HELPER pair pair_settled(pair x) { return fast_two_sum(x.x, x.y); }

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
