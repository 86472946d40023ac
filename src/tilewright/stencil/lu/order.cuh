/* Pivots as LAPACK has them, TOP at a time, as permutations that rows.cuh takes: a block for each.
 *
 *     orders + n times the block's number: of its pivots; rows are counted from its first one's
 *
 * Macros: TOP, THREADS (256).
 */
KERNEL THREADS_PER_BLOCK(THREADS) void lu_order(int n, const GLOBAL int *pivots, GLOBAL int *orders)
{
    SHARED_ARRAY int pivot[TOP], at_top[TOP];
    const int before = (int)BLOCK_ID * TOP;
    const int top = n - before < TOP ? n - before : TOP;
    volatile GLOBAL int *const order = orders + (isize)BLOCK_ID * n;
    for (int k = THREAD_ID; k < top; k += THREADS) {
        at_top[k] = k;
        const int row = pivots[before + k] - before;
        pivot[k] = row < k || row >= n - before ? k : row; /* others are no pivots */
        if (pivot[k] >= top)
            order[pivot[k]] = pivot[k];
    }
    BARRIER_OF_ALL_MEMORY();
    if (THREAD_ID == 0)
        for (int k = 0; k < top; ++k) {
            const int other = pivot[k], mine = at_top[k];
            at_top[k] = other < top ? at_top[other] : order[other];
            if (other >= top)
                order[other] = mine;
            else if (other > k)
                at_top[other] = mine;
        }
    BARRIER();
    for (int k = THREAD_ID; k < top; k += THREADS) order[k] = at_top[k];
}
