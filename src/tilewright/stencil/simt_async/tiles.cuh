/* How tiles lie in shared memory, and how whole ones are copied there.  A part of simt.cuh. */

/* Threads side by side along k where an operand is contiguous there: 32 bytes, the least
 * that device memory gives. */
#define LANES_K (32 / ELEM_BYTES)

/* Elements between rows of a tile.  LANES_K columns of 4 rows then lie in different banks
 * when they are written, and rows stay aligned for reads of 16 bytes.  Rows that are kept are
 * 16 bytes longer than BLOCK_K: the two that half a warp reads at once, CHUNK rows apart, then
 * lie in different banks. */
#define PITCH_OF(SIDE, K_FAST) \
    ((K_FAST) > 1 ? BLOCK_K + CHUNK : (K_FAST) ? (SIDE) + 4 : (SIDE))
#define PITCH_A PITCH_OF(BLOCK_M, K_FAST_A)
#define PITCH_B PITCH_OF(BLOCK_N, K_FAST_B)
#define BYTES_A ((KEPT_A ? BLOCK_M : BLOCK_K) * PITCH_A * ELEM_BYTES)
#define BYTES_B ((KEPT_B ? BLOCK_N : BLOCK_K) * PITCH_B * ELEM_BYTES)

/* From one trip's steps to the next one's. */
#define ADVANCE_A (UNROLL_K * (KEPT_A ? 1 : PITCH_A) * ELEM_BYTES)
#define ADVANCE_B (UNROLL_K * (KEPT_B ? 1 : PITCH_B) * ELEM_BYTES)

#define HOW_ALONG_SIDE (NARROW ? NARROWLY : CHUNKS)
#define HOW_ALONG_K (K_VECTORS == 1 ? TRANSPOSED : ELEMENTS)
#define HOW_COPIED(K_FAST) \
    ((K_FAST) > 1 ? PLANES : (K_FAST) ? HOW_ALONG_K : HOW_ALONG_SIDE)

/* Bytes from a tile's first element to the one at `s` along the block's side and `l` along k. */
template <int PITCH, int K_FAST> HELPER int place_in_tile(int s, int l)
{
    return (K_FAST > 1 ? s * PITCH + l : l * PITCH + s) * ELEM_BYTES;
}

/* Along k: asynchronous copies of single elements, or 16 bytes through registers; a piece is
 * WIDTH elements along k. */
template <int SIDE, int PITCH, int WIDTH> struct layout_along_k {
    enum {
        ACROSS = LANES_K / WIDTH,
        ABREAST = THREADS / ACROSS,
        ROWS = SIDE / ABREAST,
        PARTS = BLOCK_K / LANES_K,
        PART = LANES_K * ELEM_BYTES,
        SHARED_PART = LANES_K * PITCH * ELEM_BYTES,
        SHARED_ROW = ABREAST * ELEM_BYTES
    };
    static METHOD int side_of(int row) { return row; }
};
template <int SIDE, int PITCH>
struct layout<SIDE, PITCH, ELEMENTS> : layout_along_k<SIDE, PITCH, 1> {};
template <int SIDE, int PITCH>
struct layout<SIDE, PITCH, TRANSPOSED> : layout_along_k<SIDE, PITCH, CHUNK> {};

/* Along k, and kept so: asynchronous copies of 16 bytes, threads side by side along all of a
 * tile's row. */
template <int SIDE, int PITCH> struct layout<SIDE, PITCH, PLANES> {
    enum {
        ACROSS = BLOCK_K / CHUNK,
        ABREAST = THREADS / ACROSS,
        ROWS = SIDE / ABREAST,
        PARTS = 1,
        PART = 0,
        SHARED_PART = 0,
        SHARED_ROW = ABREAST * PITCH * ELEM_BYTES
    };
    static METHOD int side_of(int row) { return row; }
};
