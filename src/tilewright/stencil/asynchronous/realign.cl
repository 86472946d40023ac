/* An operand laid down anew, so that the copy engine takes it: columns begin at multiples of 16
 * bytes, and memory runs along `inner`, whatever it ran along before.
 *
 *     from   element (i, j) at x[offset + i step_inner + j step_outer],   i < inner, j < outer
 *     to     element (i, j) at made[i + j ld],                  ld a multiple of 16 bytes
 *
 * A block brings SIDE x SIDE elements through shared memory, reads side by side what lies so in
 * x and writes side by side what lies so in made:
 *
 *     ALONG_INNER 1:  threads read along i         0:  along j, which transposes the operand
 *
 *     shared:  | SIDE of i | pad |  for each j: rows are an odd number of words long (of 4 bytes,
 *     or of an element that is longer), so that threads side by side along j meet all banks
 *
 * Numbers are moved as they are; conjugates differ in the sign of the last half, whose bit is the
 * highest of an element.
 *
 * With BATCHED it lays down the matrices of a batch, in two dimensions of it, one behind the other:
 *
 *     from   `within` matrices step_within apart, those behind them step_beyond from these
 *
 * Macros: ELEMENT_BYTES (1, 2, 4, 8 or 16), SIDE, ALONG_INNER, CONJUGATED, BATCHED (0 or 1).
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

/* A thread's rows of a tile lie so far apart, whether it reads or writes. */
#define APART (THREADS / SIDE)
#define APART_JOINED (THREADS / (SIDE / JOINED))

#if BATCHED
#define BATCH_ARGUMENTS , unsigned int within, isize step_within, isize step_beyond
#else
#define BATCH_ARGUMENTS
#endif

KERNEL THREADS_PER_BLOCK(THREADS) void realign(isize inner, isize outer,
                                               const GLOBAL element *RESTRICT x, isize offset,
                                               isize step_inner, isize step_outer,
                                               GLOBAL element *RESTRICT made,
                                               isize ld BATCH_ARGUMENTS)
{
    SHARED_ARRAY element tile[SIDE * PITCH];
    /* The next launch's blocks are not let in before all tiles are done: they would share the
     * multiprocessors that are free first, and find others idle afterwards. */
    WAIT_FOR_PREVIOUS();
#if BATCHED
    const unsigned int tiles = (unsigned int)((inner + SIDE - 1) / SIDE);
    const unsigned int all = tiles * (unsigned int)((outer + SIDE - 1) / SIDE);
    const unsigned int matrix = BLOCK_ID / all, number = BLOCK_ID % all;
    offset += (isize)(matrix % within) * step_within + (isize)(matrix / within) * step_beyond;
    made += (isize)matrix * outer * ld;
#else
    const isize tiles = (inner + SIDE - 1) / SIDE, number = BLOCK_ID;
#endif
    const isize i0 = (isize)(number % tiles) * SIDE, j0 = (isize)(number / tiles) * SIDE;
    const int i_left = (int)(inner - i0 < SIDE ? inner - i0 : SIDE);
    const int j_left = (int)(outer - j0 < SIDE ? outer - j0 : SIDE);
    {
        /* An address is added up once: four bytes in and out pay for few instructions. */
        const int side = THREAD_ID % SIDE, first = THREAD_ID / SIDE;
        const isize step_side = ALONG_INNER ? step_inner : step_outer;
        const isize step = ALONG_INNER ? step_outer : step_inner;
        const int side_left = ALONG_INNER ? i_left : j_left, left = ALONG_INNER ? j_left : i_left;
        const GLOBAL element *from = x + offset + i0 * step_inner + j0 * step_outer +
                                     side * step_side + first * step;
        UNROLL for (int at = first; at < SIDE; at += APART) {
            if (side < side_left && at < left)
                tile[ALONG_INNER ? at * PITCH + side : side * PITCH + at] = moved(*from);
            from += APART * step;
        }
    }
    BARRIER();
    const int i = THREAD_ID % (SIDE / JOINED) * JOINED, first = THREAD_ID / (SIDE / JOINED);
    GLOBAL element *to = made + i0 + i + (j0 + first) * ld;
    UNROLL for (int j = first; j < SIDE; j += APART_JOINED) {
        if (i < i_left && j < j_left) {
#if ELEMENT_BYTES < 4
            four word = 0;
            UNROLL for (int e = 0; e < 4; ++e)
                if (i + e < i_left) /* what comes after it is padding, and zero */
                    word |= (four)tile[j * PITCH + i + e] << 8 * ELEMENT_BYTES * e;
            *(GLOBAL four *)to = word;
#else
            *to = tile[j * PITCH + i];
#endif
        }
        to += APART_JOINED * ld;
    }
}
