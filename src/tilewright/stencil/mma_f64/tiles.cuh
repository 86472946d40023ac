/* How tiles lie in shared memory, how whole ones are copied there, and where fragments are read.  A
 * part of mma.cuh, which draws it. */

/* A row of a plane in bytes: a line, where a layer's part of a tile is as deep; half of one for
 * single elements, so that few threads have several rows each. */
#define ROW_MOST (SCALAR ? LINE / 2 : LINE)
#define PLANE_ROW (UNROLL_K * ELEM_BYTES < ROW_MOST ? UNROLL_K * ELEM_BYTES : ROW_MOST)
#define DEEP (PLANE_ROW / ELEM_BYTES)

/* What is swizzled in a line, in bytes: along k what four lanes t read at once, along m or n a
 * quarter of a line, for as many t. */
#define UNIT(K_FAST) ((K_FAST) ? 4 * ELEM_BYTES : LINE / 4)

/* The loop's body is a whole tile. */
#define ADVANCE_A 0
#define ADVANCE_B 0

#define HOW_COPIED(K_FAST) \
    ((K_FAST) ? (SCALAR ? SINGLES : PLANES) : (SCALAR ? SCALARS : CHUNKS))

/* Whether the remainder of k is the end of its tile (pipeline.cuh): where all copies are of single
 * elements. */
#define RESTS_END SCALAR

/* Rows of a plane: of 16, first those that a lane has first (0, 2, 4, ... of doubles). */
HELPER constexpr int row_of_plane(int side)
{
    return side / 16 * 16 + side % CHUNK * 8 + side % 16 / CHUNK;
}

/* By how many bytes what begins a row is moved; other units are where these bits are swizzled.  Of
 * as many rows as are read at once, each has another unit in the same place: rows of planes where k
 * is fast, else steps along k. */
template <int K_FAST> HELPER constexpr int swizzle(int row)
{
    return K_FAST ? row / (LINE / PLANE_ROW) * UNIT(1) % PLANE_ROW : row % 4 * UNIT(0);
}

/* Bytes from a tile's first element to the one at `s` along the block's side and `l` along k. */
template <int PITCH, int K_FAST> HELPER int place_in_tile(int s, int l)
{
    return K_FAST ? (l / DEEP * PITCH + row_of_plane(s)) * PLANE_ROW
                        + (l % DEEP * ELEM_BYTES ^ swizzle<1>(row_of_plane(s)))
                  : l * PITCH * ELEM_BYTES + (s * ELEM_BYTES ^ swizzle<0>(l));
}

/* Columns of C that a lane has side by side, and its first row of a warp's. */
#define RUN (2 * PAIR_N)
HELPER int first_row(void) { return lane_g() * PAIR_M; }

/* Where the lane's first element lies in a tile; `side` is where its warp's part begins. */
template <int PITCH, int K_FAST, int PAIR> HELPER int first_fragment(int side)
{
    const int g = lane_g(), t = lane_t();
    if (K_FAST)
        return (side + g) * PLANE_ROW + (t * ELEM_BYTES ^ swizzle<1>(g));
    return t * PITCH * ELEM_BYTES + ((side + g * PAIR) * ELEM_BYTES ^ swizzle<0>(t));
}

/* Where the element lies that is k steps and x lines of 8 rows or columns from there. */
template <int PITCH, int K_FAST, int PAIR> HELPER shared_at fragment_at(shared_at from, int k, int x)
{
    /* Bytes to the row, and into it: these are swizzled within a line. */
    const int row = K_FAST ? (k / DEEP * PITCH + 8 * x) * PLANE_ROW : k * PITCH * ELEM_BYTES;
    const int on = (K_FAST ? k % DEEP : 8 * x) * ELEM_BYTES;
    return (from ^ on % LINE) + (row + on / LINE * LINE);
}

/* Along k: asynchronous copies of BYTES each, a row of a plane at once.  Sides of a thread are
 * ABREAST apart: as a multiple of 8, and a power of two, which the space asks for, it lets all rows
 * of a thread be swizzled alike and lie where the first one does but for a constant. */
template <int SIDE, int PITCH, int BYTES> struct layout_of_planes {
    enum {
        ACROSS = PLANE_ROW / BYTES,
        ABREAST = THREADS / ACROSS,
        ROWS = SIDE / ABREAST,
        PARTS = BLOCK_K / DEEP,
        PART = PLANE_ROW,
        SHARED_PART = PITCH * PLANE_ROW,
        PART_STEPS = DEEP
    };
    static_assert(ABREAST % 8 == 0 && ABREAST > 0 && (ABREAST & (ABREAST - 1)) == 0,
                  "rows are swizzled");
    static METHOD constexpr int shared_row(int r) { return row_of_plane(r * ABREAST) * PLANE_ROW; }
    static METHOD constexpr int swizzled_row(int) { return 0; }
};
template <int SIDE, int PITCH>
struct layout<SIDE, PITCH, PLANES> : layout_of_planes<SIDE, PITCH, 16> {};
template <int SIDE, int PITCH>
struct layout<SIDE, PITCH, SINGLES> : layout_of_planes<SIDE, PITCH, ELEM_BYTES> {};
