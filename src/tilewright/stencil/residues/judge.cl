/* How many moduli: by the largest ratio of an element's error bound to |A| |B|.
 *
 *     ratio = max over i, j of  (steps_a[i] magnitudes_b[j] + steps_b[j] magnitudes_a[i]) / low[i, j]
 *
 * low: the product of measure.cl's bytes, in BF16, m contiguous.  With so many moduli as leave sides
 * 2^GAINS[c] times the length that the least number does, the ratio is allowed to be limit 2^GAINS[c];
 * the last block to end takes the first choice that is enough, or none: the native kernel.  With the
 * most moduli steps are those of their own scales, `all` behind the others: a gain is what all sides have
 * at least, and one decides about a choice behind which there is none.
 *
 * A thread has four elements of COLUMNS columns; those that are not computed do not count.  Where the
 * bound comes in tiles, so do launches, of `blocks` blocks together; i and j count from `first_a` and
 * `first_b`.
 *
 * Macros: CHOICES, GAINS, COUNTS (moduli of each choice), NUMBERS (all moduli), PLANES_OF_EACH.
 */
#include "residues/tiles.h"

TABLE int gains[] = {GAINS};
TABLE int counts[] = {COUNTS};
TABLE int numbers[] = {NUMBERS};

HELPER float of_bfloat16(unsigned int bits)
{
    union { float number; unsigned int bits; } both;
    both.bits = bits << 16;
    return both.number;
}

HELPER int as_bits(float x)
{
    union { float number; int bits; } both;
    both.number = x;
    return both.bits;
}

HELPER float as_number(int bits)
{
    union { float number; int bits; } both;
    both.bits = bits;
    return both.number;
}

/* Positive numbers are ordered as their bits are; infinity comes last. */
#define INFINITE 0x7f800000

/* To some roundings, which `limit` leaves room for. */
#ifdef __CUDACC__
#define QUOTIENT(x, y) __fdividef(x, y)
#else
#define QUOTIENT(x, y) ((x) / (y))
#endif

/* Columns of C that a block goes through. */
#define COLUMNS 16

typedef struct ALIGNED(8) { unsigned short e[4]; } four_bfloat16;

KERNEL THREADS_PER_BLOCK(THREADS) void judge(isize m, isize n, const GLOBAL unsigned short *RESTRICT low,
                                             isize ld, const GLOBAL float *RESTRICT magnitudes,
                                             const GLOBAL float *RESTRICT steps, isize all,
                                             isize first_a, isize first_b, int triangle,
                                             float limit, isize blocks,
                                             GLOBAL int *RESTRICT decision,
                                             GLOBAL int *RESTRICT report)
{
    SHARED_ARRAY int found[2 * THREADS];
    const isize down = (m + 4 * THREADS - 1) / (4 * THREADS);
    const isize i = ((isize)BLOCK_ID % down * THREADS + THREAD_ID) * 4;
    const isize j0 = (isize)BLOCK_ID / down * COLUMNS;
    float most[2] = {0, 0};
    if (i < m && !decision[UNFIT]) {
        float sums[4], own[2][4];
        UNROLL for (int e = 0; e < 4; ++e) {
            sums[e] = magnitudes[first_a + i + e]; /* of whole tiles of sides */
            UNROLL for (int t = 0; t < 2; ++t) own[t][e] = steps[t * all + first_a + i + e];
        }
        UNROLL for (int c = 0; c < COLUMNS; ++c) {
            const isize j = j0 + c < n ? j0 + c : n - 1;
            const int ahead = (int)(i - j);
            if (!is_any_computed(triangle, ahead))
                continue;
            const float sum = magnitudes[first_b + j];
            const float step[2] = {steps[first_b + j], steps[all + first_b + j]};
            const four_bfloat16 found_low = *(const GLOBAL four_bfloat16 *)(low + i + j * ld);
            UNROLL for (int e = 0; e < 4; ++e) {
                const float least = of_bfloat16(found_low.e[e]);
                const float inverse = least > 0 ? QUOTIENT(1.0f, least) : as_number(INFINITE);
                UNROLL for (int t = 0; t < 2; ++t) {
                    const float error = own[t][e] * sum + step[t] * sums[e], ratio = error * inverse;
                    if (i + e < m && is_computed(triangle, ahead + e) && error > 0 && ratio > most[t])
                        most[t] = ratio;
                }
            }
        }
    }
    UNROLL for (int t = 0; t < 2; ++t) found[t * THREADS + THREAD_ID] = as_bits(most[t]);
    for (int left = THREADS / 2; left > 0; left /= 2) {
        BARRIER();
        UNROLL for (int at = THREAD_ID; at < 2 * THREADS; at += THREADS)
            if (THREAD_ID < left && found[at + left] > found[at])
                found[at] = found[at + left];
    }
    if (THREAD_ID)
        return;
    ATOMIC_MAX(decision + RATIO, found[0]);
    ATOMIC_MAX(decision + TOP_RATIO, found[THREADS]);
    FENCE();
    if (ATOMIC_ADD(decision + DONE, 1) != (int)blocks - 1)
        return;
    FENCE();
    const float ratio = as_number(ATOMIC_MAX(decision + RATIO, 0));
    const float top_ratio = as_number(ATOMIC_MAX(decision + TOP_RATIO, 0));
    int moduli = 0;
    for (int c = CHOICES - 1; c >= 0; --c)
        if (!decision[UNFIT] && (ratio <= limit * as_number((gains[c] + 127) << 23) ||
                                 (c == CHOICES - 1 && top_ratio <= limit)))
            moduli = counts[c];
    for (int z = 0; z < PLANES_OF_EACH * counts[CHOICES - 1]; ++z) {
        const int p = numbers[z / PLANES_OF_EACH];
        decision[TABLE_AT + 2 * z] = z < PLANES_OF_EACH * moduli ? p : 0;
        decision[TABLE_AT + 2 * z + 1] = (int)((((isize)1 << 37) + p / 2) / p);
    }
    decision[PLANES] = PLANES_OF_EACH * moduli;
    decision[MODULI] = moduli;
    for (int w = 0; w < RATIO; ++w) report[w] = decision[w];
    report[RATIO] = as_bits(ratio);
    report[TOP_RATIO] = as_bits(top_ratio);
}
