/* LU factorisation with partial pivoting of a panel: all rows of at most WIDTH columns, in one
 * launch, whose blocks stay and wait for one another.
 *
 *     columns of the panel, SLAB at a time         every thread holds ROWS rows of a slab in
 *     +----+----+----+----+                        registers; a block's are THREADS ROWS rows
 *     | L  | x  | A  | A  |
 *     | .  | x  | .  | .  |       x -= L U       left-looking: what earlier slabs left to do; U by
 *     | .  | x  | .  | .  |                      the inverse of the pivots' rows of L, which every
 *     +----+----+----+----+                      block keeps in shared memory
 *
 * In a column every block sends its largest element, with its row, to all others and finds the
 * largest of all among what they send: that row is the pivot, and what it has right of the column
 * is U.  So blocks meet once a column.  Rows stay where they are until the panel is whole: rows
 * that were pivots only stop taking part.  Then they go where LAPACK's exchanges bring them.
 *
 * The matrix is row-major; the panel begins at a multiple of 16 bytes, and so do its rows.
 *
 * Macros: ROWS (of a thread), WIDTH (64 or 128), SLAB (16), THREADS (256).
 */
#define UNIT 1

#include "lu/words.cuh"
#include "lu/inverse.cuh"
#include "lu/messages.cuh"

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

/* Exchange the row that is at k with pivot number k, as LAPACK does.  By one thread. */
HELPER void exchange(const int *pivot, int k, int width, int *at_top, int *place, int *exchanged)
{
    const int row = pivot[k], top = at_top[k];
    const int from = row < width ? place[row] : row;
    exchanged[k] = from;
    if (from < width)
        at_top[from] = top;
    place[top] = from;
    if (row < width)
        place[row] = k;
}

/* rows, width: of the panel.  a, ld: where it begins.  top: WIDTH x WIDTH elements of scratch.
 * inverse: becomes that of the pivots' rows of L, WIDTH x WIDTH.
 * own: becomes the rows' order: own[k] is the row that comes to row k < width, and where that is
 *      no row of the top, own[own[k]] the one that takes its place; others are not written.
 * orders, apart, many, begun: of wider panels that this one is a part of, one behind the other: their
 *      rows' orders, from this one's first row on.  Bit i of `begun`: the i-th has been begun.
 * pivots, before: LAPACK's, plus the rows above the panel.
 * messages, counter, number: what blocks send, whose tags are below this launch's (256 number and
 * up) or zero, and a word that is zero.
 * zero: the first pivot that is zero, counted from 1, if it was 0. */
