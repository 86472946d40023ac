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
#include "lu/slab.cuh"

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
