/* How tiles lie in shared memory, and how whole ones are copied there.  A part of mma.cuh,
 * which draws it. */

/* A row of a plane in bytes, and what copies take along k: 64 bytes, two of the pieces that
 * device memory gives. */
#define PLANE_ROW (DEEP * ELEM_BYTES)
#define RUN_BYTES 64

/* Elements between steps along k, or rows between planes.  In rows, four steps that are read at
 * once are 32 bytes of banks apart: 2 (or 1) rows and 2 (or 4) elements.  In planes, the two of
 * a copy's 64 bytes lie in different banks, if there are two. */
#define PITCH_SLOW(SIDE) ((SIDE) + (WORDS == 1 && !PAIRED_K ? 4 : 2))
#define PITCH_FAST(SIDE) ((SIDE) + (PLANE_ROW < RUN_BYTES ? 2 : 0))
#define PITCH_A (K_FAST_A ? PITCH_FAST(BLOCK_M) : PITCH_SLOW(BLOCK_M))
#define PITCH_B (K_FAST_B ? PITCH_FAST(BLOCK_N) : PITCH_SLOW(BLOCK_N))
#define BYTES_A (BLOCK_K * PITCH_A * ELEM_BYTES)
#define BYTES_B (BLOCK_K * PITCH_B * ELEM_BYTES)

/* The loop's text is a whole tile. */
#define ADVANCE_A 0
#define ADVANCE_B 0

#define HOW_COPIED(K_FAST) \
    ((K_FAST) ? (NARROW ? SINGLES : PLANES) : (NARROW ? NARROWLY : CHUNKS))

/* Whether the remainder of k is the end of its tile (pipeline.cuh): where all copies are of single
 * elements. */
#define RESTS_END NARROW

/* Rows of a plane: of 16, first those that a lane has first (0, 2, 4, ... of doubles). */
HELPER int row_of_plane(int side)
{
    return side / 16 * 16 + side % CHUNK * 8 + side % 16 / CHUNK;
}
/* And back. */
HELPER int side_of_plane(int row)
{
    return row / 16 * 16 + row % (16 / CHUNK) * CHUNK + row % 16 / (16 / CHUNK);
}

/* Bytes from a tile's first element to the one at `s` along the block's side and `l` along k. */
template <int PITCH, int K_FAST> HELPER int place_in_tile(int s, int l)
{
    if (K_FAST)
        return (l / DEEP * PITCH + row_of_plane(s)) * PLANE_ROW + l % DEEP * ELEM_BYTES;
    return (l * PITCH + s) * ELEM_BYTES;
}

/* Along k: asynchronous copies of BYTES each.  ABREAST is a multiple of 16, so that a thread's
 * rows are as far apart in a plane as they are in the matrix. */
template <int SIDE, int PITCH, int BYTES> struct layout_of_planes {
    enum {
        ACROSS = RUN_BYTES / BYTES,
        ABREAST = THREADS / ACROSS,
        ROWS = SIDE / ABREAST,
        PARTS = BLOCK_K * ELEM_BYTES / RUN_BYTES,
        PART = RUN_BYTES,
        SHARED_PART = PITCH * RUN_BYTES,
        PART_STEPS = RUN_BYTES / ELEM_BYTES,
        SHARED_ROW = ABREAST * PLANE_ROW
    };
    static METHOD int side_of(int row) { return side_of_plane(row); }
};
template <int SIDE, int PITCH>
struct layout<SIDE, PITCH, PLANES> : layout_of_planes<SIDE, PITCH, 16> {};
template <int SIDE, int PITCH>
struct layout<SIDE, PITCH, SINGLES> : layout_of_planes<SIDE, PITCH, ELEM_BYTES> {};
