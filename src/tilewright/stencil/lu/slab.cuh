/* A slab of a panel: its largest element in a column, its rows read and written together, and what
 * the columns before it left to do.  A part of panel.cuh, which draws it.
 *
 *     a warp in memory:      | row 0: lanes 0 to ACROSS - 1 | row 1: the next | ...  16 bytes each
 *     a thread in registers: x[r] is its row number r of ROWS, with all SLAB columns
 */

/* Between rows of a slab's U in shared memory, so that those that a tensor core reads at once lie in
 * other banks. */
#if TENSOR
#define UPPER_PITCH (SLAB + CHUNK)
#define GIVEN_PITCH (SLAB + CHUNK)
#else
#define UPPER_PITCH (SLAB + 2 * CHUNK)
#define GIVEN_PITCH SLAB
#endif
#define NOBODY 0xffffffffu

/* Columns of a slab that follow one another in the text. */
#ifndef AT_ONCE
#define AT_ONCE 2
#endif

/* The first of a warp's rows, which go round among blocks. */
#define ROWS_OF_WARP(r) \
    ((((r) * WARPS + THREAD_ID / WARP) * (int)BLOCK_COUNT + (int)BLOCK_ID) * WARP)

/* Of L, elements of a row that are read at a time. */
#define AHEAD (ROWS > 2 ? CHUNK : ROWS > 1 ? 2 * CHUNK : 4 * CHUNK)

/* Rows of U that are found at once. */
#define TOGETHER_ROWS (THREADS / SLAB)

/* The bits of an element's size; zeros are of no element. */
typedef struct { unsigned int high, low; } candidate;

HELPER candidate candidate_of(elem x)
{
    const usize size = size_of(x);
    const candidate made = {(unsigned int)(size >> 32), (unsigned int)size};
    return made;
}

HELPER bool is_larger(candidate a, candidate b)
{
    return a.high > b.high || (a.high == b.high && a.low > b.low);
}

/* The first lane that has a warp's largest.  Most often its upper half alone says so. */
HELPER int lane_of_largest(candidate mine)
{
    const unsigned int high = warp_max(mine.high);
    unsigned int lanes = warp_ballot(mine.high == high);
#if REAL_BYTES == 8
    if (high && (lanes & (lanes - 1))) { /* all lanes alike */
        const unsigned int low = warp_max(mine.high == high ? mine.low : 0);
        lanes = warp_ballot(mine.high == high && mine.low == low);
    }
#endif
    return __ffs((int)lanes) - 1;
}

/* Let the first of a row's elements become the last. */
HELPER void go_round(elem *x)
{
    elem first[AT_ONCE];
    UNROLL for (int c = 0; c < AT_ONCE; ++c) first[c] = x[c];
    UNROLL for (int c = AT_ONCE; c < SLAB; ++c) x[c - AT_ONCE] = x[c];
    UNROLL for (int c = 0; c < AT_ONCE; ++c) x[SLAB - AT_ONCE + c] = first[c];
}

HELPER elem read_lane(elem x, int lane)
{
    union { elem e; unsigned int word[ELEM_WORDS]; } v;
    v.e = x;
    UNROLL for (int i = 0; i < ELEM_WORDS; ++i) v.word[i] = warp_read(v.word[i], lane);
    return v.e;
}

HELPER const elem *row_heard(const unsigned int *heard, int block)
{
    return (const elem *)(heard + block * HEARD + 4);
}

/* 16 bytes of a row that a warp moves at once, and those of a slab. */
#define ACROSS (SLAB / CHUNK < 8 ? SLAB / CHUNK : 8)

/* Where a warp's lane has them in shared memory, so that neither rows nor columns meet in a bank. */
HELPER chunk *held_at(elem *room, int row, int part)
{
    return (chunk *)room + (THREAD_ID / WARP * WARP + row) * ACROSS + (part ^ row % ACROSS);
}

/* A warp's rows of a slab, whose lines it reads or writes together; `own` are the lanes whose rows
 * are.  `a`: where the first row begins.  `room`: shared memory, 32 x ACROSS chunks a warp. */
