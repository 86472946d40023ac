/* A certificate of the products of residues and of their reconstruction (Freivalds 1977).
 *
 *     sum over k of (u A')[k] (B' v)[k]  =  u X v    modulo q = 2^31 - 1
 *
 * A', B' are the integers of residues.cl, X what reconstruct.cl puts together; elements of u and v are
 * uniform below 2^27.  If X - A' B' has an element that is no multiple of q, both sides are equal with a
 * probability of at most 2^-26: that of (X - A' B') v = 0, and that of its product with u.
 *
 *     randoms   of every side of A' and B', below 2^27 (draw.cl)
 *     sums      u A' of each k: PARTS times k | B' v likewise | parts of u X v: PARTS times TOTALS
 *     report    UNCERTIFIED: products that were not certified yet
 */
#include "residues/tiles.h"
#include "residues/modulo.h"

/* What is left of a sum, at most q. */
HELPER usize least(usize x) { return folded(folded(folded(x))); }

/* The block's numbers, each below 2^48, summed into the first. */
HELPER void add_up(SHARED usize *found)
{
    for (int left = THREADS / 2; left > 0; left /= 2) {
        BARRIER();
        if (THREAD_ID < left)
            found[THREAD_ID] += found[THREAD_ID + left];
    }
}

/* One block. */
KERNEL THREADS_PER_BLOCK(THREADS) void certify(isize k, const GLOBAL usize *RESTRICT sums,
                                               const GLOBAL int *RESTRICT decision,
                                               GLOBAL int *RESTRICT report)
{
    SHARED_ARRAY usize found[THREADS];
    const GLOBAL usize *const of_a = sums, *const of_b = sums + PARTS * k;
    const GLOBAL usize *const totals = sums + 2 * PARTS * k;
    usize mine[PARTS];
    int wrong = 0;
    UNROLL for (int p = 0; p < PARTS; ++p)
        mine[p] = THREAD_ID < TOTALS ? PRIME - least(totals[p * TOTALS + THREAD_ID]) : 0;
    for (isize l = THREAD_ID; l < k; l += THREADS) {
#if PARTS == 1
        mine[0] += folded(least(of_a[l]) * least(of_b[l]));
#else
        const usize a = least(of_a[l]), b = least(of_b[l]);
        const usize a_j = least(of_a[k + l]), b_j = least(of_b[k + l]);
        mine[0] += folded(a * b) + folded(a_j * (PRIME - b_j));
        mine[1] += folded(a * b_j) + folded(a_j * b);
#endif
    }
    UNROLL for (int p = 0; p < PARTS; ++p) {
        found[THREAD_ID] = least(mine[p]);
        add_up(found);
        wrong |= THREAD_ID == 0 && least(found[0]) % PRIME != 0;
        BARRIER();
    }
    /* A product of the native kernel's has nothing to certify. */
    if (THREAD_ID == 0 && (!decision[MODULI] || !wrong))
        ATOMIC_ADD(report + UNCERTIFIED, -1);
}
