/* Rung 4, double buffering: while a tile is multiplied, the next one is on its way.
 *
 *     rung 3:   load | multiply | load | multiply | ...        | barrier
 *
 *     rung 4:   load 0 |  ask for 1   |  ask for 2   |
 *                      |  multiply 0  |  multiply 1  | ...
 *                      |  put 1 away  |  put 2 away  |
 *                         buffer 0       buffer 1
 *
 * A load from device memory takes many hundreds of cycles, but a thread waits for it only where its
 * value is used.  So each thread asks for its share of the next tile, into registers, before it
 * multiplies the present one, and puts it into the other of two buffers in shared memory after it.
 * Nobody reads the buffer that is written, so one barrier a step is enough.
 *
 * What it costs: registers for the share on its way, and twice the shared memory.  Everything else
 * is as in rung 3.
 */

#define THREADS_N (BLOCK_N / TILE_N)

/* All threads together bring this many rows of a tile at once. */
#define ROWS_A (THREADS / BLOCK_K)
#define ROWS_B (THREADS / BLOCK_N)

/* A thread's share of both tiles, in registers. */
typedef struct {
    float a[BLOCK_M / ROWS_A], b[BLOCK_K / ROWS_B];
} share;

/* Ask device memory for a share, of which so many rows and columns are inside the matrices;
 * what lies outside is zero. */
HELPER share load(const GLOBAL float *a, isize lda, int m_left, int k_left_a,
                  const GLOBAL float *b, isize ldb, int n_left, int k_left_b)
{
    share got;
    UNROLL for (int s = 0; s < BLOCK_M / ROWS_A; ++s)
        got.a[s] = s * ROWS_A < m_left && k_left_a > 0 ? a[s * ROWS_A * lda] : 0.0f;
    UNROLL for (int s = 0; s < BLOCK_K / ROWS_B; ++s)
        got.b[s] = s * ROWS_B < k_left_b && n_left > 0 ? b[s * ROWS_B * ldb] : 0.0f;
    return got;
}

KERNEL RESIDENT_BLOCKS(2) void gemm(GEMM_ARGUMENTS)
{
    SHARED_ARRAY ALIGNED(16) float tile_a[2][BLOCK_K][BLOCK_M];
    SHARED_ARRAY ALIGNED(16) float tile_b[2][BLOCK_K][BLOCK_N];
    GEMM_BEGIN
    isize row, column;
    place_of_block(m, n, &row, &column);
    const int m_left = least(m - row, BLOCK_M), n_left = least(n - column, BLOCK_N);
    const int y = THREAD_ID / THREADS_N * TILE_M, x = THREAD_ID % THREADS_N * TILE_N;
    const int i_a = THREAD_ID / BLOCK_K, l_a = THREAD_ID % BLOCK_K;
    const int l_b = THREAD_ID / BLOCK_N, j_b = THREAD_ID % BLOCK_N;
    a += (row + i_a) * lda + l_a;
    b += l_b * ldb + column + j_b;

    float sum[TILE_M][TILE_N];
    UNROLL for (int i = 0; i < TILE_M; ++i)
        UNROLL for (int j = 0; j < TILE_N; ++j)
            sum[i][j] = 0.0f;

    int k_left = least(k, BLOCK_K);
    share next = load(a, lda, m_left - i_a, k_left - l_a, b, ldb, n_left - j_b, k_left - l_b);
    int buffer = 0;
    for (; k > 0; k -= BLOCK_K) {
        UNROLL for (int s = 0; s < BLOCK_M / ROWS_A; ++s)
            tile_a[buffer][l_a][i_a + s * ROWS_A] = next.a[s];
        UNROLL for (int s = 0; s < BLOCK_K / ROWS_B; ++s)
            tile_b[buffer][l_b + s * ROWS_B][j_b] = next.b[s];
        BARRIER();
        a += BLOCK_K;
        b += BLOCK_K * ldb;
        /* Behind the last tile all is outside: nothing is read. */
        k_left = least(k - BLOCK_K, BLOCK_K);
        next = load(a, lda, m_left - i_a, k_left - l_a, b, ldb, n_left - j_b, k_left - l_b);

        UNROLL for (int l = 0; l < BLOCK_K; ++l) {
            float of_a[TILE_M], of_b[TILE_N];
            UNROLL for (int i = 0; i < TILE_M; ++i)
                of_a[i] = tile_a[buffer][l][y + i];
            UNROLL for (int j = 0; j < TILE_N; ++j)
                of_b[j] = tile_b[buffer][l][x + j];
            UNROLL for (int i = 0; i < TILE_M; ++i)
                UNROLL for (int j = 0; j < TILE_N; ++j)
                    sum[i][j] += of_a[i] * of_b[j];
        }
        buffer ^= 1;
    }

    c += row * ldc + column;
    UNROLL for (int i = 0; i < TILE_M; ++i)
        UNROLL for (int j = 0; j < TILE_N; ++j)
            if (y + i < m_left && x + j < n_left)
                put(c + (y + i) * ldc + x + j, alpha, sum[i][j], beta);
}
