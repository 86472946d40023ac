/* The guard's decision, by the last thread block: which arithmetic is right for these operands.
 *
 * Where sides of B begin at 0, B is A, and what is known of A's counts for both.
 *
 * If at most f_A elements of any row of op(A) are faint, and at most f_B of any column of
 * op(B), every element of C has at least k - f_A - f_B terms of which neither factor is.
 */

/* Whether all other blocks have ended, and everything they wrote can be read. */
HELPER int is_last_block(GLOBAL int *tops, SHARED int *shared)
{
    BARRIER_OF_ALL_MEMORY();
    if (THREAD_ID == 0) {
        FENCE();
        shared[0] = ATOMIC_ADD(tops + DONE, 1) == (int)BLOCK_COUNT - 1;
        FENCE();
    }
    BARRIER_OF_ALL_MEMORY();
    return shared[0];
}

/* The largest counts of sides from `begin` on, put together by the whole block, and whether
 * something is not finite: COUNTS + 1 numbers in `shared`.  Their tops are zero afterwards. */
HELPER void most_of(SHARED int *shared, GLOBAL int *tops, const GLOBAL int *sides, isize all,
                    isize begin, isize end)
{
    const ints none = {{0, 0, 0, 0}};
    int mine[COUNTS + 1] = {0, 0, 0, 0};
    for (isize s = begin + THREAD_ID * VECTOR; s < end; s += THREADS * VECTOR) {
        GLOBAL ints *const at = (GLOBAL ints *)(tops + TOP(s));
        const ints top = *at;
        *at = none;
        UNROLL for (int e = 0; e < VECTOR; ++e) if (top.e[e] >= 0x7f800000) mine[COUNTS] = 1;
        UNROLL for (int c = 0; c < COUNTS; ++c) {
            const ints count = *(const GLOBAL ints *)(sides + COUNT(s, c));
            UNROLL for (int e = 0; e < VECTOR; ++e)
                /* a side of zeros: its sums are zero whoever computes them */
                if (top.e[e] != 0 && count.e[e] > mine[c])
                    mine[c] = count.e[e];
        }
    }
    BARRIER();
    for (int c = 0; c <= COUNTS; ++c) shared[c * THREADS + THREAD_ID] = mine[c];
    /* First a warp for each number, then a thread. */
    for (int left = THREADS; left > 1; left = left > 32 ? 32 : 1) {
        const int next = left > 32 ? 32 : 1, c = THREAD_ID / next;
        int most = 0;
        BARRIER();
        if (c <= COUNTS)
            for (int s = THREAD_ID % next; s < left; s += next)
                if (shared[c * THREADS + s] > most)
                    most = shared[c * THREADS + s];
        BARRIER();
        if (c <= COUNTS)
            shared[c * THREADS + THREAD_ID % next] = most;
    }
    BARRIER();
}

HELPER int route_of(const PRIVATE int *decision)
{
    const int seen = decision[DECISION_SEEN];
    const int cut = decision[DECISION_CUT_A] > decision[DECISION_CUT_B]
                        ? decision[DECISION_CUT_A]
                        : decision[DECISION_CUT_B];
    /* The product of second parts is left out: where there is one, so much has to be there
     * that single precision rounds. */
    const int terms = decision[DECISION_SHORT_A] || decision[DECISION_SHORT_B]
                          ? seen
                          : decision[DECISION_WIDE];
    if (!decision[DECISION_FINITE] || seen < TERMS_BF16)
        return ROUTE_IEEE;
    /* Products of two short operands have 22 bits at most: single precision may add them exactly. */
    if (decision[DECISION_SHORT_A] && decision[DECISION_SHORT_B])
        return ROUTE_IEEE;
    if (terms >= TERMS_FP16 && cut <= seen / TERMS_A_CUT)
        return ROUTE_FP16X3;
    return ROUTE_BF16X6;
}

/* Decide and write it down, of a batch's last product once more; `shared` has room for
 * (COUNTS + 1) THREADS. */
HELPER void decide(isize k, SHARED int *shared, GLOBAL int *tops, const GLOBAL int *sides,
                   isize all, isize first_b, GLOBAL int *decision, GLOBAL int *report)
{
    int of_a[COUNTS + 1], of_b[COUNTS + 1], made[DECISIONS];
    most_of(shared, tops, sides, all, 0, first_b);
    for (int c = 0; c <= COUNTS; ++c) of_a[c] = shared[c * THREADS];
    most_of(shared, tops, sides, all, first_b, all);
    for (int c = 0; c <= COUNTS; ++c) {
        of_b[c] = shared[c * THREADS];
        of_a[c] = first_b ? of_a[c] : of_b[c];
    }
    if (THREAD_ID)
        return;
    made[DECISION_FINITE] = !of_a[COUNTS] && !of_b[COUNTS];
    made[DECISION_SEEN] = (int)(k - of_a[FAINT] - of_b[FAINT]);
    made[DECISION_WIDE] = (int)(k - of_a[NARROW] - of_b[NARROW]);
    made[DECISION_CUT_A] = of_a[CUT];
    made[DECISION_CUT_B] = of_b[CUT];
    made[DECISION_SHORT_A] = !sides[MARK(0)];
    made[DECISION_SHORT_B] = !sides[MARK(first_b != 0)];
    made[DECISION_ROUTE] = route_of(made);
    for (int d = 0; d < DECISIONS; ++d) {
        decision[d] = made[d];
        if (IS_LAST_PRODUCT)
            report[d] = made[d];
    }
}
