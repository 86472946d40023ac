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

/* What becomes of a side's elements: two factors, as one might not be a number, and the
 * magnitude below which they are faint. */
typedef struct { float first, second, least; } scale;

HELPER scale scale_of(int top)
{
    const int e = -exponent_of_side(top);
    scale s;
    s.first = power_of_two(e / 2);
    s.second = power_of_two(e - e / 2);
    s.least = of_bits((unsigned int)top) * power_of_two(-SEEN_BITS);
    return s;
}

/* What the guard counts of one number, each in ten bits: x itself, and as it is scaled. */
HELPER unsigned int counted(float x, float scaled, float least)
{
    const unsigned int size = bits_of(x) & 0x7fffffffu;
    const int faint = of_bits(size) < least;
    const int narrow = faint || (size & ((1u << (24 - WIDE_BITS + 1)) - 1u)) == 0;
    const float whole = power_of_two(WHOLE_EXPONENT);
    const int cut = size != 0 && scaled < whole && scaled > -whole;
    return (unsigned int)faint | (unsigned int)narrow << 10 | (unsigned int)cut << 20;
}

/* Split four neighbours and write their parts; return whether one but the first is not 0. */
HELPER int write_parts(GLOBAL part_bits *to, isize stride, floats rest, int inside)
{
    int longer = 0;
    UNROLL for (int p = 0; p < PARTS; ++p) {
        parts_of_four made;
        UNROLL for (int w = 0; w < WORDS; ++w) made.word[w] = 0;
        UNROLL for (int e = 0; e < VECTOR; ++e) {
            const part_bits part = part_of(rest.e[e]);
            made.word[e * WORDS / VECTOR] |= (usize)part << e * PART_BITS % 64;
            rest.e[e] -= number_of(part);
            longer |= p > 0 && number_of(part) != 0;
        }
        if (inside)
            *(GLOBAL parts_of_four *)(to + p * stride) = made;
    }
    return longer;
}

/* The same of a whole tile in the other order: its rows become columns, and threads side by
 * side write what lies side by side. */
#define TURNED_PITCH (INNER + 1)
HELPER int write_turned(GLOBAL part_bits *to, isize stride, isize ld_parts,
                        const SHARED float *turned, tile t)
{
    int longer = 0;
    for (int at = THREAD_ID; at < INNER * OUTER; at += THREADS) {
        const int o = at % OUTER, i = at / OUTER;
        if (o >= t.outer_left || i >= t.inner_left)
            continue;
        float rest = turned[o * TURNED_PITCH + i];
        UNROLL for (int p = 0; p < PARTS; ++p) {
            const part_bits made = part_of(rest);
            rest -= number_of(made);
            longer |= p > 0 && number_of(made) != 0;
            to[p * stride + t.outer0 + o + (t.inner0 + i) * ld_parts] = made;
        }
    }
    return longer;
}

/* Scale four neighbours; return what the guard counts of them, added to `sums`. */
HELPER floats scaled_floats(floats v, const PRIVATE scale *scales, PRIVATE unsigned int *sums,
                            int inside)
{
    UNROLL for (int e = 0; e < VECTOR; ++e) {
        const scale s = scales[SIDE_INNER ? e : 0];
        const float scaled = v.e[e] * s.first * s.second;
        if (COUNTED && e < inside)
            sums[SIDE_INNER ? e : 0] += counted(v.e[e], scaled, s.least);
        v.e[e] = scaled;
    }
    return v;
}

/* Add what a block counted of its sides to what others did, and write their exponents. */
HELPER void tell(GLOBAL int *sides, isize all, isize side, const SHARED unsigned int *found,
                 int is_first)
{
    if (is_first)
        sides[EXPONENT(side)] = exponent_of_side(sides[TOP(side)]);
    if (!COUNTED)
        return;
    unsigned int sum = 0;
    for (int s = 0; s < SHARERS; ++s) sum += found[slot(THREAD_ID, s)];
    for (int c = 0; c < COUNTS; ++c)
        if (sum >> 10 * c & 1023u)
            ATOMIC_ADD(sides + COUNT(side, c), (int)(sum >> 10 * c & 1023u));
}

KERNEL THREADS_PER_BLOCK(THREADS) void split(
    isize inner, isize outer, const GLOBAL float *RESTRICT first, isize offset, isize ld,
    GLOBAL part_bits *RESTRICT parts, isize stride, isize ld_parts,
    GLOBAL int *RESTRICT sides, isize all, isize first_side RUN_IF_ARGUMENT)
{
    RETURN_UNLESS_WANTED
    SHARED_ARRAY unsigned int found[COUNTED ? SLOTS : 1];
    SHARED_ARRAY float turned[TRANSPOSE ? OUTER * TURNED_PITCH : 1];
    const tile t = tile_of(inner, outer);
    const GLOBAL float *const x = first + offset + t.inner0 + t.outer0 * ld;
    const isize side0 = first_side + (SIDE_INNER ? t.inner0 : t.outer0);
    const int i = THREAD_ID % ACROSS * VECTOR, down = THREAD_ID / ACROSS;
    const int aligned = is_aligned(x, ld), left = SIDE_INNER ? t.inner_left : t.outer_left;
    unsigned int sums[VECTOR] = {0, 0, 0, 0};
    scale scales[VECTOR]; /* of a thread's four sides, or its one of a step */
    int longer = 0;       /* whether a part but the first is not zero */
    if (SIDE_INNER)
        UNROLL for (int e = 0; e < VECTOR; ++e)
            scales[e] = scale_of(i + e < left ? sides[TOP(side0 + i + e)] : 0);
    for (int step = 0; step < STEPS; ++step) {
        const int o = step * DOWN + down, inside = o < t.outer_left ? t.inner_left - i : 0;
        floats v = {{0, 0, 0, 0}};
        if (inside > 0)
            v = read_floats(x + o * ld, i, t.inner_left, aligned);
        if (!SIDE_INNER)
            scales[0] = scale_of(o < left ? sides[TOP(side0 + o)] : 0);
        v = scaled_floats(v, scales, sums, inside);
        if (TRANSPOSE)
            UNROLL for (int e = 0; e < VECTOR; ++e) turned[o * TURNED_PITCH + i + e] = v.e[e];
        else
            longer |= write_parts(parts + t.inner0 + i + (t.outer0 + o) * ld_parts, stride, v,
                                  inside > 0);
        if (COUNTED && !SIDE_INNER) {
            found[slot(o, THREAD_ID % ACROSS)] = sums[0];
            sums[0] = 0;
        }
    }
    if (COUNTED && SIDE_INNER)
        UNROLL for (int e = 0; e < VECTOR; ++e) found[slot(i + e, down)] = sums[e];
    BARRIER();
    if (TRANSPOSE)
        longer = write_turned(parts, stride, ld_parts, turned, t);
    if (COUNTED && longer)
        sides[MARK(first_side > 0)] = 1; /* whoever writes it writes this */
    if (THREAD_ID < left)
        tell(sides, all, side0 + THREAD_ID, found, (SIDE_INNER ? t.outer0 : t.inner0) == 0);
}
