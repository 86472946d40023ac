/* An operand laid down anew, so that the copy engine takes it: columns begin at multiples of 16
 * bytes, and memory runs along `inner`, whatever it ran along before.
 *
 *     from   element (i, j) at x[offset + i step_inner + j step_outer],   i < inner, j < outer
 *     to     element (i, j) at made[i + j ld],                  ld a multiple of 16 bytes
 *
 * A block brings SIDE x SIDE elements through shared memory, reads side by side what lies so in
 * x and writes side by side what lies so in made:
 *
 *     ALONG_INNER 1:  threads read along i         0:  along j, which turns the operand
 *
 *     shared:  | SIDE of i | pad |  for each j: rows are an odd number of words long (of 4 bytes,
 *     or of an element that is longer), so that threads side by side along j meet all banks
 *
 * Numbers are moved as they are; conjugates differ in the sign of the last half, whose bit is the
 * highest of an element.
 *
 * Macros: ELEMENT_BYTES (1, 2, 4, 8 or 16), SIDE, ALONG_INNER, CONJUGATED (0 or 1).
 */
#define THREADS 256

/* Elements that are written at once: CUDA's compiler does not join short stores. */
#define JOINED (ELEMENT_BYTES < 4 ? 4 : 1)

#define PITCH (SIDE + (ELEMENT_BYTES < 4 ? 4 / ELEMENT_BYTES : 1))

#define SIGN ((usize)1 << 63)

#if ELEMENT_BYTES == 1
typedef unsigned char element;
typedef unsigned int four;
#elif ELEMENT_BYTES == 2
typedef unsigned short element;
typedef usize four;
#elif ELEMENT_BYTES == 4
typedef unsigned int element;
#elif ELEMENT_BYTES == 8
typedef usize element;
#else
typedef struct ALIGNED(16) { usize first, last; } element;
#endif

HELPER element moved(element x)
{
#if CONJUGATED && ELEMENT_BYTES == 8
    x ^= SIGN;
#elif CONJUGATED
    x.last ^= SIGN;
#endif
    return x;
}

KERNEL THREADS_PER_BLOCK(THREADS) void realign(isize inner, isize outer,
                                               const GLOBAL element *RESTRICT x, isize offset,
                                               isize step_inner, isize step_outer,
                                               GLOBAL element *RESTRICT made, isize ld)
{
    SHARED_ARRAY element tile[SIDE * PITCH];
    const isize across = (inner + SIDE - 1) / SIDE;
    const isize i0 = (isize)BLOCK_ID % across * SIDE, j0 = (isize)BLOCK_ID / across * SIDE;
    UNROLL for (int t = 0; t < SIDE * SIDE / THREADS; ++t) {
        const int at = t * THREADS + THREAD_ID;
        const int i = ALONG_INNER ? at % SIDE : at / SIDE;
        const int j = ALONG_INNER ? at / SIDE : at % SIDE;
        if (i0 + i < inner && j0 + j < outer)
            tile[j * PITCH + i] =
                moved(x[offset + (i0 + i) * step_inner + (j0 + j) * step_outer]);
    }
    BARRIER();
    UNROLL for (int t = 0; t < SIDE * SIDE / THREADS / JOINED; ++t) {
        const int at = t * THREADS + THREAD_ID;
        const int i = at % (SIDE / JOINED) * JOINED, j = at / (SIDE / JOINED);
        if (i0 + i >= inner || j0 + j >= outer)
            continue;
#if ELEMENT_BYTES < 4
        four word = 0;
        UNROLL for (int e = 0; e < 4; ++e)
            if (i0 + i + e < inner) /* what comes after it is padding, and zero */
                word |= (four)tile[j * PITCH + i + e] << 8 * ELEMENT_BYTES * e;
        ((GLOBAL four *)made)[(i0 + i + (j0 + j) * ld) / 4] = word;
#else
        made[i0 + i + (j0 + j) * ld] = tile[j * PITCH + i];
#endif
    }
}
