/* What every rung of the tensor ladder shares: arguments, tiles in shared memory, and how C is
 * written.  The dialect comes before it, and a rung after.
 *
 *     C <- A B^T         A m x k and B n x k in BF16, C m x n in FP32, all row by row
 *
 * Both operands run along k in memory, which is how the tensor cores like them best.  Rows begin
 * at multiples of 16 bytes (the copy engine's condition); m, n and k may be any number.
 *
 *                            n
 *                      +-----------+
 *                    k |   (B)     |        a thread block computes BLOCK_M x BLOCK_N elements
 *                      |    #      |        of C, and walks along k in steps of BLOCK_K = 64,
 *              k       +-----------+        which are 128 bytes
 *          +-------+   +-----------+
 *        m |   A###|   |    #      |  C
 *          +-------+   +-----------+
 *
 * A tile in shared memory has a row of 128 bytes for each row of A or B.  Eight such rows lie in
 * the same banks, so the copy engine exchanges the 16-byte pieces of row r by XOR with r % 8, and
 * the tensor cores, told of the same pattern, find them again:
 *
 *     row 0   | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |        so that piece 0 of eight
 *     row 1   | 1 | 0 | 3 | 2 | 5 | 4 | 7 | 6 |        rows meets all 32 banks
 *     row 2   | 2 | 3 | 0 | 1 | 6 | 7 | 4 | 5 |
 */
#include "kernels/place.h"
#include "kernels/tensor/hopper.h"

/* Threads that start a multiply together: four warps. */
#define GROUP 128
#define ROW_BYTES 128
#define TILE_BYTES_A (BLOCK_M * ROW_BYTES)
#define TILE_BYTES_B (BLOCK_N * ROW_BYTES)
/* A stage holds both tiles of one step. */
#define STAGE_BYTES (TILE_BYTES_A + TILE_BYTES_B)

/* Elements of C that a thread holds: a multiply of a warpgroup has 64 x 256. */
#define SUMS 128

/* The scalars are not these kernels' matter: alpha is 1 and beta 0.  `map_b` has boxes of BOX_B
 * rows, `map_a` of BLOCK_M. */
#define TENSOR_ARGUMENTS                                                                     \
    isize m, isize n, isize k, const GRID_CONSTANT tensor_map map_a,                         \
        const GRID_CONSTANT tensor_map map_b, float *RESTRICT c, isize ldc

/* A tile as the tensor cores are told of it (PTX ISA, "Matrix descriptor format"): its address and
 * the distance of groups of eight rows, in units of 16 bytes; pieces exchanged within 128. */
HELPER operand_at operand(shared_at tile)
{
    return (operand_at)(tile & 0x3ffff) >> 4 | (operand_at)(8 * ROW_BYTES) >> 4 << 32 | 1ull << 62;
}

/* How many steps of BLOCK_K there are in k. */
HELPER int steps_in(isize k) { return (int)((k + BLOCK_K - 1) / BLOCK_K); }

/* Sums begin as zeros in registers, which no step sets anew. */
HELPER void clear(float *sum)
{
    UNROLL for (int i = 0; i < SUMS; ++i) sum[i] = 0.0f;
    settle(sum);
}

/* Start multiplying 64 rows of a stage's A by its B, 16 steps of k (32 bytes) at a time.  What is
 * started is one group. */
HELPER void start_stage(float *sum, shared_at rows_of_a, shared_at b)
{
    begin_multiplies();
    UNROLL for (int l = 0; l < BLOCK_K; l += 16)
        start_multiply(sum, operand(rows_of_a) + (2 * l >> 4), operand(b) + (2 * l >> 4));
    end_multiplies();
}

/* Write a warpgroup's 64 x 256 sums from (row, column) on.  Lane l of warp w holds of rows
 * 16 w + l / 4 and 8 further down, in every 8 columns, the two from 2 (l % 4) on.
 *
 *     column    0   1   2   3   4   5   6   7   8 ...
 *     row 0     lane 0  lane 1  lane 2  lane 3  lane 0          sum[4 j + 2 h + e] is of
 *     row 1     lane 4  lane 5  ...                             column 8 j + 2 (l % 4) + e,
 *                                                               row 16 w + l / 4 + 8 h
 */
HELPER void store_sums(float *c, isize ldc, isize m, isize n, isize row, isize column, float *sum)
{
    settle(sum);
    const int lane = THREAD_ID % 32, warp = THREAD_ID % GROUP / 32;
    const isize i = row + 16 * warp + lane / 4, first = column + 2 * (lane % 4);
    c += i * ldc + first;
    const bool pairs = (ADDRESS(c) | (unsigned long long)ldc * 4) % sizeof(float2) == 0;
    if (pairs && row + 64 <= m && column + 256 <= n) {
        UNROLL for (int x = 0; x < SUMS; x += 2) {
            const float2 two = {sum[x], sum[x + 1]};
            *(float2 *)(c + x % 4 / 2 * 8 * ldc + x / 4 * 8) = two;
        }
        return;
    }
    UNROLL for (int x = 0; x < SUMS; ++x)
        if (i + x % 4 / 2 * 8 < m && first + x / 4 * 8 + x % 2 < n)
            c[x % 4 / 2 * 8 * ldc + x / 4 * 8 + x % 2] = sum[x];
}
