/* GEMM by blocks, for any OpenCL device and for CUDA.
 *
 *     C <- alpha op(A) op(B) + beta C      op(A) m x k, op(B) k x n, C m x n
 *
 * A thread block computes BLOCK_M x BLOCK_N elements of C.  It walks along k in
 * steps of BLOCK_K; in each it needs a tile of op(A) and a tile of op(B), and
 * either passes them through shared memory or lets each thread read what it
 * needs straight through the cache.
 *
 *                                   BLOCK_N
 *                                 +---------+
 *                                 |         |  op(B): k runs downwards
 *                                 +---------+
 *                         BLOCK_K |#########|  tile_b[l][j], pitch PITCH_B
 *                                 +---------+
 *                BLOCK_K          |         |
 *           +---+-------+---+     +---------+
 *           |   |#######|   |     |  . . .  |  each of THREADS_M x THREADS_N
 *   BLOCK_M |   |#######|   |     |  . x .  |  threads holds TILE_M x TILE_N
 *           |   |#######|   |     |  . . .  |  elements of C in registers
 *           +---+-------+---+     +---------+
 *          op(A): k runs right,        C
 *          tile_a[l][i], pitch PITCH_A
 *
 * Both tiles lie in shared memory with k as the slow index, whatever op is, so
 * the multiplication is the same text for every op.  Transposing and conjugating
 * happen on the way in.
 *
 * A thread's rows (and columns, alike) of its TILE_M come in chunks of
 * FRAGMENT_VECTOR that lie side by side:
 *
 *     STRIDED 0   aaaabbbbccccdddd   (TILE_M = 4, four threads a b c d)
 *     STRIDED 1   abcdabcdabcdabcd   (FRAGMENT_VECTOR = 1)
 *                 aabbccddaabbccdd   (FRAGMENT_VECTOR = 2)
 *
 * Ragged edges: a tile that lies wholly inside its matrix is read without any
 * check; one that does not is read element by element, with zeros for what lies
 * outside.  Zeros beyond m or n only reach elements of C that are not stored.
 * Beyond k both tiles hold zeros, and so add nothing, whatever lies in the rest.
 *
 * A, B and C must be aligned to one element; their wider alignment is looked at
 * when the kernel runs, and vectors of elements are used where it allows.
 *
 * Macros given with the text: the parameters of parameters.py in capitals, and
 * TRANS_A, CONJ_A, TRANS_B, CONJ_B (0 or 1).  A dialect and a prelude come first.
 */

#define THREADS (THREADS_M * THREADS_N)
#define TILE_M (BLOCK_M / THREADS_M)
#define TILE_N (BLOCK_N / THREADS_N)

/* Whether an operand goes through shared memory. */
#define SHARE_A (READ_A_M > 0)
#define SHARE_B (READ_B_N > 0)

/* Whether an operand's memory is contiguous along k. */
#define K_FAST_A (TRANS_A)
#define K_FAST_B (!TRANS_B)

/* Elements between two rows of a tile in shared memory, and in a whole tile. */
#define PITCH_A (BLOCK_M + PAD * FRAGMENT_VECTOR)
#define PITCH_B (BLOCK_N + PAD * FRAGMENT_VECTOR)
#define SIZE_A (BLOCK_K * PITCH_A)
#define SIZE_B (BLOCK_K * PITCH_B)

/* Elements a thread reads of each tile; 1 where it reads none, as an array must
 * have a size. */
#define HELD_A (SHARE_A ? BLOCK_M * BLOCK_K / THREADS : 1)
#define HELD_B (SHARE_B ? BLOCK_N * BLOCK_K / THREADS : 1)

/* The alignment that vectors of either kind need in shared memory. */
#define TILE_ALIGNMENT                                                                   \
    (ELEM_BYTES * (READ_VECTOR > FRAGMENT_VECTOR ? READ_VECTOR : FRAGMENT_VECTOR))

/* One step along k, by what is doubled (F fetch device memory into registers,
 * P put registers into shared memory, M multiply, | barrier):
 *
 *     registers once, shared once      M | F P |       nothing overlaps within a block
 *     registers twice (PREFETCH)       F M | P |       ASTRA's pipeline (figure 1)
 *     shared memory twice              F P M |         one barrier a step
 *     both                             F M P |         one barrier, and F behind M
 */
#define FETCH_EARLY (PREFETCH || SHARED_BUFFERS == 2)
#define PUT_EARLY (!PREFETCH && SHARED_BUFFERS == 2)

