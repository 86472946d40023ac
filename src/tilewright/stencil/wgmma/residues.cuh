/* Sums stored modulo a number, each batch entry's own, as bytes.  A part of kernel.cuh.
 *
 * C's matrices are whole tiles: `ld` and the distance between matrices have room for BLOCK_M and
 * BLOCK_N more than m and n ask for, and what lies there is zero.  Alpha is 1, beta 0; in the place
 * of `exponents_a` is a table with two ints for each matrix, a modulus p of 65 to 256 and 2^37 / p
 * to the nearest integer.
 */

#if OUTPUT == OUTPUT_RESIDUES

/* What is left of a sum modulo p, nearest to zero.  The quotient before it is rounded is wrong by
 * |sum| 2^-38 at most, so with |sum| < 2^29 the result by less than p 2^-9, half of 1: of p = 256,
 * whose quotient is exact, by nothing. */
HELPER unsigned int residue_of(int sum, int p, int reciprocal)
{
    const long long quotient = ((long long)sum * reciprocal + (1ll << 36)) >> 37;
    return (unsigned int)(sum - (int)quotient * p) & 255;
}

/* Lane q of four has pair q of every 8 elements of a column, in halves of words; afterwards it has
 * all 8 elements of group q of four groups:
 *
 *     before   lane 0: 0a 1a 2a 3a   lane 1: 0b 1b 2b 3b   lane 2: 0c ...   lane 3: 0d ...
 *     after    lane 0: 0a 0b 0c 0d   lane 1: 1a 1b 1c 1d   ...
 */
HELPER void gather_groups(unsigned int *word)
{
    const int q = THREAD_ID % 4;
    const bool high = q & 2, odd = q & 1;
    /* Two groups of this lane and of the one two away, then one group of all. */
    const unsigned int far = of_quad_lane(high ? word[0] : word[1], q ^ 2);
    const unsigned int own = high ? word[1] : word[0];
    const unsigned int first = of_bytes(own, far, LOW_HALVES), second = of_bytes(own, far, HIGH_HALVES);
    const unsigned int near = of_quad_lane(odd ? first : second, q ^ 1);
    const unsigned int mine = odd ? second : first;
    const unsigned int a = odd ? near : mine, b = odd ? mine : near; /* of the even lane, the odd */
    const unsigned int low = of_bytes(a, b, LOW_HALVES), top = of_bytes(a, b, HIGH_HALVES);
    word[0] = high ? top : low;
    word[1] = high ? low : top;
}

HELPER void store_tile(result to, tile at, const accumulator *sum)
{
    const int p = to.exponents_a[2 * blockIdx.z], reciprocal = to.exponents_a[2 * blockIdx.z + 1];
    UNROLL for (int line = 0; line < LINES; ++line) {
        output *const column = to.c + at.i0 + THREAD_ID % 4 * 8 + (at.j0 + column_of(line)) * to.ld;
        UNROLL for (int i = 0; i < BLOCK_M; i += QUAD) {
            unsigned int word[2];
            UNROLL for (int w = 0; w < 2; ++w) {
                const accumulator *const x = pair_of(sum, line, i + 16 * w);
                const accumulator *const y = pair_of(sum, line, i + 16 * w + 8);
                word[w] = residue_of(x[0], p, reciprocal) | residue_of(x[1], p, reciprocal) << 8 |
                          residue_of(y[0], p, reciprocal) << 16 | residue_of(y[1], p, reciprocal) << 24;
            }
            gather_groups(word);
            chunk v;
            UNROLL for (int w = 0; w < 2; ++w) v.pairs[w] = word[w];
            *(chunk *)(column + i) = v;
        }
    }
}
#endif
