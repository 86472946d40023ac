/* A triangle of a square column-major matrix, moved: what a rank-k update needs beside products.
 *
 * MIRRORED 0: the triangles of the diagonal blocks, which are `block` wide (the last may be less),
 * from where they lie in one matrix to where they lie in another:
 *
 *     | 0 .  .  . |       a step from block 0 to 1, and so on: block (ld + 1) within a matrix,
 *     |   1  .  . |       block ld where blocks lie one behind the other
 *     |      2  . |
 *     |         3 |       element (i, j) of a block moves where i >= j (lower), or i <= j
 *
 * MIRRORED 1: the whole triangle of one matrix of one block, to its other side: (i, j) to (j, i).
 * A tile passes through shared memory, so that threads read and write side by side.
 *
 * With RUN_IF triangles of blocks are moved only where a word in device memory says so.  The launch may
 * have fewer thread blocks than tiles then: starting one takes time, even where it returns at once.
 *
 * Elements are moved as they are.  HERMITIAN 1: what is mirrored becomes its conjugate, and the
 * diagonal real; the imaginary part is the last half of an element.
 *
 * Macros: ELEMENT_BYTES (2, 4, 8, 16 or 32), MIRRORED, HERMITIAN (0 or 1).
 */
#include "prelude/run_if.h"

/* Rows and columns of a tile: of short elements that are mirrored more, so that as many bytes are on
 * their way at a time. */
#if MIRRORED && ELEMENT_BYTES <= 4
#define SIDE 64
#else
#define SIDE 32
#endif
#define THREADS 256
#define APART (THREADS / SIDE)

/* Of a tile's columns in shared memory, so that a row's elements lie in other banks: whole words more;
 * where that takes more than the 32 KiB that every OpenCL device has, they follow each other. */
#if ELEMENT_BYTES == 32 && defined(__OPENCL_VERSION__)
#define PITCH SIDE
#else
#define PITCH (SIDE + (ELEMENT_BYTES == 2 ? 2 : 1))
#endif

#if ELEMENT_BYTES == 2
typedef unsigned short element;
#elif ELEMENT_BYTES == 4
typedef unsigned int element;
#elif ELEMENT_BYTES == 8
typedef usize element;
#elif ELEMENT_BYTES == 16
typedef struct ALIGNED(16) { usize first, last; } element;
#else
typedef struct ALIGNED(16) { usize first, low, last, last_low; } element;
#endif

#if HERMITIAN
#define SIGN ((usize)1 << 63)

HELPER element conjugate(element x)
{
#if ELEMENT_BYTES == 8
    x ^= SIGN;
#else
    x.last ^= SIGN;
#endif
#if ELEMENT_BYTES == 32
    x.last_low ^= SIGN;
#endif
    return x;
}

HELPER element real_part(element x)
{
#if ELEMENT_BYTES == 8
    x &= ((usize)1 << 32) - 1;
#else
    x.last = 0;
#endif
#if ELEMENT_BYTES == 32
    x.last_low = 0;
#endif
    return x;
}
#else
#define conjugate(x) (x)
#define real_part(x) (x)
#endif

#if MIRRORED
#include "prelude/fold.h"

/* On a GPU whole tiles of short elements are moved in chunks.  PoCL 5 leaves out what other tiles of such
 * a kernel have to do, and a CPU gains nothing. */
#if ELEMENT_BYTES <= 4 && defined(__CUDACC__)
#define CHUNKED 1
#else
#define CHUNKED 0
#endif

#if CHUNKED
/* A whole tile beside the diagonal, of columns that begin at multiples of 8 bytes.  Threads read chunks
 * of columns, and put chunks of rows together of words that have one or two rows' elements:
 *
 *     column j    | a0 a1 | a2 a3 |  ...        chunk of row 0:  a0 b0 | c0 d0
 *            j+1  | b0 b1 | b2 b3 |  ...        chunk of row 1:  a1 b1 | c1 d1
 */
#define EACH (8 / ELEMENT_BYTES)
#define ROWS_OF_WORD (4 / ELEMENT_BYTES)
#define WORDS (PITCH / ROWS_OF_WORD)
#define CHUNKS (SIDE / EACH)

typedef struct ALIGNED(8) { unsigned int words[2]; } chunk;

HELPER void read_whole_tile(SHARED unsigned int *tile, const GLOBAL element *from, isize ld)
{
    UNROLL for (int at = THREAD_ID; at < CHUNKS * SIDE; at += THREADS) {
        const int i = at % CHUNKS, j = at / CHUNKS;
        const chunk v = *(const GLOBAL chunk *)(from + i * EACH + j * ld);
        UNROLL for (int w = 0; w < 2; ++w) tile[j * WORDS + 2 * i + w] = v.words[w];
    }
}