/* Without tiles in shared memory there is nothing to wait for. */
#if SHARE_A || SHARE_B
#define SYNCHRONISE() BARRIER()
#else
#define SYNCHRONISE()
#endif

/* How a tile may be read: each element checked, none checked, or none checked
 * and vectors aligned. */
#define CHECKED 0
#define INSIDE 1
#define WIDE 2

/* Elements side by side, read or written at once. */
typedef struct ALIGNED(READ_VECTOR * ELEM_BYTES) { elem e[READ_VECTOR]; } read_vector;
typedef struct ALIGNED(FRAGMENT_VECTOR * ELEM_BYTES) { elem e[FRAGMENT_VECTOR]; } fragment_vector;

/* A thread block's view of op(A) or op(B).  `side` is the index that is not k:
 * rows of op(A), columns of op(B). */
typedef struct {
    const GLOBAL elem *at; /* first element of the block's next tile */
    isize ld;              /* leading dimension */
    int side_left;         /* how much of the block's side lies inside the matrix */
    int wide;              /* whether vectors are aligned */
} operand;

/* ---- Reading tiles ------------------------------------------------------ */

HELPER int least(isize left, int most) { return left < most ? (int)left : most; }

/* Where (side s, k l) lies, counted from the tile's first element. */
HELPER isize place(int s, int l, isize ld, int k_fast)
{
    return k_fast ? l + s * ld : s + l * ld;
}

HELPER elem read_element(const GLOBAL elem *at, int conj)
{
    return conj ? elem_conj(*at) : *at;
}

/* Read READ_VECTOR elements that lie side by side in memory, from (s, l) on. */
HELPER void read_side_by_side(PRIVATE elem *held, operand x, int s, int l, int k_left,
                              int k_fast, int conj, int mode)
{
    const GLOBAL elem *at = x.at + place(s, l, x.ld, k_fast);
    if (mode == WIDE) {
        const read_vector v = *(const GLOBAL read_vector *)at;
        UNROLL for (int r = 0; r < READ_VECTOR; ++r)
            held[r] = conj ? elem_conj(v.e[r]) : v.e[r];
    } else {
        UNROLL for (int r = 0; r < READ_VECTOR; ++r) {
            const int inside = mode == INSIDE || (s + (k_fast ? 0 : r) < x.side_left &&
                                                  l + (k_fast ? r : 0) < k_left);
            held[r] = elem_zero();
            if (inside)
                held[r] = read_element(at + r, conj);
        }
    }
}

/* This thread's first element of a tile, and its steps to the next ones.
 * Consecutive threads, and each vector, lie along the contiguous index. */
typedef struct {
    int s, l, step_s, step_l;
} share;

HELPER share share_of(int k_fast, int threads_side)
{
    const int threads_k = THREADS / threads_side;
    const int id = THREAD_ID;
    share mine;
    mine.step_s = threads_side * (k_fast ? 1 : READ_VECTOR);
    mine.step_l = threads_k * (k_fast ? READ_VECTOR : 1);
    mine.s = (k_fast ? id / threads_k : id % threads_side) * (mine.step_s / threads_side);
    mine.l = (k_fast ? id % threads_k : id / threads_side) * (mine.step_l / threads_k);
    return mine;
}

HELPER void fetch_as(PRIVATE elem *held, operand x, int k_left, int k_fast, int conj,
                     int block_side, int threads_side, int mode)
{
    const share mine = share_of(k_fast, threads_side);
    const int count_s = block_side / mine.step_s;
    UNROLL for (int l = 0; l < BLOCK_K / mine.step_l; ++l)
        UNROLL for (int s = 0; s < count_s; ++s)
            read_side_by_side(held + (l * count_s + s) * READ_VECTOR, x,
                              mine.s + s * mine.step_s, mine.l + l * mine.step_l, k_left,
                              k_fast, conj, mode);
}

/* Read this thread's share of a tile from device memory into registers.  All
 * threads of a block take the same way through the conditions. */
HELPER void fetch(PRIVATE elem *held, operand x, int k_left, int k_fast, int conj,
                  int block_side, int threads_side)
{
    if (x.side_left < block_side || k_left < BLOCK_K)
        fetch_as(held, x, k_left, k_fast, conj, block_side, threads_side, CHECKED);
    else if (READ_VECTOR > 1 && x.wide)
        fetch_as(held, x, k_left, k_fast, conj, block_side, threads_side, WIDE);
    else
        fetch_as(held, x, k_left, k_fast, conj, block_side, threads_side, INSIDE);
}

