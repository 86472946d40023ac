/* 32-bit operands brought by the producer's threads, wherever their columns begin: what the copy engine
 * does not take.  A part of kernel.cuh.
 *
 * A tile is lines of 32 elements that are side by side in memory, and lies in shared memory as the
 * copy engine would leave it:
 *
 *     memory along k:              a line for each row of m (or n), BLOCK_K elements of k
 *     memory along m (or n):       a line of m for each step of k; square after square
 *
 * A warp brings a line, each lane an element (cp.async), and the four warps four lines at a time:
 *
 *     line l in shared memory    | piece l % 8 | piece 1 ^ l % 8 | ...     pieces of 4 elements
 *
 * Copies pass through no register: while those of a stage start, stages before are under way.
 */
#define LINES_AT_ONCE (GROUP / 32)

/* Stages whose copies are under way while the producer waits for another to become empty.  Two are the
 * consumers': they give one back when they have started to multiply the next. */
#define UNDER_WAY (STAGES - 2)

typedef unsigned int operand_bits;

struct operand {
    const operand_bits *first;
    isize ld, side, k;
};

/* More than any tile has. */
#define MANY 4096

/* Start copying a tile; zeros for what is outside. */
template <int SIDE, int K_FAST>
HELPER void copy_tile(shared_at tile, const operand *x, matrix_place matrix, isize side_at, isize k_at)
{
    const int lane = THREAD_ID % 32, warp = THREAD_ID % GROUP / 32;
    const isize outer = (K_FAST ? side_at : k_at) + warp, inner = (K_FAST ? k_at : side_at) + lane;
    const isize lines = (K_FAST ? x->side : x->k) - outer;
    const isize elements = (K_FAST ? x->k : x->side) - inner;
    const int down_left = lines < MANY ? (int)lines : MANY;
    const int along_left = elements < MANY ? (int)elements : MANY;
    const operand_bits *const at = x->first + matrix + outer * x->ld + inner;
    UNROLL for (int i = 0; i < SIDE * BLOCK_K / LINE_ELEMENTS / LINES_AT_ONCE; ++i) {
        const int line = i * LINES_AT_ONCE; /* and this warp's */
        const int square = K_FAST ? 0 : line / BLOCK_K, down = K_FAST ? line : line % BLOCK_K;
        const int piece = lane / 4 ^ (warp + line % 8);
        copy_word_if(tile + (line + warp) * 128 + piece * 16 + lane % 4 * 4,
                     at + square * LINE_ELEMENTS + down * x->ld,
                     down < down_left && square * LINE_ELEMENTS < along_left);
    }
}

/* Bring all tiles of operands that a block's tile of C needs for some steps of k, as stages become
 * free.  Groups without copies follow the last ones, so that one wait is for all stages. */
HELPER void bring_tile(const operand *a, const operand *b, matrix_place matrix_a,
                       matrix_place matrix_b, shared_at arena, ring *at, tile c,
                       unsigned int first, unsigned int steps, int)
{
    ring there = *at; /* the oldest stage under way */
    ROLLED for (unsigned int t = 0; t < steps + UNDER_WAY; ++t) {
        if (t < steps) {
            const isize k_at = (isize)(first + t) * BLOCK_K;
            const shared_at stage = stage_at(arena, at->stage);
            wait_for(empty_of(arena, at->stage), at->round ^ 1);
            copy_tile<BLOCK_M, K_FAST_A>(stage, a, matrix_a, c.i0, k_at);
            copy_tile<BLOCK_N, K_FAST_B>(stage + PART_BYTES_A, b, matrix_b, c.j0, k_at);
            advance(at);
        }
        end_group();
        if (t >= UNDER_WAY) {
            wait_for_groups<UNDER_WAY>();
            publish_chunks();
            if (THREAD_ID % 32 == 0)
                arrive(full_of(arena, there.stage), 0);
            advance(&there);
        }
    }
}
