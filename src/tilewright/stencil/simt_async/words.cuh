/* Words that both a stencil's own source and kernel.cuh use. */

/* Whether an operand's memory is contiguous along k. */
#define K_FAST_A (TRANS_A)
#define K_FAST_B (!TRANS_B)

/* The widest access, 16 bytes, in elements. */
#define CHUNK (16 / ELEM_BYTES)

/* Where a stage may begin: the copy engine writes at multiples of so many bytes, unless what
 * multiplies has said more. */
#ifndef STAGE_ALIGNED
#define STAGE_ALIGNED 128
#endif

/* HELPER, but for `static`, which means something else within a struct. */
#define METHOD __device__ __forceinline__

/* How an operand's whole tiles are copied: a thread copies ROWS x PARTS pieces; parts of a
 * row lie at distances known to the compiler, rows a multiple of ld apart.  `layout` has
 * these numbers for each way. */
enum way {
    CHUNKS,   /* along m or n, 16 bytes */
    SCALARS, /* along m or n, single elements */
    ELEMENTS, /* along k, single elements, transposed by their addresses */
    PLANES,   /* along k, 16 bytes, k stays the fast index */
    SINGLES   /* the same by single elements */
};
template <int SIDE, int PITCH, way HOW> struct layout;