/* Write this thread's share from registers into shared memory.  A vector can go
 * in at once if it lies along the tile's rows and the pitch keeps rows aligned. */
HELPER void put(SHARED elem *tile, const PRIVATE elem *held, int pitch, int k_fast,
                int block_side, int threads_side)
{
    const share mine = share_of(k_fast, threads_side);
    const int count_s = block_side / mine.step_s;
    UNROLL for (int l = 0; l < BLOCK_K / mine.step_l; ++l)
        UNROLL for (int s = 0; s < count_s; ++s) {
            const PRIVATE elem *from = held + (l * count_s + s) * READ_VECTOR;
            SHARED elem *to =
                tile + (mine.l + l * mine.step_l) * pitch + mine.s + s * mine.step_s;
            if (!k_fast && pitch % READ_VECTOR == 0) {
                read_vector v;
                UNROLL for (int r = 0; r < READ_VECTOR; ++r) v.e[r] = from[r];
                *(SHARED read_vector *)to = v;
            } else {
                UNROLL for (int r = 0; r < READ_VECTOR; ++r) to[k_fast ? r * pitch : r] = from[r];
            }
        }
}

/* ---- Multiplying tiles -------------------------------------------------- */

/* First row (or column) of a thread's chunk, counted from the block's first. */
HELPER int chunk_at(int chunk, int thread, int threads, int tile)
{
    return STRIDED ? (chunk * threads + thread) * FRAGMENT_VECTOR
                   : thread * tile + chunk * FRAGMENT_VECTOR;
}

HELPER void fragment_from_shared(PRIVATE elem *fragment, const SHARED elem *row, int thread,
                                 int threads, int tile)
{
    UNROLL for (int c = 0; c < tile / FRAGMENT_VECTOR; ++c) {
        const fragment_vector v =
            *(const SHARED fragment_vector *)(row + chunk_at(c, thread, threads, tile));
        UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r)
            fragment[c * FRAGMENT_VECTOR + r] = v.e[r];
    }
}

HELPER void fragment_from_global(PRIVATE elem *fragment, operand x, int l, int thread,
                                 int threads, int tile, int k_fast, int conj, int mode)
{
    UNROLL for (int c = 0; c < tile / FRAGMENT_VECTOR; ++c) {
        const int s = chunk_at(c, thread, threads, tile);
        PRIVATE elem *to = fragment + c * FRAGMENT_VECTOR;
        if (mode == WIDE && !k_fast) {
            const fragment_vector v =
                *(const GLOBAL fragment_vector *)(x.at + place(s, l, x.ld, k_fast));
            UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r)
                to[r] = conj ? elem_conj(v.e[r]) : v.e[r];
        } else {
            UNROLL for (int r = 0; r < FRAGMENT_VECTOR; ++r) {
                to[r] = elem_zero();
                if (mode != CHECKED || s + r < x.side_left)
                    to[r] = read_element(x.at + place(s + r, l, x.ld, k_fast), conj);
            }
        }
    }
}

/* Add one column of op(A) times one row of op(B) to the thread's tile of C. */
HELPER void multiply_one(PRIVATE elem *sum, const SHARED elem *tile_a, operand a,
                         const SHARED elem *tile_b, operand b, int l, int mode)
{
    const int ti = THREAD_ID % THREADS_M;
    const int tj = THREAD_ID / THREADS_M;
    elem of_a[TILE_M], of_b[TILE_N];
    if (SHARE_A)
        fragment_from_shared(of_a, tile_a + l * PITCH_A, ti, THREADS_M, TILE_M);
    else
        fragment_from_global(of_a, a, l, ti, THREADS_M, TILE_M, K_FAST_A, CONJ_A, mode);
    if (SHARE_B)
        fragment_from_shared(of_b, tile_b + l * PITCH_B, tj, THREADS_N, TILE_N);
    else
        fragment_from_global(of_b, b, l, tj, THREADS_N, TILE_N, K_FAST_B, CONJ_B, mode);
    UNROLL for (int j = 0; j < TILE_N; ++j)
        UNROLL for (int i = 0; i < TILE_M; ++i)
            sum[j * TILE_M + i] = elem_madd(sum[j * TILE_M + i], of_a[i], of_b[j]);
}

HELPER void multiply_as(PRIVATE elem *sum, const SHARED elem *tile_a, operand a,
                        const SHARED elem *tile_b, operand b, int mode)
{
    ROLLED for (int l = 0; l < BLOCK_K; l += UNROLL_K)
        UNROLL for (int u = 0; u < UNROLL_K; ++u)
            multiply_one(sum, tile_a, a, tile_b, b, l + u, mode);
}

