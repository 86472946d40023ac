/* A plane of sums modulo a number, nearest to zero: what a pass of its own makes of them.
 *
 *     words: | 4 sums of a thread | ...        bytes: | their residues | ...
 */
KERNEL THREADS_PER_BLOCK(256) void reduce(const GLOBAL int *RESTRICT words,
                                          GLOBAL unsigned int *RESTRICT bytes, isize count,
                                          const GLOBAL int *RESTRICT table)
{
    const isize at = (isize)BLOCK_ID * 256 + THREAD_ID;
    if (4 * at >= count)
        return;
    const int p = table[0], reciprocal = table[1];
    unsigned int found = 0;
    UNROLL for (int e = 0; e < 4; ++e) {
        const int sum = words[4 * at + e];
        const isize quotient = ((isize)sum * reciprocal + ((isize)1 << 36)) >> 37;
        found |= ((unsigned int)(sum - (int)quotient * p) & 255) << 8 * e;
    }
    bytes[at] = found;
}
