/* Small products of a batch, of 16-bit operands: a warp computes a tile of one, by mma.sync.
 *
 * A tile of wgmma, 64 x 64 at the least, has little to do for a product of 16 x 16.  Here the copy
 * engine brings tiles of MATRICES products at once, boxes of three dimensions, and a warp each
 * multiplies them:
 *
 *     shared memory:  | A of product 0 | 1 | ... | MATRICES - 1 | B of product 0 | ... |   a stage
 *     warps:            0                1   ...   MATRICES - 1
 *
 * As in kernel.cuh the tensor core computes C transposed; 16-byte pieces of rows are exchanged as
 * the copy engine does it.  Macros besides those of kernel.cuh: MATRICES.
 */

#include "wgmma/words.cuh"
#include "wgmma/ptx.cuh"
#include "wgmma/stages.cuh"
#include "wgmma/tiles.cuh"
#include "wgmma/produce.cuh"
#include "wgmma/epilogue.cuh"
#include "wgmma/chunks.cuh"

#define WARPS MATRICES
#define SMALL_STAGE_BYTES (MATRICES * (PART_BYTES_A + PART_BYTES_B))
#define SMALL_STAGES 2

/* Bytes of a tile's rows in shared memory, and of the rows of which there are. */
#define BYTES_OF_ROW(K_FAST, SIDE) (2 * ((K_FAST) ? BLOCK_K : (SIDE)))

/* Where the 16-byte piece of a number lies in a row of `BYTES`. */
template <int BYTES> HELPER shared_at piece_at(shared_at tile, int row, int piece)
{
    return tile + row * BYTES + ((piece ^ row * BYTES / 128 % (BYTES / 16)) * 16);
}

#ifndef EMULATED
/* Four 8 x 8 matrices of 16-bit elements, of which eight lanes each have the rows' addresses. */
template <int TURNED> HELPER void read_matrices(unsigned int *to, shared_at row)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(row) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(row) : "memory");
}

#if ELEMENT == ELEMENT_BF16
#define SHORT "bf16"
#else
#define SHORT "f16"
#endif
/* sum += rows (16 x 16) times columns (16 x 8). */
HELPER void multiply_small(accumulator *sum, const unsigned int *rows, const unsigned int *columns)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." SHORT "." SHORT ".f32 {%0, %1, %2, %3},"
                 " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[0]),
                   "r"(columns[1]));
}
#endif

/* A 16 x 16 tile of an operand, `side` along m or n and `k` from the tile's start: for rows of the
 * tensor core's result the second matrix is further along the side, for columns along k. */
template <int K_FAST, int SIDE, int IS_ROWS>
HELPER void read_tile(unsigned int *to, shared_at tile, int side, int k)
{
    const int lane = THREAD_ID % 32, matrix = lane / 8;
    side += (IS_ROWS ? matrix % 2 : matrix / 2) * 8;
    k += (IS_ROWS ? matrix / 2 : matrix % 2) * 8;
    const int row = (K_FAST ? side : k) + lane % 8, piece = (K_FAST ? k : side) / 8;
    read_matrices<!K_FAST>(to, piece_at<BYTES_OF_ROW(K_FAST, SIDE)>(tile, row, piece));
}

/* Store a warp's sums of 16 columns of the tile: the tensor core's rows from `j` on. */
HELPER void store_rows(result to, const accumulator *sum, isize i0, isize j)
{
    const int none[CHUNK] = {};
    UNROLL for (int i = 0; i < BLOCK_M; i += 16)
        UNROLL for (int half = 0; half < 2; ++half) {
            scalar v[4];
            UNROLL for (int e = 0; e < 4; ++e)
                v[e] = sum[(i / 8 + e / 2) * 4 + half * 2 + e % 2];
            exchange_pairs(v);
            const int lane = THREAD_ID % 4;
            UNROLL for (int e = 0; e < 4; e += CHUNK) {
                const isize at = i0 + i + (CHUNK == 4 ? lane % 2 * 8 + lane / 2 * 4
                                                      : e / 2 * 8 + lane * 2);
                const isize column = j + half * 8;
                if (column >= to.n)
                    continue;
                if (to.aligned && at + CHUNK <= to.m)
                    store_whole_chunk<true>(to, v + e, at, column, none);
                else if (at < to.m)
                    store_chunk(to, v + e, at, column, 0);
            }
        }
}

