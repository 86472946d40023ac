/* What A, B and C hold, beside the sums.
 *
 *     operand     an element of A or B in memory
 *     elem        of sums, alpha and beta: the prelude's
 *     output      an element of C in memory: a sum, rounded once
 *
 * All are one type where ELEMENT and OUTPUT are not given with the source.  Else the prelude is
 * that of the sums, ELEMENT names a format of 16 or 8 bits, and OUTPUT C's.
 */

#include "prelude/formats.h"

#ifdef ELEMENT
#if ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
typedef unsigned short operand; /* the bits */
#define OPERAND_BYTES 2
#else
typedef unsigned char operand;
#define OPERAND_BYTES 1
#endif
#else
typedef elem operand;
#define OPERAND_BYTES ELEM_BYTES
#endif

#if defined(OUTPUT) && (OUTPUT == OUTPUT_F16 || OUTPUT == OUTPUT_BF16)
#define ROUNDED 1
#define OUTPUT_BYTES 2
typedef unsigned short output; /* the bits */
#else
#define ROUNDED 0
#define OUTPUT_BYTES ELEM_BYTES
typedef elem output;
#endif

HELPER elem widened(elem v) { return v; }
#if !ROUNDED
HELPER output rounded(elem v) { return v; }
#endif

/* Of 16 bits: elements of A and B, or C's.  Whoever runs this source elsewhere defines EMULATED, and
 * `widened` and `rounded` of these. */
#if defined(ELEMENT) && (OPERAND_BYTES == 2 || ROUNDED) && !defined(EMULATED)
#if ELEMENT == ELEMENT_F16 || OUTPUT == OUTPUT_F16
#define FORMAT "f16"
#else
#define FORMAT "bf16"
#endif

HELPER elem widened(unsigned short bits)
{
    elem v;
    asm("cvt.f32." FORMAT " %0, %1;" : "=f"(v) : "h"(bits));
    return v;
}

#if ROUNDED
/* A result to the nearest number that C has, ties to even. */
HELPER output rounded(elem v)
{
    output bits;
    asm("cvt.rn." FORMAT ".f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}
#endif
#endif
