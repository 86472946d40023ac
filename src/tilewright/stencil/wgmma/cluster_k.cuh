/* Split-K within a cluster, for long sums over few tiles.  A part of kernel.cuh.
 *
 * Each of CLUSTER_K blocks multiplies one slice of k of the cluster's tile of C.  All but the first
 * leave their sums in their own shared memory, where stages were; the first adds them to its own,
 * block after block, and stores C.  Neighbours in a warp write and read neighbours:
 *
 *     of a block    | sums 0 to 3 of thread 0 | of thread 1 | ... | sums 4 to 7 of thread 0 | ...
 */

/* Steps along k of a block. */
struct slice {
    unsigned int first, count;
};

/* Steps along k of a slice: what is left of equal ones the first have. */
HELPER slice slice_of(unsigned int steps, unsigned int number, unsigned int slices)
{
    const unsigned int each = steps / slices, left = steps % slices;
    const slice found = {each * number + (number < left ? number : left), each + (number < left)};
    return found;
}

/* The steps along k of this block of its cluster. */
#if CLUSTER_K > 1
#define FIRST_STEP(steps) slice_of(steps, cluster_rank(), CLUSTER_K).first
#define STEPS_OF_BLOCK(steps) slice_of(steps, cluster_rank(), CLUSTER_K).count
#else
#define FIRST_STEP(steps) 0
#define STEPS_OF_BLOCK(steps) (steps)
#endif

#if CLUSTER_K > 1
HELPER shared_at sums_at(shared_at arena, int four)
{
    return arena + (four * CONSUMERS * GROUP + THREAD_ID) * 16;
}

/* Add up what the cluster's consumers have, in its first block; whether this is that one. */
HELPER bool add_up_cluster(shared_at arena, accumulator *sum)
{
    const bool is_first = cluster_rank() == 0;
    if (!is_first) {
        consumers_barrier(); /* all have multiplied with what is overwritten */
        UNROLL for (int i = 0; i < SUMS_OF_THREAD; i += 4)
        {
            sums_of_chunk v;
            UNROLL for (int e = 0; e < 4; ++e) v.e[e] = sum[i + e];
            put_sums(sums_at(arena, i / 4), v);
        }
    }
    cluster_barrier();
    ROLLED for (unsigned int other = 1; is_first && other < CLUSTER_K; ++other)
        UNROLL for (int i = 0; i < SUMS_OF_THREAD; i += 4)
        {
            const sums_of_chunk v = read_sums_of(other, sums_at(arena, i / 4));
            UNROLL for (int e = 0; e < 4; ++e) sum[i + e] += v.e[e];
        }
    return is_first;
}
#endif