/* Add tile of A times tile of B to the thread's tile of C.  Only an operand that
 * comes straight through the cache can reach outside its matrix here: tiles in
 * shared memory are padded with zeros. */
HELPER void multiply(PRIVATE elem *sum, const SHARED elem *tile_a, operand a,
                     const SHARED elem *tile_b, operand b, int k_left)
{
    if (SHARE_A && SHARE_B) {
        multiply_as(sum, tile_a, a, tile_b, b, INSIDE);
    } else if (k_left < BLOCK_K || (!SHARE_A && a.side_left < BLOCK_M) ||
               (!SHARE_B && b.side_left < BLOCK_N)) {
        ROLLED for (int l = 0; l < k_left; ++l)
            multiply_one(sum, tile_a, a, tile_b, b, l, CHECKED);
    } else if (FRAGMENT_VECTOR > 1 && (SHARE_A || a.wide) && (SHARE_B || b.wide)) {
        multiply_as(sum, tile_a, a, tile_b, b, WIDE);
    } else {
        multiply_as(sum, tile_a, a, tile_b, b, INSIDE);
    }
}

/* ---- The kernel --------------------------------------------------------- */

/* The thread block's place in the grid of blocks.  The grid is walked in bands
 * of RASTER_ROWS block rows, column by column within a band: neighbours in time
 * then share tiles of both A and B in the cache.  One band holds all rows if
 * RASTER_ROWS is 0. */
HELPER void place_of_block(isize m, isize n, PRIVATE isize *i0, PRIVATE isize *j0)
{
    /* 32 bits: a grid has fewer than 2^31 blocks. */
    const unsigned int rows = (unsigned int)((m + BLOCK_M - 1) / BLOCK_M);
    const unsigned int columns = (unsigned int)((n + BLOCK_N - 1) / BLOCK_N);
    const unsigned int most = RASTER_ROWS ? RASTER_ROWS : rows;
    const unsigned int first = BLOCK_ID / (most * columns) * most;
    const unsigned int band = rows - first < most ? rows - first : most;
    const unsigned int within = BLOCK_ID - first * columns;
    *i0 = (isize)(first + within % band) * BLOCK_M;
    *j0 = (isize)(within / band) * BLOCK_N;
}

HELPER operand operand_at(const GLOBAL elem *first, isize ld, isize side_at, isize side,
                          int block_side, int k_fast, int vector)
{
    operand x;
    /* Block sides and BLOCK_K are multiples of the vector, so that the first
     * element's alignment and the leading dimension's decide for all tiles. */
    x.wide = ADDRESS(first) % (vector * ELEM_BYTES) == 0 && ld % vector == 0;
    x.at = first + (k_fast ? side_at * ld : side_at);
    x.ld = ld;
    x.side_left = least(side - side_at, block_side);
    return x;
}

HELPER void store(GLOBAL elem *c, isize ldc, const PRIVATE elem *sum, int m_left, int n_left,
                  elem alpha, elem beta)
{
    const int ti = THREAD_ID % THREADS_M;
    const int tj = THREAD_ID / THREADS_M;
    const int keep = !elem_is_zero(beta);
    UNROLL for (int j = 0; j < TILE_N; ++j) {
        const int column =
            chunk_at(j / FRAGMENT_VECTOR, tj, THREADS_N, TILE_N) + j % FRAGMENT_VECTOR;
        UNROLL for (int i = 0; i < TILE_M; ++i) {
            const int row =
                chunk_at(i / FRAGMENT_VECTOR, ti, THREADS_M, TILE_M) + i % FRAGMENT_VECTOR;
            if (row < m_left && column < n_left) {
                GLOBAL elem *at = c + row + column * ldc;
                elem result = elem_scale(alpha, sum[j * TILE_M + i]);
                if (keep) /* else C may hold anything, NaN too */
                    result = elem_add(result, elem_scale(beta, *at));
                *at = result;
            }
        }
    }
}

/* Fetch the next tiles of what goes through shared memory, and step on to the ones after. */
HELPER void fetch_tiles(PRIVATE elem *held_a, PRIVATE operand *a, PRIVATE elem *held_b,
                        PRIVATE operand *b, int k_left)
{
    if (SHARE_A) {
        fetch(held_a, *a, k_left, K_FAST_A, CONJ_A, BLOCK_M, READ_A_M);
        a->at += place(0, BLOCK_K, a->ld, K_FAST_A);
    }
    if (SHARE_B) {
        fetch(held_b, *b, k_left, K_FAST_B, CONJ_B, BLOCK_N, READ_B_N);
        b->at += place(0, BLOCK_K, b->ld, K_FAST_B);
    }
}

