/* The guard's decision, by one thread block: which arithmetic is right for these operands.
 *
 * If at most f_A elements of any row of op(A) are faint, and at most f_B of any column of
 * op(B), every element of C has at least k - f_A - f_B terms of which neither factor is.
 */
#include "split/numbers.h"
#include "split/guard.h"

#define THREADS 256

/* The largest counts of sides from `begin` on, put together by the whole block. */
HELPER void most_of(PRIVATE int *most, PRIVATE int *finite, SHARED int *shared,
                    const GLOBAL int *sides, isize all, isize begin, isize end)
{
    int mine[COUNTS + 1] = {0, 0, 0, 0};
    for (isize s = begin + THREAD_ID; s < end; s += THREADS) {
        if (sides[TOP(s)] == 0) /* a side of zeros: its sums are zero whoever computes them */
            continue;
        if (sides[TOP(s)] >= 0x7f800000)
            mine[COUNTS] = 1;
        for (int c = 0; c < COUNTS; ++c)
            if (sides[COUNT(s, c)] > mine[c])
                mine[c] = sides[COUNT(s, c)];
    }
    for (int c = 0; c <= COUNTS; ++c) {
        BARRIER();
        shared[THREAD_ID] = mine[c];
        for (int apart = THREADS / 2; apart > 0; apart /= 2) {
            BARRIER();
            if (THREAD_ID < apart && shared[THREAD_ID + apart] > shared[THREAD_ID])
                shared[THREAD_ID] = shared[THREAD_ID + apart];
        }
        BARRIER();
        if (c < COUNTS)
            most[c] = shared[0];
        else
            *finite &= !shared[0];
    }
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
    if (terms >= TERMS_FP16 && cut <= seen / TERMS_A_CUT)
        return ROUTE_FP16X3;
    return ROUTE_BF16X6;
}

KERNEL THREADS_PER_BLOCK(THREADS) void decide(isize m, isize n, isize k,
                                              const GLOBAL int *RESTRICT sides,
                                              GLOBAL int *RESTRICT decision,
                                              GLOBAL int *RESTRICT report)
{
    SHARED_ARRAY int shared[THREADS];
    const isize all = m + n;
    int of_a[COUNTS], of_b[COUNTS], finite = 1, made[DECISIONS];
    most_of(of_a, &finite, shared, sides, all, 0, m);
    most_of(of_b, &finite, shared, sides, all, m, all);
    if (THREAD_ID)
        return;
    made[DECISION_FINITE] = finite;
    made[DECISION_SEEN] = (int)(k - of_a[FAINT] - of_b[FAINT]);
    made[DECISION_WIDE] = (int)(k - of_a[NARROW] - of_b[NARROW]);
    made[DECISION_CUT_A] = of_a[CUT];
    made[DECISION_CUT_B] = of_b[CUT];
    made[DECISION_SHORT_A] = !sides[MARK(0)];
    made[DECISION_SHORT_B] = !sides[MARK(1)];
    made[DECISION_ROUTE] = route_of(made);
    for (int d = 0; d < DECISIONS; ++d) {
        decision[d] = made[d];
        report[d] = made[d];
    }
}
