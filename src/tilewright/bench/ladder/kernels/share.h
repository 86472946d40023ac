/* How rungs 5 and 6 bring tiles in: device memory to registers to shared memory, in vectors.
 *
 * A's tile is turned on its way: tile_a[l][i].  A warp reads two vectors of each of 16 rows, and
 * writes their elements one by one:
 *
 *      read, along k                 write, along the rows
 *     row 0   aaaa bbbb              l = 0   a       banks  0 ... 15, a bank for each row
 *     row 1   aaaa bbbb              l = 4   b       banks 16 ... 31
 *     ...
 *     row 15  aaaa bbbb              then l = 1 and 5, 2 and 6, 3 and 7
 *
 * Rows of tile_a are 4 words longer than they need be: with BLOCK_M words, a multiple of 32, rows l
 * and l + 4 would begin at the same bank; so they begin 16 banks apart.
 */

#define PITCH_A (BLOCK_M + VECTOR)
#define SIZE_A (BLOCK_K * PITCH_A)
#define SIZE_B (BLOCK_K * BLOCK_N)

/* All threads together bring so many rows at once, of A by 8 elements, of B whole ones. */
#define ROWS_A (THREADS / 2)
#define ROWS_B (THREADS * VECTOR / BLOCK_N)

/* A thread's share of both tiles, and its first row and column there. */
typedef struct {
    float4 a[BLOCK_K / 8][BLOCK_M / ROWS_A], b[BLOCK_K / ROWS_B];
} share;
#define I_A (THREAD_ID / 2)
#define L_A (THREAD_ID % 2 * VECTOR)
#define L_B (THREAD_ID * VECTOR / BLOCK_N)
#define J_B (THREAD_ID * VECTOR % BLOCK_N)

/* Ask device memory for a share, the first vectors at `a` and `b`.  `whole` says that all of it
 * is inside the matrices and aligned; else, so much is from a thread's first place on, and the rest
 * is zero. */
HELPER share load_share_as(const GLOBAL float *a, isize lda, const GLOBAL float *b, isize ldb,
                           int m_left, int n_left, int k_left, int whole)
{
    share got;
    UNROLL for (int u = 0; u < BLOCK_K / 8; ++u)
        UNROLL for (int s = 0; s < BLOCK_M / ROWS_A; ++s)
            got.a[u][s] = read4(a + s * ROWS_A * lda + u * 8,
                                s * ROWS_A < m_left ? k_left - L_A - u * 8 : 0, whole);
    UNROLL for (int s = 0; s < BLOCK_K / ROWS_B; ++s)
        got.b[s] = read4(b + s * ROWS_B * ldb, s * ROWS_B < k_left - L_B ? n_left : 0, whole);
    return got;
}

/* The same, in the way that the tiles allow: `inside` says that m and n and alignment do. */
HELPER share load_share(const GLOBAL float *a, isize lda, const GLOBAL float *b, isize ldb,
                        int m_left, int n_left, isize k_left, int inside)
{
    if (inside && k_left >= BLOCK_K)
        return load_share_as(a, lda, b, ldb, m_left, n_left, BLOCK_K, 1);
    return load_share_as(a, lda, b, ldb, m_left, n_left, least(k_left, BLOCK_K), 0);
}

/* Put a share away, its first elements at `to_a` and `to_b`. */
HELPER void store_share(SHARED float *to_a, SHARED float *to_b, const PRIVATE share *got)
{
    UNROLL for (int u = 0; u < BLOCK_K / 8; ++u)
        UNROLL for (int s = 0; s < BLOCK_M / ROWS_A; ++s) {
            SHARED float *to = to_a + u * 8 * PITCH_A + s * ROWS_A;
            to[0 * PITCH_A] = got->a[u][s].x;
            to[1 * PITCH_A] = got->a[u][s].y;
            to[2 * PITCH_A] = got->a[u][s].z;
            to[3 * PITCH_A] = got->a[u][s].w;
        }
    UNROLL for (int s = 0; s < BLOCK_K / ROWS_B; ++s)
        *(SHARED float4 *)(to_b + s * ROWS_B * BLOCK_N) = got->b[s];
}
