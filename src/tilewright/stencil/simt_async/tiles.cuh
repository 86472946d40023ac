/* How tiles lie in shared memory, and how whole ones are copied there.  A part of simt.cuh. */

/* A config that does not say how many bytes copies of single elements take side by side. */
#ifndef RUN_BYTES
#define RUN_BYTES 32
#endif

/* Threads side by side along k where an operand is contiguous there: they read RUN_BYTES, where
 * these divide a tile, else half of them. */
#define LANES_K ((BLOCK_K * ELEM_BYTES % RUN_BYTES ? RUN_BYTES / 2 : RUN_BYTES) / ELEM_BYTES)

/* Elements between rows of a tile.  What is written at once, 128 bytes, LANES_K columns of so
 * many rows, then lies in different banks (in longer runs of floats two in each), and rows stay
 * aligned for reads of 16 bytes. */
#define LONGER (128 / ELEM_BYTES / LANES_K > CHUNK ? 128 / ELEM_BYTES / LANES_K : CHUNK)
#define PITCH_A (BLOCK_M + LONGER * K_FAST_A)
#define PITCH_B (BLOCK_N + LONGER * K_FAST_B)
#define BYTES_A (BLOCK_K * PITCH_A * ELEM_BYTES)
#define BYTES_B (BLOCK_K * PITCH_B * ELEM_BYTES)

/* From one trip's rows to the next one's. */
#define ADVANCE_A (UNROLL_K * PITCH_A * ELEM_BYTES)
#define ADVANCE_B (UNROLL_K * PITCH_B * ELEM_BYTES)

#define HOW_ALONG_SIDE (SCALAR ? SCALARS : CHUNKS)
#define HOW_COPIED(K_FAST) (!(K_FAST) ? HOW_ALONG_SIDE : ELEMENTS)

/* Whether the remainder of k is the end of its tile (pipeline.cuh): in kernels for sizes of any
 * kind, in which it is most likely there is one. */
#define RESTS_END (SCALAR || STAGED)

/* Within a row, elements lie as they do in the matrix (unlike those of mma_f64/tiles.cuh). */
template <int K_FAST> HELPER constexpr int swizzle(int) { return 0; }

/* Bytes from a tile's first element to the one at `s` along the block's side and `l` along k. */
template <int PITCH, int K_FAST> HELPER int place_in_tile(int s, int l)
{
    return (l * PITCH + s) * ELEM_BYTES;
}

/* Along k: asynchronous copies of single elements. */
template <int SIDE, int PITCH> struct layout<SIDE, PITCH, ELEMENTS> {
    enum {
        ACROSS = LANES_K,
        ABREAST = THREADS / ACROSS,
        ROWS = SIDE / ABREAST,
        PARTS = BLOCK_K / LANES_K,
        PART = LANES_K * ELEM_BYTES,
        SHARED_PART = LANES_K * PITCH * ELEM_BYTES,
        PART_STEPS = LANES_K
    };
    static METHOD constexpr int shared_row(int r) { return r * ABREAST * ELEM_BYTES; }
    static METHOD constexpr int swizzled_row(int) { return 0; }
};
