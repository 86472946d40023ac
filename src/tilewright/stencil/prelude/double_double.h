/* Prelude of double-double real elements: `elem` is a pair, high word first.  See real.h for
 * what a prelude owes, and pair.h for the arithmetic.
 *
 * A prelude whose sums need care adds SUM_NEEDS_CARE and four functions: elem_settled,
 * elem_is_sound, elem_plain_madd, and SETTLE_STEPS if sums must be settled on the way.
 */
#define REAL double2
#define REAL_BYTES 16
#include "prelude/pair.h"

typedef pair elem;
#define ELEM_BYTES REAL_BYTES
#define SUM_NEEDS_CARE

HELPER elem elem_zero(void) { return pair_of(0.0, 0.0); }

HELPER elem elem_scalar(REAL re, REAL im) { return re; }

HELPER int elem_is_zero(elem x) { return x.x == 0.0; }

HELPER elem elem_conj(elem x) { return x; }

HELPER elem elem_add(elem x, elem y) { return pair_add(x, y); }

HELPER elem elem_scale(elem scalar, elem x) { return pair_multiply(scalar, x); }

HELPER elem elem_madd(elem sum, elem x, elem y) { return pair_madd(sum, x, y); }

HELPER elem elem_settled(elem sum) { return pair_settled(sum); }

HELPER int elem_is_sound(elem sum) { return is_finite(sum.x); }

HELPER elem elem_plain_madd(elem sum, elem x, elem y) { return pair_plain(sum, x, y); }
