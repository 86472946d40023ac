/* Prelude of double-double complex elements: a pair for the real part and one for the
 * imaginary part.  See double_double.h and complex.h, whose formulas these are.
 */
#define REAL double2
#define REAL_BYTES 16
#include "prelude/pair.h"

/* Aligned to 16 bytes as a pair is: no load is wider, and NumPy promises no more. */
typedef struct { pair re, im; } elem;
#define ELEM_BYTES (2 * REAL_BYTES)
#define SUM_NEEDS_CARE

HELPER pair pair_negative(pair x) { return pair_of(-x.x, -x.y); }

HELPER elem elem_scalar(REAL re, REAL im)
{
    elem z;
    z.re = re;
    z.im = im;
    return z;
}

HELPER elem elem_zero(void) { return elem_scalar(pair_of(0.0, 0.0), pair_of(0.0, 0.0)); }

HELPER int elem_is_zero(elem z) { return z.re.x == 0.0 && z.im.x == 0.0; }

HELPER elem elem_conj(elem z) { return elem_scalar(z.re, pair_negative(z.im)); }

HELPER elem elem_add(elem x, elem y)
{
    return elem_scalar(pair_add(x.re, y.re), pair_add(x.im, y.im));
}

HELPER elem elem_scale(elem scalar, elem x)
{
    elem z = elem_scalar(pair_multiply(scalar.re, x.re), pair_multiply(scalar.re, x.im));
    if (scalar.im.x != 0.0) {
        z.re = pair_add(z.re, pair_negative(pair_multiply(scalar.im, x.im)));
        z.im = pair_add(z.im, pair_multiply(scalar.im, x.re));
    }
    return z;
}

HELPER elem elem_madd(elem sum, elem x, elem y)
{
    sum.re = pair_madd(sum.re, x.re, y.re);
    sum.im = pair_madd(sum.im, x.re, y.im);
    sum.re = pair_madd(sum.re, pair_negative(x.im), y.im);
    sum.im = pair_madd(sum.im, x.im, y.re);
    return sum;
}

HELPER elem elem_settled(elem sum)
{
    return elem_scalar(pair_settled(sum.re), pair_settled(sum.im));
}

HELPER int elem_is_sound(elem sum) { return is_finite(sum.re.x) && is_finite(sum.im.x); }

HELPER elem elem_plain_madd(elem sum, elem x, elem y)
{
    sum.re = pair_plain(sum.re, x.re, y.re);
    sum.im = pair_plain(sum.im, x.re, y.im);
    sum.re = pair_plain(sum.re, pair_negative(x.im), y.im);
    sum.im = pair_plain(sum.im, x.im, y.re);
    return sum;
}