HELPER void put_tiles(SHARED elem *tile_a, const PRIVATE elem *held_a, SHARED elem *tile_b,
                      const PRIVATE elem *held_b)
{
    if (SHARE_A)
        put(tile_a, held_a, PITCH_A, K_FAST_A, BLOCK_M, READ_A_M);
    if (SHARE_B)
        put(tile_b, held_b, PITCH_B, K_FAST_B, BLOCK_N, READ_B_N);
}

KERNEL THREADS_PER_BLOCK(THREADS) void gemm(
    isize m, isize n, isize k,
    REAL alpha_re, REAL alpha_im, const GLOBAL elem *RESTRICT a_first, isize offset_a, isize lda,
    const GLOBAL elem *RESTRICT b_first, isize offset_b, isize ldb,
    REAL beta_re, REAL beta_im, GLOBAL elem *RESTRICT c_first, isize offset_c, isize ldc)
{
#if SHARE_A
    SHARED_ARRAY ALIGNED(TILE_ALIGNMENT) elem tile_a[SHARED_BUFFERS * SIZE_A];
#else
    SHARED elem *const tile_a = 0;
#endif
#if SHARE_B
    SHARED_ARRAY ALIGNED(TILE_ALIGNMENT) elem tile_b[SHARED_BUFFERS * SIZE_B];
#else
    SHARED elem *const tile_b = 0;
#endif
    elem held_a[HELD_A], held_b[HELD_B];
    elem sum[TILE_M * TILE_N];
    UNROLL for (int i = 0; i < TILE_M * TILE_N; ++i) sum[i] = elem_zero();

    isize i0, j0;
    place_of_block(m, n, &i0, &j0);
    operand a = operand_at(a_first + offset_a, lda, i0, m, BLOCK_M, K_FAST_A,
                           SHARE_A ? READ_VECTOR : FRAGMENT_VECTOR);
    operand b = operand_at(b_first + offset_b, ldb, j0, n, BLOCK_N, K_FAST_B,
                           SHARE_B ? READ_VECTOR : FRAGMENT_VECTOR);

    /* An empty sum stays empty whatever alpha is, and alpha = 0 reads no operand. */
    elem alpha = elem_scalar(alpha_re, alpha_im);
    if (k == 0)
        alpha = elem_zero();
    if (elem_is_zero(alpha))
        k = 0;

    /* All conditions below are the same for every thread of the block: barriers
     * inside them are met by all.  At the head of the loop the tiles of its step
     * are in shared memory. */
    int buffer = 0;
    if (k > 0) {
        fetch_tiles(held_a, &a, held_b, &b, least(k, BLOCK_K));
        put_tiles(tile_a, held_a, tile_b, held_b);
    }
    SYNCHRONISE();
    for (; k > 0; k -= BLOCK_K) {
        const int now = least(k, BLOCK_K);
        const isize later = k - BLOCK_K;
        const int other = SHARED_BUFFERS == 2 ? buffer ^ 1 : 0;
        if (FETCH_EARLY && later > 0)
            fetch_tiles(held_a, &a, held_b, &b, least(later, BLOCK_K));
        if (PUT_EARLY && later > 0)
            put_tiles(tile_a + other * SIZE_A, held_a, tile_b + other * SIZE_B, held_b);

        multiply(sum, tile_a + buffer * SIZE_A, a, tile_b + buffer * SIZE_B, b, now);
        if (!SHARE_A)
            a.at += place(0, BLOCK_K, a.ld, K_FAST_A);
        if (!SHARE_B)
            b.at += place(0, BLOCK_K, b.ld, K_FAST_B);

#if SHARED_BUFFERS == 1
        SYNCHRONISE(); /* all have read the tiles that are overwritten next */
#endif
        if (!FETCH_EARLY && later > 0)
            fetch_tiles(held_a, &a, held_b, &b, least(later, BLOCK_K));
        if (!PUT_EARLY && later > 0)
            put_tiles(tile_a + other * SIZE_A, held_a, tile_b + other * SIZE_B, held_b);
        SYNCHRONISE(); /* all of the next tiles are there */
        buffer = other;
    }
    store(c_first + offset_c + i0 + j0 * ldc, ldc, sum, least(m - i0, BLOCK_M),
          least(n - j0, BLOCK_N), alpha, elem_scalar(beta_re, beta_im));
}