KERNEL IN_CLUSTERS THREADS_AND_BLOCKS(THREADS, 1) void lu_panel(isize rows, int width, GLOBAL elem *a, isize ld,
                                                GLOBAL elem *top, GLOBAL elem *inverse,
                                                GLOBAL int *own, GLOBAL int *orders, isize apart,
                                                int many, int begun,
                                                GLOBAL int *pivots, int before,
                                                GLOBAL words4 *messages,
                                                GLOBAL unsigned int *counter, unsigned int number,
                                                GLOBAL int *zero)
{
    DYNAMIC_SHARED_ARRAY chunk shared[];
    elem *const inverted = (elem *)shared;             /* WIDTH x PITCH */
    elem *const lower = inverted + WIDTH * PITCH;      /* SLAB x PITCH: new pivots' rows of L */
    elem *const given = lower + SLAB * PITCH;          /* WIDTH x SLAB, or SLAB x PITCH */
    elem *const upper = given + SLAB * PITCH;          /* WIDTH x UPPER_PITCH of U */
    unsigned int *const heard = (unsigned int *)(upper + WIDTH * UPPER_PITCH);
    SHARED_ARRAY candidate candidates[2][WARPS];
#if CLUSTER
    usize *const arrivals = (usize *)(heard + 2 * CLUSTER * HEARD); /* of even and odd columns */
#endif
    SHARED_ARRAY ALIGNED(16) unsigned int saids[2][WARPS][HEARD];
    SHARED_ARRAY int pivot[WIDTH], at_top[WIDTH], place[WIDTH], exchanged[WIDTH];
    const int lane = THREAD_ID % WARP, warp = THREAD_ID / WARP;
    const int blocks = (int)BLOCK_COUNT;
    meeting met = {counter, 0};
    elem x[ROWS][SLAB];
    bool takes_part[ROWS];
    unsigned int row[ROWS];

    UNROLL for (int r = 0; r < ROWS; ++r) {
        row[r] = (unsigned int)(ROWS_OF_WARP(r) + lane);
        takes_part[r] = row[r] < rows;
        for (int i = 0; i < many; ++i)
            if (!(begun >> i & 1) && takes_part[r])
                orders[i * apart + row[r]] = (int)row[r];
    }
    for (int i = THREAD_ID; i < WIDTH * PITCH; i += THREADS) inverted[i] = elem_zero();
    for (int i = THREAD_ID; i < WIDTH; i += THREADS) at_top[i] = place[i] = i;
#if CLUSTER
    if (THREAD_ID == 0)
        UNROLL for (int i = 0; i < 2; ++i) make_arrivals(arrivals + i);
    meet_all(&met);
#else
    BARRIER();
#endif

    ROLLED for (int first = 0; first < width; first += SLAB) {
        const int columns = width - first < SLAB ? width - first : SLAB;
        bool in_slab[ROWS];
        UNROLL for (int r = 0; r < ROWS; ++r) {
            in_slab[r] = takes_part[r];
            const GLOBAL elem *const from = a + (isize)row[r] * ld + first;
            if (columns == SLAB) {
                load_rows(x[r], from - lane * ld, ld, warp_ballot(takes_part[r]), lower);
                continue;
            }
            UNROLL for (int c = 0; c < SLAB; ++c)
                x[r][c] = takes_part[r] && c < columns ? from[c] : elem_zero();
        }
        BARRIER(); /* what is given lies there, too */
        if (first) {
            elem v[WIDTH / TOGETHER_ROWS];
            const int c = THREAD_ID % SLAB, i0 = THREAD_ID / SLAB;
            UNROLL for (int q = 0; q < WIDTH / TOGETHER_ROWS; ++q) {
                const int k = q * TOGETHER_ROWS + i0;
                const bool there = k < first && c < columns;
                v[q] = there ? a[(isize)pivot[k] * ld + first + c] : elem_zero();
            }
            UNROLL for (int q = 0; q < WIDTH / TOGETHER_ROWS; ++q)
                if (q * TOGETHER_ROWS + i0 < first)
                    given[(q * TOGETHER_ROWS + i0) * GIVEN_PITCH + c] = v[q];
            BARRIER();
            find_upper(upper, inverted, given, first, BLOCK_ID ? 0 : top + first, columns);
            BARRIER();
            subtract_product(x, row, takes_part, a, ld, rows, first, upper, given);
        }

        /* Columns are x[r][0] and those beside it, and behind them the slab goes round, so that one
         * text serves all columns: a text for each does not stay in the instruction cache. */
        ROLLED for (int j0 = 0; j0 < SLAB; j0 += AT_ONCE) {
        UNROLL for (int o = 0; o < AT_ONCE; ++o) {
            const int j = j0 + o;
            if (j >= columns) /* all threads alike */
                break;
            candidate *const in_block = candidates[j & 1];
            const candidate none = {0, 0};
            candidate mine = none;
            int which = 0;
            UNROLL for (int r = 0; r < ROWS; ++r) {
                const candidate one = candidate_of(x[r][o]);
                if (takes_part[r] && is_larger(one, mine)) {
                    mine = one;
                    which = r;
                }
            }
            unsigned int(*const said)[HEARD] = saids[j & 1];
            if (lane == lane_of_largest(mine)) {
                in_block[warp] = mine;
                UNROLL for (int r = 0; r < ROWS; ++r)
                    if (r == which) {
                        said[warp][0] = mine.high ? row[r] : NOBODY;
                        UNROLL for (int c = 0; c < SLAB - o; ++c)
                            ((elem *)(said[warp] + 4))[c] = x[r][o + c];
                    }
            }
            BARRIER();
            const int its_warp = lane_of_largest(lane < WARPS ? in_block[lane] : none);
            send_row(said[its_warp], its_warp, first + j, j, ROOM, number);
            if (THREAD_ID == THREADS - 1 && first + j > 0) /* while messages are on their way */
                exchange(pivot, first + j - 1, width, at_top, place, exchanged);
            const unsigned int *const rows_heard = hear_rows(first + j, j, ROOM, number);
            /* Lanes are blocks; each inverts what it has of the largest, for LAPACK multiplies. */
            candidate largest = none;
            elem of_largest = elem_one();
            unsigned int row_of_largest = NOBODY;
            int from = lane;
            ROLLED for (int block = lane; block < blocks; block += WARP) {
                const elem its = row_heard(rows_heard, block)[0];
                const unsigned int its_row = rows_heard[block * HEARD];
                const candidate one = candidate_of(its);
                if (its_row != NOBODY && is_larger(one, largest)) {
                    largest = one;
                    of_largest = its;
                    row_of_largest = its_row;
                    from = block;
                }
            }
            const elem inverse_there = inverse_of(of_largest);
            const int winner = lane_of_largest(largest);
            from = blocks > WARP ? (int)warp_read((unsigned int)from, winner) : winner;
            const unsigned int pivot_row = warp_read(row_of_largest, winner);
            const elem divisor = read_lane(of_largest, winner);
            const elem factor = read_lane(inverse_there, winner);
            const elem *const u = row_heard(rows_heard, from);
            const bool is_zero = elem_is_zero(divisor), far = is_far(size_of(divisor));
            if (THREAD_ID == 0) {
                pivot[first + j] = (int)pivot_row;
                if (BLOCK_ID == 0 && is_zero && *zero == 0)
                    *zero = before + first + j + 1;
            }
            elem its[SLAB];
            UNROLL for (int c = 0; c < SLAB - o; c += CHUNK) {
                const chunk v = *(const chunk *)(u + c);
                UNROLL for (int e = 0; e < CHUNK; ++e) its[c + e] = v.e[e];
            }
            UNROLL for (int r = 0; r < ROWS; ++r) {
                takes_part[r] = takes_part[r] && row[r] != pivot_row;
                if (takes_part[r] && !is_zero) {
                    x[r][o] = far ? elem_over(x[r][o], divisor) : elem_times(x[r][o], factor);
                    const elem minus = elem_minus(x[r][o]);
                    UNROLL for (int c = o + 1; c < SLAB; ++c)
                        if (c < SLAB - j0)
                            x[r][c] = elem_madd(x[r][c], minus, its[c - o]);
                }
            }
        }
        UNROLL for (int r = 0; r < ROWS; ++r) go_round(x[r]);
        }

        UNROLL for (int r = 0; r < ROWS; ++r) {
            GLOBAL elem *const to = a + (isize)row[r] * ld + first;
            if (columns == SLAB)
                store_rows(x[r], to - lane * ld, ld, warp_ballot(in_slab[r]), lower);
            else if (in_slab[r])
                UNROLL for (int c = 0; c < SLAB; ++c)
                    if (c < columns)
                        to[c] = x[r][c];
        }
        meet_all(&met);
        elem of_pivot[SLAB * WIDTH / THREADS];
        UNROLL for (int q = 0; q < SLAB * WIDTH / THREADS; ++q) {
            const int i = q * THREADS + THREAD_ID, k = i / WIDTH, c = i % WIDTH;
            const bool known = k < columns && c < first + columns;
            of_pivot[q] = elem_zero();
            if (known)
                of_pivot[q] = read_fresh(a + (isize)pivot[first + k] * ld + c);
        }
        UNROLL for (int q = 0; q < SLAB * WIDTH / THREADS; ++q) {
            const int i = q * THREADS + THREAD_ID;
            lower[i / WIDTH * PITCH + i % WIDTH] = of_pivot[q];
        }
        BARRIER();
        grow_inverse(inverted, lower, given, first);
        BARRIER();
    }

    if (THREAD_ID == THREADS - 1)
        exchange(pivot, width - 1, width, at_top, place, exchanged);
    /* Nobody reads a row of the panel where it was any more. */
    meet_all(&met);
#define COLUMNS 4
#define EACH (WIDTH * COLUMNS / THREADS)
    ROLLED for (int c0 = (int)BLOCK_ID * COLUMNS; c0 < width; c0 += blocks * COLUMNS) {
        const int c = c0 + THREAD_ID % COLUMNS, k0 = THREAD_ID / COLUMNS;
        elem above[EACH], moved[EACH];
        UNROLL for (int i = 0; i < EACH; ++i) {
            const int k = k0 + i * (THREADS / COLUMNS);
            above[i] = moved[i] = elem_zero();
            if (k >= width || c >= width)
                continue;
            const bool here = c < (k / SLAB + 1) * SLAB;
            above[i] = read_fresh(here ? a + (isize)pivot[k] * ld + c : top + k * WIDTH + c);
            if (place[k] >= width)
                moved[i] = read_fresh(a + (isize)k * ld + c);
        }
        BARRIER();
        UNROLL for (int i = 0; i < EACH; ++i) {
            const int k = k0 + i * (THREADS / COLUMNS);
            if (k >= width || c >= width)
                continue;
            a[(isize)k * ld + c] = above[i];
            if (place[k] >= width)
                a[(isize)place[k] * ld + c] = moved[i];
        }
    }
    if (BLOCK_ID)
        return;
    for (int i = THREAD_ID; i < WIDTH * WIDTH; i += THREADS)
        inverse[i] = inverted[i / WIDTH * PITCH + i % WIDTH];
    const int k = THREAD_ID;
    const bool mine = k < width;
    if (mine) {
        pivots[k] = before + exchanged[k];
        own[k] = pivot[k];
        if (place[k] >= width)
            own[place[k]] = k;
    }
    for (int i = 0; i < many; ++i) {
        GLOBAL int *const order = orders + i * apart;
        const int came = mine ? read_fresh_int(order + pivot[k]) : 0;
        const int went = mine ? read_fresh_int(order + k) : 0;
        BARRIER();
        if (mine) {
            order[k] = came;
            if (place[k] >= width)
                order[place[k]] = went;
        }
    }
}