/* Bring the tiles of a step of k, of matrices from `first` on; what all products have, once. */
HELPER void bring_small(const tensor_map *a, const tensor_map *b, int many_a, int many_b, int first,
                        shared_at stage, shared_at full, tile at, int k)
{
    expect_bytes(full, (many_a ? MATRICES : 1) * PART_BYTES_A +
                           (many_b ? MATRICES : 1) * PART_BYTES_B);
    copy_box<false>(a, stage, full, K_FAST_A ? k : (int)at.i0, K_FAST_A ? (int)at.i0 : k,
                    many_a * first, 0);
    copy_box<false>(b, stage + MATRICES * PART_BYTES_A, full, K_FAST_B ? k : (int)at.j0,
                    K_FAST_B ? (int)at.j0 : k, many_b * first, 0);
}

KERNEL __launch_bounds__(32 * WARPS, MIN_BLOCKS) void gemm(
    isize m, isize n, isize k, scalar alpha, const GRID_CONSTANT tensor_map a,
    const GRID_CONSTANT tensor_map b, scalar beta, output *c, isize ldc, int many_a, int many_b,
    isize step_c, int count)
{
    const shared_at arena = shared_memory(), full = arena + SMALL_STAGES * SMALL_STAGE_BYTES;
    const int first = (int)blockIdx.z * MATRICES, warp = THREAD_ID / 32;
    const unsigned int steps = alpha == 0 ? 0 : (unsigned int)((k + BLOCK_K - 1) / BLOCK_K);
    tile at;
    place_of_block(BLOCK_ID, m, n, &at.i0, &at.j0);
    if (THREAD_ID == 0) {
        UNROLL for (int s = 0; s < SMALL_STAGES; ++s) begin_barrier(full + s * 8, 1);
        publish_barriers();
        if (steps > 0)
            bring_small(&a, &b, many_a, many_b, first, arena, full, at, 0);
    }
    BARRIER();
    accumulator sum[BLOCK_N / 16][BLOCK_M / 8 * 4];
    UNROLL for (int j = 0; j < BLOCK_N / 16; ++j)
        UNROLL for (int i = 0; i < BLOCK_M / 8 * 4; ++i) sum[j][i] = 0;
    ROLLED for (unsigned int t = 0; t < steps; ++t) {
        const unsigned int next = (t + 1) % SMALL_STAGES;
        if (t + 1 < steps && THREAD_ID == 0)
            bring_small(&a, &b, many_a, many_b, first, arena + next * SMALL_STAGE_BYTES,
                        full + next * 8, at, (int)((t + 1) * BLOCK_K));
        wait_for(full + t % SMALL_STAGES * 8, t / SMALL_STAGES & 1);
        const shared_at stage = arena + t % SMALL_STAGES * SMALL_STAGE_BYTES;
        const shared_at of_a = stage + many_a * warp * PART_BYTES_A;
        const shared_at of_b = stage + MATRICES * PART_BYTES_A + many_b * warp * PART_BYTES_B;
        UNROLL for (int l = 0; l < BLOCK_K; l += 16) {
            unsigned int columns[BLOCK_M / 16][4];
            UNROLL for (int i = 0; i < BLOCK_M / 16; ++i)
                read_tile<K_FAST_A, BLOCK_M, 0>(columns[i], of_a, 16 * i, l);
            UNROLL for (int j = 0; j < BLOCK_N / 16; ++j) {
                unsigned int rows[4];
                read_tile<K_FAST_B, BLOCK_N, 1>(rows, of_b, 16 * j, l);
                UNROLL for (int i = 0; i < BLOCK_M / 8; ++i)
                    multiply_small(sum[j] + 4 * i, rows, columns[i / 2] + i % 2 * 2);
            }
        }
        BARRIER(); /* the stage's next tiles come when all have read these */
    }
    if (first + warp >= count)
        return;
    c += (first + warp) * step_c;
    const bool aligned = (ADDRESS(c) | (unsigned long long)ldc * OUTPUT_BYTES) % 8 == 0;
    const result to = {c, ldc, m, n, alpha, beta, 0, 0, aligned, {}};
    UNROLL for (int j = 0; j < BLOCK_N / 16; ++j)
        store_rows(to, sum[j], at.i0, at.j0 + 16 * j + THREAD_ID % 32 / 4);
}
