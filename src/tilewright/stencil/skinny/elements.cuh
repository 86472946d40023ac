/* What A, B and C hold, beside the sums.  A part of kernel.cuh.
 *
 *     operand     an element of A or B in memory
 *     elem        of sums, alpha and beta: the prelude's
 *     output      an element of C in memory: a sum, rounded once
 *
 * All are one type where ELEMENT and OUTPUT are not given with the source.  Else the prelude is
 * that of single precision, ELEMENT names a format of 16 bits, and OUTPUT the same or OUTPUT_F32.
 */

#define ELEMENT_F16 1
#define ELEMENT_BF16 2
#define OUTPUT_F32 1
#define OUTPUT_F16 2
#define OUTPUT_BF16 3

#ifdef ELEMENT
typedef unsigned short operand; /* the bits */
typedef unsigned int word;      /* two of them, the first one low */
#define OPERAND_BYTES 2
#define WORD_BYTES 4
#else
typedef elem operand;
typedef REAL word;
#define OPERAND_BYTES ELEM_BYTES
#define WORD_BYTES REAL_BYTES
#endif

#if defined(OUTPUT) && OUTPUT != OUTPUT_F32
typedef unsigned short output; /* the bits */
#else
typedef elem output;
#endif

/* Elements of 16 bytes, and these. */
#define CHUNK (16 / OPERAND_BYTES)

struct ALIGNED(16) chunk {
    word r[16 / WORD_BYTES];
};

HELPER elem widened(elem v) { return v; }
#ifdef ELEMENT
HELPER elem widened(operand bits);
#endif

#ifndef ELEMENT
/* Element i of a chunk. */
HELPER elem element_of(chunk v, int i)
{
#if ELEM_BYTES == REAL_BYTES
    return v.r[i];
#else
    return elem_scalar(v.r[2 * i], v.r[2 * i + 1]);
#endif
}
#endif

/* Put element i where nothing but zeros and earlier elements is. */
HELPER void put_element(chunk *to, int i, operand v)
{
#ifdef ELEMENT
    to->r[i / 2] |= (word)v << (i % 2 * 16);
#elif ELEM_BYTES == REAL_BYTES
    to->r[i] = v;
#else
    to->r[2 * i] = v.x, to->r[2 * i + 1] = v.y;
#endif
}

HELPER operand operand_zero(void)
{
#ifdef ELEMENT
    return 0;
#else
    return elem_zero();
#endif
}

HELPER operand operand_conj(operand v)
{
#ifdef ELEMENT
    return v;
#else
    return elem_conj(v);
#endif
}
