/* Chunks: the elements of 16 bytes.  A part of kernel.cuh. */

#ifdef ELEMENT
typedef unsigned int word; /* some of them, the first one low */
#define WORD_BYTES 4
#else
typedef REAL word;
#define WORD_BYTES REAL_BYTES
#endif

#define CHUNK (16 / OPERAND_BYTES)

struct ALIGNED(16) chunk {
    word r[16 / WORD_BYTES];
};

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
    to->r[i * OPERAND_BYTES / WORD_BYTES] |= (word)v << (i * OPERAND_BYTES % WORD_BYTES * 8);
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
