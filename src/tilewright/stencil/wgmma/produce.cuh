/* Operands on their way to shared memory.  A part of kernel.cuh. */

/* Threads that bring operands. */
#define PRODUCERS (TMA ? 1 : GROUP)

/* Whether an operand's memory is contiguous along k. */
#define K_FAST_A (TRANS_A)
#define K_FAST_B (!TRANS_B)

/* Bytes of a row of a tile that is contiguous along k: also the span within which its
 * 16-byte pieces are exchanged. */
#define ROW_BYTES (BLOCK_K * ELEMENT_BYTES)

/* Elements of m or n side by side where memory runs along them: 128 bytes. */
#define LINE_ELEMENTS (128 / ELEMENT_BYTES)

/* Which operand gives an instruction its rows: B, or A where its 32-bit elements lie along m. */
#define ROWS_OF_A (ELEMENT_BYTES == 4 && !K_FAST_A)
#define K_FAST_ROWS (ROWS_OF_A ? K_FAST_A : K_FAST_B)
#define K_FAST_COLUMNS (ROWS_OF_A ? K_FAST_B : K_FAST_A)
#define SIDE_OF_ROWS (ROWS_OF_A ? BLOCK_M : BLOCK_N)
#define SIDE_OF_COLUMNS (ROWS_OF_A ? BLOCK_N : BLOCK_M)

/* The tensor core reads 32-bit elements of shared memory along k alone; rows may come from
 * registers, which lanes fill from memory in either order. */
#define ROWS_IN_REGISTERS (ELEMENT_BYTES == 4 && !K_FAST_ROWS)

/* What a part's box of an operand brings that is so long.  Along k a box that no others share ends
 * with the operand (call.py): rows outside take the engine as long as rows inside. */
template <int SIDE, int SHARES, int K_FAST> HELPER int bytes_of_box(isize side)
{
    return (K_FAST && SHARES == 1 && side < SIDE ? (int)side : SIDE) * ROW_BYTES;
}

/* What arrives in a stage. */
HELPER int bytes_of_stage(isize m, isize n)
{
    return PARTS * (bytes_of_box<BLOCK_M, CLUSTER_N, K_FAST_A>(m) +
                    bytes_of_box<BLOCK_N, CLUSTER_M, K_FAST_B>(n));
}

#if !TMA && ELEMENT_BYTES == 4
#include "wgmma/cp_async.cuh"
#elif !TMA
#include "wgmma/by_threads.cuh"
#else
typedef tensor_map operand;

/* Bring one share of `SHARES` of a part's tile, to all blocks of `mask`.
 *
 *     along k:           rows [share * SIDE / SHARES, ...) of the tile, one copy
 *     along m or n:      squares likewise, a copy each
 */
template <int SIDE, int SHARES, int K_FAST>
HELPER void bring(const tensor_map *from, shared_at to, shared_at full, int side_at, int k_at,
                  int part, int share, unsigned short mask)
{
    const int own = SIDE / SHARES;
    if (K_FAST) {
        copy_box<(SHARES > 1)>(from, to + share * own * ROW_BYTES, full, k_at,
                               side_at + share * own, part, mask);
    } else {
        UNROLL for (int s = 0; s < own; s += LINE_ELEMENTS) {
            const int at = share * own + s;
            copy_box<(SHARES > 1)>(from, to + at * BLOCK_K * ELEMENT_BYTES, full, side_at + at,
                                   k_at, part, mask);
        }
    }
}

/* Bring all tiles of operands that a block's tile of C needs for some steps of k, as stages
 * become free, of matrices of a batch: so many bytes of each stage are copied. */
HELPER void bring_tile(const operand *a, const operand *b, int matrix_a, int matrix_b,
                       shared_at arena, ring *at, tile c, unsigned int first, unsigned int steps,
                       int stage_bytes)
{
    ROLLED for (unsigned int t = 0; t < steps; ++t) {
        const shared_at stage = stage_at(arena, at->stage), full = full_of(arena, at->stage);
        /* Asked for anew: a producer has few registers. */
        const unsigned int rank = sharing_rank();
        const int rank_m = rank % CLUSTER_M, rank_n = rank / CLUSTER_M;
        /* Blocks with our rows of C, every CLUSTER_M-th; blocks with our columns, side by side. */
        unsigned int same_m = 0;
        UNROLL for (int r = 0; r < CLUSTER_N; ++r) same_m |= 1u << (rank_m + r * CLUSTER_M);
        const unsigned int same_n = ((1u << CLUSTER_M) - 1) << (rank_n * CLUSTER_M);
        /* Nobody has to empty a stage that was never full. */
        wait_for(empty_of(arena, at->stage), at->round ^ 1);
        expect_bytes(full, stage_bytes);
        UNROLL for (int p = 0; p < PARTS; ++p) {
            bring<BLOCK_M, CLUSTER_N, K_FAST_A>(a, stage + p * PART_BYTES_A, full, (int)c.i0,
                                                (int)((first + t) * BLOCK_K), matrix_a + p, rank_n,
                                                same_m);
            bring<BLOCK_N, CLUSTER_M, K_FAST_B>(
                b, stage + PARTS * PART_BYTES_A + p * PART_BYTES_B, full, (int)c.j0,
                (int)((first + t) * BLOCK_K), matrix_b + p, rank_m, same_n);
        }
        advance(at);
    }
}
#endif
