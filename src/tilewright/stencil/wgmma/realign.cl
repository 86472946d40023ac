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
 *     shared:  | SIDE of i | pad |  for each j: rows are an odd number of 4-byte words long, so
 *     that threads side by side along j meet all banks
 *
 * Macros: ELEMENT_BYTES (1 or 2), ALONG_INNER.
 */
#define SIDE 64
#define THREADS 256
#define PITCH (SIDE + 4 / ELEMENT_BYTES)

#if ELEMENT_BYTES == 1
typedef unsigned char element;
typedef unsigned int four;
#else
typedef unsigned short element;
typedef usize four;
#endif

KERNEL THREADS_PER_BLOCK(THREADS) void realign(isize inner, isize outer,
                                               const GLOBAL element *RESTRICT x, isize offset,
                                               isize step_inner, isize step_outer,
                                               GLOBAL four *RESTRICT made, isize ld)
{
    SHARED_ARRAY element tile[SIDE * PITCH];
    const isize across = (inner + SIDE - 1) / SIDE;
    const isize i0 = (isize)BLOCK_ID % across * SIDE, j0 = (isize)BLOCK_ID / across * SIDE;
    for (int at = THREAD_ID; at < SIDE * SIDE; at += THREADS) {
        const int i = ALONG_INNER ? at % SIDE : at / SIDE;
        const int j = ALONG_INNER ? at / SIDE : at % SIDE;
        element found = 0;
        if (i0 + i < inner && j0 + j < outer)
            found = x[offset + (i0 + i) * step_inner + (j0 + j) * step_outer];
        tile[j * PITCH + i] = found;
    }
    BARRIER();
    /* Four neighbours are one word: CUDA's compiler does not join short stores. */
    for (int at = THREAD_ID; at < SIDE * SIDE / 4; at += THREADS) {
        const int i = at % (SIDE / 4) * 4, j = at / (SIDE / 4);
        if (i0 + i >= inner || j0 + j >= outer)
            continue;
        four word = 0;
        UNROLL for (int e = 0; e < 4; ++e)
            word |= (four)tile[j * PITCH + i + e] << 8 * ELEMENT_BYTES * e;
        made[(i0 + i + (j0 + j) * ld) / 4] = word;
    }
}
