/* Products of elements of 16 bits, which warps read from shared memory as floats.  A part of
 * kernel.cuh.
 *
 * A block reads A's rows and B's columns once, neighbours what lies side by side in memory.  Rows
 * are staged from CHUNK before the tile's first one on, as a warp's rows may begin there.  Those
 * CHUNK apart lie side by side, and such columns, too: lanes meet different banks, and a warp's
 * columns are read 16 bytes at once.  Of a step, CHUNK 4:
 *
 *     | a0 a4 a8 ... | a1 a5 ... | a2 ... | a3 ... |
 *     | b0 b4 b8 ... | b1 b5 ... | b2 ... | b3 ... |     columns of warps 0, 1, 2, 3
 */

#define SIDE_A (BLOCK_M + CHUNK)

/* Whoever runs this source elsewhere defines EMULATED as a file that has these functions. */
#ifdef EMULATED
#include EMULATED
#else
HELPER operand load_element(const operand *from) { return *from; }

/* The shared memory that the launch asks for. */
HELPER elem *shared_memory(void)
{
    DYNAMIC_SHARED_ARRAY ALIGNED(16) elem arena[];
    return arena;
}
#endif

/* Where element x of SIDE is at step i. */
template <int SIDE> HELPER unsigned int place_of(int i, unsigned int x)
{
    return (i * CHUNK + x % CHUNK) * (SIDE / CHUNK) + x / CHUNK;
}

/* Rows of op(A) that a lane has, with BLOCK_K steps of k. */
struct rows {
    elem e[BLOCK_K][CHUNK];
};

/* Columns of a warp at a step. */
struct ALIGNED(16) four_columns {
    elem y[TOGETHER];
};

static_assert(BLOCK_N % (CHUNK * TOGETHER) == 0, "a warp's columns are read four at once");

HELPER elem *staged_a(void) { return shared_memory(); }

HELPER elem *staged_b(void) { return staged_a() + BLOCK_K * SIDE_A; }

/* Which of SIDE rows or columns, and which step, element `at` of what a block reads is. */
template <int SIDE, bool ALONG_K> HELPER int side_at(unsigned int at)
{
    return ALONG_K ? at / BLOCK_K : at % SIDE;
}

template <int SIDE, bool ALONG_K> HELPER int step_at(unsigned int at)
{
    return ALONG_K ? at % BLOCK_K : at / SIDE;
}

/* Bring SIDE rows or columns of an operand from `first` on; what lies beyond it is zero.  All loads
 * of a thread are on their way before one is waited for: none is left out. */
template <int SIDE, bool ALONG_K>
HELPER void stage(elem *to, const operand *from, isize ld, isize first, isize side, isize k)
{
    constexpr int ALL = SIDE * BLOCK_K, TIMES = (ALL + THREADS - 1) / THREADS;
    const operand *const begin = from + first * (ALONG_K ? ld : 1);
    const int least = first < 0 ? (int)-first : 0, steps = (int)k;
    const int most = side - first < SIDE ? (int)(side - first) : SIDE;
    operand v[TIMES];
    UNROLL for (int u = 0; u < TIMES; ++u) {
        const int x = side_at<SIDE, ALONG_K>(THREAD_ID + u * THREADS);
        const int i = step_at<SIDE, ALONG_K>(THREAD_ID + u * THREADS);
        const bool inside = x >= least && x < most && i < steps;
        const isize apart = ALONG_K ? i + x * ld : x + i * ld;
        v[u] = load_element(inside ? begin + apart : from);
        v[u] = inside ? v[u] : 0;
    }
    UNROLL for (int u = 0; u < TIMES; ++u) {
        const int at = THREAD_ID + u * THREADS;
        if (at < ALL)
            to[place_of<SIDE>(step_at<SIDE, ALONG_K>(at), side_at<SIDE, ALONG_K>(at))] =
                widened(v[u]);
    }
}

/* Read a lane's rows; those outside C are whatever lies there. */
HELPER void read_rows(rows *to, const product *p, isize)
{
    UNROLL for (int e = 0; e < CHUNK; ++e) {
        const elem *const row = staged_a() + place_of<SIDE_A>(0, p->row + e);
        UNROLL for (int i = 0; i < BLOCK_K; ++i) to->e[i][e] = row[i * SIDE_A];
    }
}

/* Add the products of a lane's rows with MANY columns of B: as many as are read at once. */
template <int MANY> HELPER void multiply(elem *sum, const rows *x, const product *p, isize)
{
    const int steps = (int)p->k;
    UNROLL for (int i = 0; i < BLOCK_K; ++i) {
        if (i >= steps)
            break;
        const four_columns b = *(const four_columns *)(staged_b() + place_of<BLOCK_N>(i, p->column));
        UNROLL for (int u = 0; u < MANY; ++u)
            UNROLL for (int e = 0; e < CHUNK; ++e) {
                elem *const to = sum + u * CHUNK + e;
                *to = elem_madd(*to, x->e[i][e], b.y[u]);
            }
    }
}

/* Add those with one column, of any length: operands are read where they lie. */
HELPER void multiply_column(elem *sum, rows *, const product *p)
{
    ROLLED for (isize l = 0; l < p->k; ++l) {
        const elem y = widened(load_element(p->b + l * (TRANS_B ? p->ldb : 1)));
        UNROLL for (int e = 0; e < CHUNK; ++e)
            if (p->own[e]) {
                const operand *const a = p->a + (TRANS_A ? l + e * p->lda : e + l * p->lda);
                sum[e] = elem_madd(sum[e], widened(load_element(a)), y);
            }
    }
}
