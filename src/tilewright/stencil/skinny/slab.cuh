/* A slab of the short operand, Y, in shared memory.  A part of kernel.cuh. */

/* Where an element of Y lies in the slab. */
HELPER int slab_at(int l, int w) { return SLAB_ALONG_K ? w * PITCH + l : l * SHORT + w; }

/* Elements of Y that a thread reads before it writes any. */
#define FILLED 4

/* Row and column in the slab of the element with a number: neighbours read what lies side by side
 * in memory, rows of a warp's length where that is along k. */
HELPER int slab_row(int e) { return K_FAST_Y ? e / (32 * SHORT) * 32 + e % 32 : e / SHORT; }

HELPER int slab_column(int e) { return K_FAST_Y ? e / 32 % SHORT : e % SHORT; }

/* Fill the slab from step `from` of k on, with zeros beyond `to` as far as whole steps go, and
 * beyond the last column. */
HELPER void fill_slab(operand *slab, product p, place at, isize from, isize to)
{
    const operand *const y = p.y + (K_FAST_Y ? from + at.column * p.ldy : at.column + from * p.ldy);
    const int left = least(to - from, SLAB_K), whole = (left + BLOCK_K - 1) / BLOCK_K * BLOCK_K;
    const int all = (whole + 31) / 32 * 32 * SHORT;
    ROLLED for (int first = THREAD_ID; first < all; first += FILLED * THREADS) {
        operand found[FILLED];
        UNROLL for (int f = 0; f < FILLED; ++f) {
            const int e = first + f * THREADS, l = slab_row(e), w = slab_column(e);
            found[f] = operand_zero();
            if (l < left && w < at.columns)
                found[f] = load_element(y + (K_FAST_Y ? l + w * p.ldy : w + l * p.ldy));
        }
        UNROLL for (int f = 0; f < FILLED; ++f) {
            const int e = first + f * THREADS;
            if (e < all)
                slab[slab_at(slab_row(e), slab_column(e))] =
                    CONJ_Y ? operand_conj(found[f]) : found[f];
        }
    }
}