HELPER void load_rows(elem *x, const GLOBAL elem *a, isize ld, unsigned int own, elem *room)
{
    const int lane = THREAD_ID % WARP;
    UNROLL for (int c = 0; c < SLAB; c += ACROSS * CHUNK) {
        chunk v[ACROSS];
        UNROLL for (int i = 0; i < ACROSS; ++i) {
            const int row = (lane + i * WARP) / ACROSS, part = lane % ACROSS;
            UNROLL for (int e = 0; e < CHUNK; ++e) v[i].e[e] = elem_zero();
            if (own >> row & 1)
                v[i] = *(const GLOBAL chunk *)(a + row * ld + c + part * CHUNK);
        }
        UNROLL for (int i = 0; i < ACROSS; ++i)
            *held_at(room, (lane + i * WARP) / ACROSS, lane % ACROSS) = v[i];
        warp_meet();
        UNROLL for (int i = 0; i < ACROSS; ++i) {
            const chunk its = *held_at(room, lane, i);
            UNROLL for (int e = 0; e < CHUNK; ++e) x[c + i * CHUNK + e] = its.e[e];
        }
        warp_meet();
    }
}

HELPER void store_rows(const elem *x, GLOBAL elem *a, isize ld, unsigned int own, elem *room)
{
    const int lane = THREAD_ID % WARP;
    UNROLL for (int c = 0; c < SLAB; c += ACROSS * CHUNK) {
        UNROLL for (int i = 0; i < ACROSS; ++i) {
            chunk v;
            UNROLL for (int e = 0; e < CHUNK; ++e) v.e[e] = x[c + i * CHUNK + e];
            *held_at(room, lane, i) = v;
        }
        warp_meet();
        UNROLL for (int i = 0; i < ACROSS; ++i) {
            const int row = (lane + i * WARP) / ACROSS, part = lane % ACROSS;
            const chunk v = *held_at(room, row, part);
            if (own >> row & 1)
                *(GLOBAL chunk *)(a + row * ld + c + part * CHUNK) = v;
        }
        warp_meet();
    }
}

