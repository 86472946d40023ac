/* Second pass over an operand: its parts, its sides' exponents, and what the guard counts.
 *
 *     x 2^-e = part 0 + part 1 (+ part 2) + what is lost,     e the exponent of x's side
 *
 * Each part is what is left of x, rounded to nearest, so that it is at most half a unit of the
 * part before, of either sign.  Parts are matrices of one leading dimension, a multiple of 16
 * bytes, in the order of the operand, or with TRANSPOSE in the other one:
 *
 *     | part 0 | part 1 | ...     `stride` elements apart
 *
 * Macros: PART, PARTS, SIDE_INNER, TRANSPOSE, SCALED (0: every exponent is 0), COUNTED (0: the
 * guard has its counts already), RUN_IF.
 */
#include "split/numbers.h"
#include "split/tiles.h"
#include "split/guard.h"
#include "prelude/run_if.h"

/* Four neighbours of a part in words of 64 bits: CUDA's compiler does not join short stores. */
#define PART_BITS (8 * (int)sizeof(part_bits))
#define WORDS (VECTOR * PART_BITS / 64)
typedef struct ALIGNED(VECTOR * sizeof(part_bits)) { usize word[WORDS]; } parts_of_four;

/* What a side's elements are divided by the power of two of. */
HELPER int exponent_of_side(int top)
{
    if (!SCALED || top == 0 || top >= 0x7f800000)
        return 0;
    return exponent_of(of_bits((unsigned int)top)) - TOP_EXPONENT;
}

/* What the guard counts of one number, each in ten bits: x itself, and as it is scaled. */
HELPER unsigned int counted(float x, float scaled, int top)
{
    const unsigned int size = bits_of(x) & 0x7fffffffu;
    const float least = of_bits((unsigned int)top) * power_of_two(-SEEN_BITS);
    const int faint = of_bits(size) < least;
    const int narrow = faint || (size & ((1u << (24 - WIDE_BITS + 1)) - 1u)) == 0;
    const float whole = power_of_two(WHOLE_EXPONENT);
    const int cut = size != 0 && scaled < whole && scaled > -whole;
    return (unsigned int)faint | (unsigned int)narrow << 10 | (unsigned int)cut << 20;
}

KERNEL THREADS_PER_BLOCK(THREADS) void split(
    isize inner, isize outer, const GLOBAL float *RESTRICT first, isize offset, isize ld,
    GLOBAL part_bits *RESTRICT parts, isize stride, isize ld_parts,
    GLOBAL int *RESTRICT sides, isize all, isize first_side RUN_IF_ARGUMENT)
{
    RETURN_UNLESS_WANTED
    SHARED_ARRAY unsigned int found[COUNTED ? SLOTS : 1];
#if TRANSPOSE
    SHARED_ARRAY float turned[OUTER * (INNER + 1)];
#endif
    const tile t = tile_of(inner, outer);
    const GLOBAL float *const x = first + offset + t.inner0 + t.outer0 * ld;
    const isize side0 = first_side + (SIDE_INNER ? t.inner0 : t.outer0);
    const int across = THREAD_ID % ACROSS, down = THREAD_ID / ACROSS;
    const int aligned = is_aligned(x, ld), left = SIDE_INNER ? t.inner_left : t.outer_left;
    unsigned int sums[VECTOR] = {0, 0, 0, 0};
    int longer = 0; /* whether a part but the first is not zero */
    for (int step = 0; step < STEPS; ++step) {
        const int o = step * DOWN + down, i = across * VECTOR;
        floats v = {{0, 0, 0, 0}};
        if (o < t.outer_left)
            v = read_floats(x + o * ld, i, t.inner_left, aligned);
        UNROLL for (int e = 0; e < VECTOR; ++e) {
            const int side = SIDE_INNER ? i + e : o;
            const int most = side < left ? sides[TOP(side0 + side)] : 0;
            const float scaled = times_power(v.e[e], -exponent_of_side(most));
            if (COUNTED && o < t.outer_left && i + e < t.inner_left)
                sums[SIDE_INNER ? e : 0] += counted(v.e[e], scaled, most);
            v.e[e] = scaled;
        }
#if TRANSPOSE
        UNROLL for (int e = 0; e < VECTOR; ++e) turned[o * (INNER + 1) + i + e] = v.e[e];
#else
        UNROLL for (int p = 0; p < PARTS; ++p) {
            parts_of_four made;
            UNROLL for (int w = 0; w < WORDS; ++w) made.word[w] = 0;
            UNROLL for (int e = 0; e < VECTOR; ++e) {
                const part_bits part = part_of(v.e[e]);
                made.word[e * WORDS / VECTOR] |= (usize)part << e * PART_BITS % 64;
                v.e[e] -= number_of(part);
                longer |= p > 0 && number_of(part) != 0;
            }
            if (o < t.outer_left && i < t.inner_left)
                *(GLOBAL parts_of_four *)(parts + p * stride + t.inner0 + i +
                                          (t.outer0 + o) * ld_parts) = made;
        }
#endif
        if (COUNTED && !SIDE_INNER) {
            found[slot(o, across)] = sums[0];
            sums[0] = 0;
        }
    }
    if (COUNTED && SIDE_INNER)
        UNROLL for (int e = 0; e < VECTOR; ++e) found[slot(across * VECTOR + e, down)] = sums[e];
    BARRIER();
#if TRANSPOSE
    /* The tile's rows become columns: threads side by side write what lies side by side. */
    for (int at = THREAD_ID; at < INNER * OUTER; at += THREADS) {
        const int o = at % OUTER, i = at / OUTER;
        if (o >= t.outer_left || i >= t.inner_left)
            continue;
        float rest = turned[o * (INNER + 1) + i];
        UNROLL for (int p = 0; p < PARTS; ++p) {
            const part_bits made = part_of(rest);
            rest -= number_of(made);
            longer |= p > 0 && number_of(made) != 0;
            parts[p * stride + t.outer0 + o + (t.inner0 + i) * ld_parts] = made;
        }
    }
#endif
    if (COUNTED && longer)
        sides[MARK(first_side > 0)] = 1; /* whoever writes it writes this */
    if (THREAD_ID >= left)
        return;
    if ((SIDE_INNER ? t.outer0 : t.inner0) == 0)
        sides[EXPONENT(side0 + THREAD_ID)] =
            exponent_of_side(sides[TOP(side0 + THREAD_ID)]);
    if (COUNTED) {
        unsigned int sum = 0;
        for (int s = 0; s < SHARERS; ++s) sum += found[slot(THREAD_ID, s)];
        for (int c = 0; c < COUNTS; ++c)
            if (sum >> 10 * c & 1023u)
                ATOMIC_ADD(sides + COUNT(side0 + THREAD_ID, c), (int)(sum >> 10 * c & 1023u));
    }
}