HELPER void write_whole_tile(GLOBAL element *to, isize ld, const SHARED unsigned int *tile)
{
    UNROLL for (int at = THREAD_ID; at < CHUNKS * SIDE / ROWS_OF_WORD; at += THREADS) {
        const int j = at % CHUNKS * EACH, i = at / CHUNKS;
        GLOBAL element *const row = to + j + i * ROWS_OF_WORD * ld;
        unsigned int of[EACH];
        UNROLL for (int e = 0; e < EACH; ++e) of[e] = tile[(j + e) * WORDS + i];
#if ELEMENT_BYTES == 2
        const chunk first = {{(of[0] & 0xffff) | of[1] << 16, (of[2] & 0xffff) | of[3] << 16}};
        const chunk second = {{of[0] >> 16 | (of[1] & 0xffff0000u), of[2] >> 16 | (of[3] & 0xffff0000u)}};
        *(GLOBAL chunk *)row = first;
        *(GLOBAL chunk *)(row + ld) = second;
#else
        const chunk only = {{of[0], of[1]}};
        *(GLOBAL chunk *)row = only;
#endif
    }
}
#endif

KERNEL THREADS_PER_BLOCK(THREADS) void mirror_triangle(isize n, GLOBAL element *x, isize offset,
                                                       isize ld, int lower)
{
#if CHUNKED
    SHARED_ARRAY unsigned int words[SIDE * WORDS];
    SHARED element *const tile = (SHARED element *)words;
#else
    SHARED_ARRAY element tile[SIDE * PITCH];
#endif
    const unsigned int down = (unsigned int)((n + SIDE - 1) / SIDE), rows_folded = folded_rows(down);
    unsigned int i0 = BLOCK_ID % rows_folded, j0 = BLOCK_ID / rows_folded;
    unfold(down, &i0, &j0);
    const isize row = (isize)(lower ? i0 : j0) * SIDE, column = (isize)(lower ? j0 : i0) * SIDE;
    const int side = THREAD_ID % SIDE, first = THREAD_ID / SIDE;
    const int rows = (int)(n - row < SIDE ? n - row : SIDE);
    const int columns = (int)(n - column < SIDE ? n - column : SIDE);
#if CHUNKED
    const int aligned = ADDRESS(x + offset) % sizeof(chunk) == 0 && ld % EACH == 0;
    const int is_whole = row != column && rows == SIDE && columns == SIDE && aligned;
    if (is_whole)
        read_whole_tile(words, x + offset + row + column * ld, ld);
    else
#endif
        UNROLL for (int j = first; j < SIDE; j += APART)
            if (side < rows && j < columns)
                tile[j * PITCH + side] = x[offset + row + side + (column + j) * ld];
    BARRIER();
#if CHUNKED
    if (is_whole) {
        write_whole_tile(x + offset + column + row * ld, ld, words);
        return;
    }
#endif
    UNROLL for (int i = first; i < SIDE; i += APART) {
        /* Element (i, side) of the tile. */
        const isize to = offset + column + side + (row + i) * ld;
        if (i >= rows || side >= columns)
            continue;
        if (lower ? row + i > column + side : row + i < column + side)
            x[to] = conjugate(tile[side * PITCH + i]);
#if HERMITIAN
        else if (row + i == column + side)
            x[to] = real_part(tile[side * PITCH + i]);
#endif
    }
}
#else
KERNEL THREADS_PER_BLOCK(THREADS) void copy_triangles(isize n, isize block,
                                                      const GLOBAL element *from, isize from_offset,
                                                      isize from_ld, isize from_step,
                                                      GLOBAL element *to, isize to_offset,
                                                      isize to_ld, isize to_step,
                                                      int lower RUN_IF_ARGUMENT)
{
    RETURN_UNLESS_WANTED
    /* 32 bits: there are fewer than 2^31 tiles. */
    const unsigned int down = (unsigned int)((block + SIDE - 1) / SIDE);
    const unsigned int tiles = (unsigned int)((n + block - 1) / block) * down * down;
    ROLLED for (unsigned int tile = BLOCK_ID; tile < tiles; tile += BLOCK_COUNT) {
        const isize number = tile / (down * down);
        const isize row = (isize)(tile % down) * SIDE, column = (isize)(tile / down % down) * SIDE;
        if (lower ? row < column : row > column)
            continue; /* of the other triangle */
        const isize left = n - number * block, side = left < block ? left : block;
        const isize i = row + THREAD_ID % SIDE, first = column + THREAD_ID / SIDE;
        const GLOBAL element *read = from + from_offset + number * from_step + i;
        GLOBAL element *write = to + to_offset + number * to_step + i;
        UNROLL for (int at = 0; at < SIDE; at += APART) {
            const isize j = first + at;
            if (i < side && j < side && (lower ? i >= j : i <= j)) {
                const element x = read[j * from_ld];
                write[j * to_ld] = i == j ? real_part(x) : x;
            }
        }
    }
}
#endif
