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
 * Elements are moved as they are.  HERMITIAN 1: what is mirrored becomes its conjugate, and the
 * diagonal real; the imaginary part is the last half of an element.
 *
 * Macros: ELEMENT_BYTES (2, 4, 8, 16 or 32), MIRRORED, HERMITIAN (0 or 1).
 */
/* Rows of a tile, and columns of one that is mirrored: of short elements more, so that as many bytes
 * are on their way at a time. */
#if MIRRORED && ELEMENT_BYTES <= 4
#define SIDE 64
#else
#define SIDE 32
#endif
#define THREADS 256
#define APART (THREADS / SIDE)

/* Columns of a tile that is copied. */
#define COLUMNS 64

/* Of a tile's rows in shared memory, so that a column's elements lie in other banks; where that takes
 * more than the 32 KiB that every OpenCL device has, they follow each other. */
#if ELEMENT_BYTES == 32 && defined(__OPENCL_VERSION__)
#define PITCH SIDE
#else
#define PITCH (SIDE + 1)
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
KERNEL THREADS_PER_BLOCK(THREADS) void mirror_triangle(isize n, GLOBAL element *x, isize offset,
                                                       isize ld, int lower)
{
    SHARED_ARRAY element tile[SIDE * PITCH];
    /* Tiles on and below the diagonal, folded to a rectangle (wgmma/triangle.cuh draws it). */
    const unsigned int down = (unsigned int)((n + SIDE - 1) / SIDE), even = down % 2 == 0;
    unsigned int i0 = BLOCK_ID % (down + even), j0 = BLOCK_ID / (down + even);
    if (i0 >= j0 + even) {
        i0 -= even;
    } else {
        j0 = down - even - j0;
        i0 += j0;
    }
    const isize row = (isize)(lower ? i0 : j0) * SIDE, column = (isize)(lower ? j0 : i0) * SIDE;
    const int side = THREAD_ID % SIDE, first = THREAD_ID / SIDE;
    const int rows = (int)(n - row < SIDE ? n - row : SIDE);
    const int columns = (int)(n - column < SIDE ? n - column : SIDE);
    UNROLL for (int j = first; j < SIDE; j += APART)
        if (side < rows && j < columns)
            tile[j * PITCH + side] = x[offset + row + side + (column + j) * ld];
    BARRIER();
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
                                                      isize to_ld, isize to_step, int lower)
{
    /* 32 bits: a grid has fewer than 2^31 blocks. */
    const unsigned int down = (unsigned int)((block + SIDE - 1) / SIDE);
    const unsigned int across = (unsigned int)((block + COLUMNS - 1) / COLUMNS);
    const unsigned int number = BLOCK_ID / (down * across), tile = BLOCK_ID % (down * across);
    const isize row = (isize)(tile % down) * SIDE, column = (isize)(tile / down) * COLUMNS;
    if (lower ? row + SIDE <= column : row >= column + COLUMNS)
        return; /* of the other triangle */
    const isize left = n - number * block, side = left < block ? left : block;
    const isize i = row + THREAD_ID % SIDE, first = column + THREAD_ID / SIDE;
    const GLOBAL element *read = from + from_offset + number * from_step + i;
    GLOBAL element *write = to + to_offset + number * to_step + i;
    UNROLL for (int at = 0; at < COLUMNS; at += APART) {
        const isize j = first + at;
        if (i < side && j < side && (lower ? i >= j : i <= j)) {
            const element x = read[j * from_ld];
            write[j * to_ld] = i == j ? real_part(x) : x;
        }
    }
}
#endif
