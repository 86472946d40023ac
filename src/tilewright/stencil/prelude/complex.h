/* Prelude of complex elements: arithmetic on `elem`, a REAL2 with the real part
 * in .x and the imaginary part in .y.  See real.h for what a prelude owes.
 */

typedef REAL2 elem;
#define ELEM_BYTES (2 * REAL_BYTES)

HELPER elem elem_scalar(REAL re, REAL im)
{
    elem z;
    z.x = re;
    z.y = im;
    return z;
}

HELPER elem elem_zero(void) { return elem_scalar((REAL)0, (REAL)0); }

HELPER int elem_is_zero(elem z) { return z.x == (REAL)0 && z.y == (REAL)0; }

HELPER elem elem_conj(elem z) { return elem_scalar(z.x, -z.y); }

HELPER elem elem_add(elem x, elem y) { return elem_scalar(x.x + y.x, x.y + y.y); }

/* alpha or beta times an element.  A scalar without an imaginary part only scales:
 * 0 * Inf would make a NaN that nobody asked for. */
HELPER elem elem_scale(elem scalar, elem x)
{
    elem z = elem_scalar(scalar.x * x.x, scalar.x * x.y);
    if (scalar.y != (REAL)0) {
        z.x = z.x - scalar.y * x.y;
        z.y = z.y + scalar.y * x.x;
    }
    return z;
}

/* sum + x y by the plain formula, as a Fortran or C loop has it: four multiply-adds
 * of reals, nothing scaled to avoid overflow. */
HELPER elem elem_madd(elem sum, elem x, elem y)
{
    sum.x = sum.x + x.x * y.x;
    sum.y = sum.y + x.x * y.y;
    sum.x = sum.x - x.y * y.y;
    sum.y = sum.y + x.y * y.x;
    return sum;
}
