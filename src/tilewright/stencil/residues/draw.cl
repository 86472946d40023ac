/* What a certificate begins with (certify.cl): random numbers of every side, and sums that are zero.
 *
 *     randoms   | of A's rows ... | of B's columns ... |     sides, below 2^27
 *     sums      | 0 | 0 | ...                                words
 *     report    SEED: two words that randoms come from
 *
 * It stands apart from certify.cl because kernels are kept by their machine code: that of one text is
 * one, whichever of its kernels is meant.
 */
#include "residues/tiles.h"
#include "residues/modulo.h"

KERNEL THREADS_PER_BLOCK(THREADS) void draw(isize sides, GLOBAL unsigned int *RESTRICT randoms,
                                            isize words, GLOBAL usize *RESTRICT sums,
                                            const GLOBAL int *RESTRICT report)
{
    const isize at = (isize)BLOCK_ID * THREADS + THREAD_ID;
    if (at < words)
        sums[at] = 0;
    if (at >= sides)
        return;
    /* SplitMix64 (Steele, Lea & Flood 2014). */
    usize x = ((usize)(unsigned int)report[SEED + 1] << 32 | (unsigned int)report[SEED]) +
              (usize)(at + 1) * 0x9e3779b97f4a7c15ul;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ul;
    x = (x ^ x >> 27) * 0x94d049bb133111ebul;
    randoms[at] = (unsigned int)((x ^ x >> 31) >> (64 - RANDOM_BITS));
}
