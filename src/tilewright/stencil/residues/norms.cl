/* First pass over both operands: of every side, and of CHUNK tiles of k, the sum of squares and the
 * sum of magnitudes (of real and imaginary parts).  Each sum has one order, so equal calls find equal
 * numbers.
 *
 *     partial   | squares: all x chunks | magnitudes: all x chunks |    a chunk behind the other
 *
 * The first block makes what the passes behind it count in zero.
 */
#include "residues/tiles.h"

#define CHUNK 8

KERNEL THREADS_PER_BLOCK(THREADS) void norms(MATRICES, GLOBAL double *RESTRICT partial, isize all,
                                             isize chunks, GLOBAL int *RESTRICT decision)
{
    SHARED_ARRAY double space[SPACE];
    const isize of_a = (sides_a + SIDES - 1) / SIDES * chunks;
    const int is_b = (isize)BLOCK_ID >= of_a;
    const isize at = (isize)BLOCK_ID - (is_b ? of_a : 0);
    const matrix of = MATRIX(is_b);
    const isize side0 = at / chunks * SIDES, chunk = at % chunks;
    const int across = THREAD_ID % ACROSS, down = THREAD_ID / ACROSS;
    double squares[STEPS], magnitudes[STEPS];
    UNROLL for (int step = 0; step < STEPS; ++step) squares[step] = magnitudes[step] = 0;
    ROLLED for (int i = 0; i < CHUNK; ++i) {
        const tile t = tile_of(of, side0, (chunk * CHUNK + i) * KS);
        double v[STEPS * 4 * PARTS];
        if (t.ks_left <= 0)
            break;
        if (is_b ? K_FAST_B : K_FAST_A)
            read_along_k(v, of, t);
        else {
            BARRIER();
            read_across_k(v, space, of, t);
        }
        UNROLL for (int step = 0; step < STEPS; ++step)
            UNROLL for (int e = 0; e < 4 * PARTS; ++e) {
                const double x = v[step * 4 * PARTS + e];
                squares[step] += x * x;
                magnitudes[step] += fabs(x);
            }
    }
    BARRIER();
    UNROLL for (int step = 0; step < STEPS; ++step) {
        const int side = step * DOWN + down;
        space[side * (ACROSS + 1) + across] = squares[step];
        space[(SIDES + side) * (ACROSS + 1) + across] = magnitudes[step];
    }
    BARRIER();
    if (BLOCK_ID == 0 && THREAD_ID < TABLE_AT)
        decision[THREAD_ID] = 0;
    if (THREAD_ID >= 2 * SIDES)
        return;
    double sum = 0;
    ROLLED for (int i = 0; i < ACROSS; ++i) sum += space[THREAD_ID * (ACROSS + 1) + i];
    const int which = THREAD_ID / SIDES;
    partial[(which * chunks + chunk) * all + of.first_side + side0 + THREAD_ID % SIDES] = sum;
}