/* U of a slab: the lower inverse times what is given.  `top`: where it goes besides, if anywhere. */
HELPER void find_upper(elem *upper, const elem *inverted, const elem *given, int first,
                       GLOBAL elem *top, int columns)
{
#if TENSOR
    const int lane = THREAD_ID % WARP, g = lane / 4, t = lane % 4, row = THREAD_ID / WARP * 16;
    if (row >= first)
        return;
    double u[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    _Pragma("unroll 4") for (int k = 0; k < row + 16; k += 4) {
        const elem *const at = inverted + (row + g) * PITCH + k + t;
        const double l[2] = {at[0], at[8 * PITCH]};
        UNROLL for (int n = 0; n < 2; ++n)
            multiply_by_warp(u[n], l, given[(k + t) * GIVEN_PITCH + 8 * n + g]);
    }
    UNROLL for (int i = 0; i < 8; ++i) {
        const int to = row + g + i / 2 % 2 * 8, c = i / 4 * 8 + 2 * t + i % 2;
        upper[to * UPPER_PITCH + c] = u[i / 4][i % 4];
        if (top && c < columns)
            top[to * WIDTH + c] = u[i / 4][i % 4];
    }
#else
    const int c = THREAD_ID % SLAB, i0 = THREAD_ID / SLAB;
    elem u[WIDTH / TOGETHER_ROWS];
    UNROLL for (int q = 0; q < WIDTH / TOGETHER_ROWS; ++q) u[q] = elem_zero();
    ROLLED for (int from = 0; from < first; from += SLAB) {
        elem its[SLAB];
        UNROLL for (int k = 0; k < SLAB; ++k) its[k] = given[(from + k) * GIVEN_PITCH + c];
        UNROLL for (int q = 0; q < WIDTH / TOGETHER_ROWS; ++q) {
            const int i = q * TOGETHER_ROWS;
            if (i >= from && i < first)
                UNROLL for (int k = 0; k < SLAB; k += CHUNK) {
                    const chunk part = *(const chunk *)(inverted + (i + i0) * PITCH + from + k);
                    UNROLL for (int e = 0; e < CHUNK; ++e)
                        u[q] = elem_madd(u[q], part.e[e], its[k + e]);
                }
        }
    }
    UNROLL for (int q = 0; q < WIDTH / TOGETHER_ROWS; ++q) {
        const int i = q * TOGETHER_ROWS + i0;
        if (i >= first)
            continue;
        upper[i * UPPER_PITCH + c] = u[q];
        if (top && c < columns)
            top[i * WIDTH + c] = u[q];
    }
#endif
}

/* A row's part of L, read ahead. */
HELPER void read_lower(elem l[ROWS][AHEAD], const unsigned int *row, const bool *takes_part,
                       const GLOBAL elem *a, isize ld)
{
    UNROLL for (int r = 0; r < ROWS; ++r)
        UNROLL for (int e = 0; e < AHEAD; e += CHUNK) {
            chunk v;
            UNROLL for (int i = 0; i < CHUNK; ++i) v.e[i] = elem_zero();
            if (takes_part[r])
                v = *(const GLOBAL chunk *)(a + (isize)row[r] * ld + e);
            UNROLL for (int i = 0; i < CHUNK; ++i) l[r][e + i] = v.e[i];
        }
}

/* x -= L U: what the columns before a slab left to do in this thread's rows.  `room`: shared memory,
 * 32 x 8 elements a warp. */
HELPER void subtract_product(elem x[ROWS][SLAB], const unsigned int *row, const bool *takes_part,
                             const GLOBAL elem *a, isize ld, isize rows, int first,
                             const elem *upper, elem *room)
{
#if TENSOR
    const int lane = THREAD_ID % WARP, g = lane / 4, t = lane % 4;
    chunk *const mine = (chunk *)room + THREAD_ID / WARP * (WARP * 4);
    ROLLED for (int r = 0; r < ROWS; ++r) {
        /* The warp's rows, 8 by 8; what lies behind the last one is nobody's. */
        const GLOBAL elem *from[4];
        UNROLL for (int i = 0; i < 4; ++i) {
            const isize at = ROWS_OF_WARP(r) + 8 * i + g;
            from[i] = a + (at < rows ? at : rows - 1) * ld + 2 * t;
        }
        double sum[2][2][4];
        UNROLL for (int i = 0; i < 16; ++i) sum[i / 8][i / 4 % 2][i % 4] = 0;
        /* Of 8 columns a lane has 2 t and the next one: those of two steps, in another order. */
        chunk l[2][4], next[2][4];
        UNROLL for (int p = 0; p < 2; ++p)
            UNROLL for (int i = 0; i < 4; ++i) next[p][i] = *(const GLOBAL chunk *)(from[i] + 8 * p);
        ROLLED for (int k = 0; k < first; k += 16) {
            UNROLL for (int p = 0; p < 2; ++p)
                UNROLL for (int i = 0; i < 4; ++i) {
                    l[p][i] = next[p][i];
                    if (k + 16 < first)
                        next[p][i] = *(const GLOBAL chunk *)(from[i] + k + 16 + 8 * p);
                }
            UNROLL for (int step = 0; step < 4; ++step)
                UNROLL for (int n = 0; n < 2; ++n) {
                    const int p = step / 2, e = step % 2;
                    const double u = upper[(k + 8 * p + 2 * t + e) * UPPER_PITCH + 8 * n + g];
                    const double high[2] = {l[p][0].e[e], l[p][1].e[e]};
                    const double low[2] = {l[p][2].e[e], l[p][3].e[e]};
                    multiply_by_warp(sum[0][n], high, u);
                    multiply_by_warp(sum[1][n], low, u);
                }
        }
        UNROLL for (int n = 0; n < 2; ++n) {
            UNROLL for (int i = 0; i < 4; ++i) {
                const chunk v = {{sum[i / 2][n][i % 2 * 2], sum[i / 2][n][i % 2 * 2 + 1]}};
                mine[(8 * i + g) * 4 + t] = v;
            }
            warp_meet();
            UNROLL for (int i = 0; i < 4; ++i) {
                const chunk v = mine[lane * 4 + i];
                UNROLL for (int q = 0; q < ROWS; ++q)
                    if (q == r) {
                        x[q][8 * n + 2 * i] -= v.e[0];
                        x[q][8 * n + 2 * i + 1] -= v.e[1];
                    }
            }
            warp_meet();
        }
    }
#else
    elem l[ROWS][AHEAD], next[ROWS][AHEAD];
    read_lower(next, row, takes_part, a, ld);
    ROLLED for (int k = 0; k < first; k += AHEAD) {
        UNROLL for (int r = 0; r < ROWS; ++r)
            UNROLL for (int e = 0; e < AHEAD; ++e) l[r][e] = elem_minus(next[r][e]);
        if (k + AHEAD < first)
            read_lower(next, row, takes_part, a + k + AHEAD, ld);
        UNROLL for (int e = 0; e < AHEAD; ++e)
            UNROLL for (int c2 = 0; c2 < SLAB; c2 += CHUNK) {
                const chunk v = *(const chunk *)(upper + (k + e) * UPPER_PITCH + c2);
                UNROLL for (int r = 0; r < ROWS; ++r)
                    UNROLL for (int i = 0; i < CHUNK; ++i)
                        x[r][c2 + i] = elem_madd(x[r][c2 + i], l[r][e], v.e[i]);
            }
    }
#endif
}
