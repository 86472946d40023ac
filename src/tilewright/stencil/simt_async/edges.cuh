/* Which part of C a thread block computes, and what of it is its own.  A part of kernel.cuh.
 *
 * A block that would reach beyond the matrix begins earlier instead, so that it ends with it: the
 * same loop then multiplies it, with nothing to check.  The rows (or columns) that it shares with
 * its neighbour are multiplied twice and stored by the neighbour alone.
 *
 *     |<-- neighbour's own -->|<-- own -->|
 *     +-----------------------+-----------+ m
 *                 | shared    |           |
 *                 +-----------------------+ the block's BLOCK_M, from i on
 *
 * Two kinds stay where they are and are copied element by element with checks: blocks of a
 * matrix smaller than a block, if they are not CLAMPED, and those whose copies of 16 bytes would
 * lose their alignment.
 */

/* A block's first row or column, and how many after it belong to the neighbour. */
struct edge {
    isize at;
    int before;
};
struct place {
    edge i, j;
};

/* Boxes stay: the copy engine writes zeros for what lies outside. */
#if TMA
#define MOVABLE(K_FAST, SIDE) false
#else
#define MOVABLE(K_FAST, SIDE) (HOW_COPIED(K_FAST) != CHUNKS || (SIDE) % CHUNK == 0)
#endif

HELPER edge edge_at(isize at, isize side, int block_side, int k_fast)
{
    const isize beyond = at + block_side - side;
    edge e;
    e.before = beyond > 0 && side >= block_side && MOVABLE(k_fast, side) ? (int)beyond : 0;
    e.at = at - e.before;
    return e;
}

/* The place of the block with a number. */
HELPER place place_in(isize m, isize n, unsigned int number)
{
    isize i0, j0;
    place_of_block(number, m, n, &i0, &j0);
    place p;
    p.i = edge_at(i0, m, BLOCK_M, K_FAST_A);
    p.j = edge_at(j0, n, BLOCK_N, K_FAST_B);
    return p;
}
