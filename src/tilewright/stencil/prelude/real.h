/* Prelude of real elements: arithmetic on `elem`, which is one REAL.
 *
 * A prelude defines the type `elem`, ELEM_BYTES and the elem_ functions below;
 * kernel sources compute through these alone.
 */

typedef REAL elem;
#define ELEM_BYTES REAL_BYTES

HELPER elem elem_zero(void) { return (REAL)0; }

/* BLAS's scalar: its imaginary part means nothing here. */
HELPER elem elem_scalar(REAL re, REAL im) { return re; }

HELPER int elem_is_zero(elem x) { return x == (REAL)0; }

HELPER elem elem_conj(elem x) { return x; }

HELPER elem elem_add(elem x, elem y) { return x + y; }

/* alpha or beta times an element. */
HELPER elem elem_scale(elem scalar, elem x) { return scalar * x; }

/* sum + x y; not fma(), which some OpenCL compilers turn into a call. */
HELPER elem elem_madd(elem sum, elem x, elem y) { return sum + x * y; }
