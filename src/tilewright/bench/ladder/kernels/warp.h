/* A warp's tile: where its lanes are, and what they multiply and store.  Shared by rungs 6 and 7.
 *
 * A block is divided among warps, WARP_M x WARP_N elements each, and a warp's tile among its lanes,
 * 4 x 8 of them, in vectors:
 *
 *          block of C                   a warp's tile, 4 x 2 times these lanes
 *      +--------+--------+                  n ->
 *      | warp 0 | warp 1 |            m   0  1  4  5 16 17 20 21
 *      +--------+--------+            |   2  3  6  7 18 19 22 23     each 4 rows by 4 columns
 *      | warp 2 | warp 3 |            v   8  9 12 13 24 25 28 29
 *      +--------+--------+               10 11 14 15 26 27 30 31
 */

#define WARP (THREAD_ID / 32)
#define LANE (THREAD_ID % 32)

/* Bits of the lane's number count columns, rows, columns, rows, columns: Z order. */
#define LANE_ROW (VECTOR * ((LANE >> 1 & 1) | (LANE >> 2 & 2)))
#define LANE_COLUMN (VECTOR * ((LANE & 1) | (LANE >> 1 & 2) | (LANE >> 2 & 4)))
#define WARP_ROW (WARP / (BLOCK_N / WARP_N) * WARP_M)
#define WARP_COLUMN (WARP % (BLOCK_N / WARP_N) * WARP_N)

/* Vectors of a thread along m and n, and from one to the next. */
#define VECTORS_M (TILE_M / VECTOR)
#define VECTORS_N (TILE_N / VECTOR)
#define STRIDE_M (WARP_M / VECTORS_M)
#define STRIDE_N (WARP_N / VECTORS_N)

/* The operands of one step: a thread's part of a column of A and of a row of B. */
typedef struct {
    float a[TILE_M], b[TILE_N];
} operands;

HELPER void take_operands(PRIVATE operands *of, const SHARED float *column_a,
                          const SHARED float *row_b)
{
    UNROLL for (int v = 0; v < VECTORS_M; ++v) take4(of->a + v * VECTOR, column_a + v * STRIDE_M);
    UNROLL for (int v = 0; v < VECTORS_N; ++v) take4(of->b + v * VECTOR, row_b + v * STRIDE_N);
}

/* Add tile of A times tile of B to the thread's sums; pointers are at the thread's first vectors.
 * Two sets of operands: one is multiplied while the other is loaded.  Along one row and back along
 * the next: at the turn an operand is still at hand, and need not be read from its register. */
HELPER void multiply_tiles(PRIVATE float *sum, const SHARED float *from_a,
                           const SHARED float *from_b, int pitch_a)
{
    operands of[2];
    take_operands(&of[0], from_a, from_b);
    UNROLL for (int l = 0; l < BLOCK_K; ++l) {
        if (l + 1 < BLOCK_K)
            take_operands(&of[(l + 1) % 2], from_a + (l + 1) * pitch_a,
                          from_b + (l + 1) * BLOCK_N);
        UNROLL for (int i = 0; i < TILE_M; ++i)
            UNROLL for (int step = 0; step < TILE_N; ++step) {
                const int j = i % 2 ? TILE_N - 1 - step : step;
                sum[i * TILE_N + j] += of[l % 2].a[i] * of[l % 2].b[j];
            }
    }
}

/* Write a thread's tile; `c` is its first element, `whole` says that all columns are inside. */
HELPER void store_tile(GLOBAL float *c, isize ldc, float alpha, const PRIVATE float *sum,
                       float beta, int m_left, int n_left, int whole)
{
    const int vectors = whole && rows_aligned(c, ldc);
    UNROLL for (int i = 0; i < TILE_M; ++i) {
        const int row = i / VECTOR * STRIDE_M + i % VECTOR;
        UNROLL for (int v = 0; v < VECTORS_N; ++v)
            if (row < m_left)
                put4(c + row * ldc + v * STRIDE_N, alpha, sum + i * TILE_N + v * VECTOR, beta,
                     n_left - v * STRIDE_N, vectors);
    }
}
