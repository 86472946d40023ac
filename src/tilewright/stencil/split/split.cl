/* Second pass over both operands: their parts, their sides' exponents, what the guard counts,
 * and its decision.
 *
 *     x 2^-e = part 0 + part 1 (+ part 2) + what is lost,     e the exponent of x's side
 *
 * Each part is what is left of x, rounded to nearest, so that it is at most half a unit of the
 * part before, of either sign.  Parts are matrices of one leading dimension, a multiple of 16
 * bytes, in the order of the operand, or with TRANSPOSE in the other one:
 *
 *     | part 0 | part 1 | ...     `stride` elements apart
 *
 * Products of a batch have room for PARTS_OF_PRODUCT each, whatever becomes of the others.
 *
 * Tiles are taken from the last one on: the first pass has read that one last, so it may still
 * be in the cache, and what is written last is what the product reads first.
 *
 * Macros: PART, PARTS, SIDE_INNER_A and _B, TRANSPOSE_A and _B, EXPONENTS (one of the two
 * below), GUARDED (1: count, and decide), RUN_IF, BATCHED.
 */
#include "split/numbers.h"
#include "split/tiles.h"
#include "split/guard.h"
#include "split/decide.h"
#include "prelude/run_if.h"

#define EXPONENTS_OF_TOPS 1   /* the first pass has been here; sides get their exponents */
#define EXPONENTS_KNOWN 2     /* another second pass has been here */

/* Write four neighbours of a part; CUDA's compiler does not join shorter stores. */
#if PART == PART_TF32
#define WRITE_FOUR(to, x, y)                                                              \
    store_words4(to, (unsigned int)(x), (unsigned int)((x) >> 32), (unsigned int)(y),     \
                 (unsigned int)((y) >> 32))
#define WITHOUT_SIGNS ((usize)0x7fffffffu << 32 | 0x7fffffffu)
#else
#define WRITE_FOUR(to, x, y) *(GLOBAL usize *)(to) = (usize)(x) | (usize)(y) << 32
#define WITHOUT_SIGNS 0x7fff7fffu
#endif

/* What a side's elements are divided by the power of two of. */
HELPER int exponent_of_side(int top)
{
    if (top == 0 || top >= 0x7f800000)
        return 0;
    return exponent_of(of_bits((unsigned int)top)) - TOP_EXPONENT;
}

/* What becomes of a side's elements: two factors, as one might not be a number; and the bits
 * of the magnitudes below which they are faint, and cut if they are not zero. */
typedef struct { float first, second; unsigned int seen, whole; } scale;

/* `known`: the side's exponent or its top. */
HELPER scale scale_of(int known)
{
    const int e = EXPONENTS == EXPONENTS_OF_TOPS ? -exponent_of_side(known) : -known;
    scale s;
    s.first = power_of_two(e / 2);
    s.second = power_of_two(e - e / 2);
    s.seen = bits_of(of_bits((unsigned int)known) * power_of_two(-SEEN_BITS));
    s.whole = bits_of(times_power(power_of_two(WHOLE_EXPONENT), -e));
    return s;
}

/* The scales of a thread's four sides, or of its one in each step. */
HELPER void read_scales(PRIVATE scale *scales, const GLOBAL int *known, tile t, int side_inner)
{
    const int i = THREAD_ID % ACROSS * VECTOR, down = THREAD_ID / ACROSS;
    ints found = {{0, 0, 0, 0}};
    if (side_inner && i < t.inner_left)
        found = *(const GLOBAL ints *)(known + i);
    if (!side_inner)
        UNROLL for (int step = 0; step < STEPS; ++step)
            if (step * DOWN + down < t.outer_left)
                found.e[step] = known[step * DOWN + down];
    UNROLL for (int e = 0; e < VECTOR; ++e) scales[e] = scale_of(found.e[e]);
}

/* What the guard counts of one number, each in ten bits.  Bits of magnitudes are compared, as
 * they are ordered alike: size - 1 is below whole - 1 where size is not 0 and below whole. */
HELPER unsigned int counted(float x, scale s)
{
    const unsigned int size = bits_of(x) & 0x7fffffffu, whole = s.whole > 1 ? s.whole : 1;
    const int faint = size < s.seen;
    const int narrow = faint || (size & ((1u << (24 - WIDE_BITS + 1)) - 1u)) == 0;
    return (faint ? 1u : 0u) + (narrow ? 1u << 10 : 0u) + (size - 1 < whole - 1 ? 1u << 20 : 0u);
}

/* Split four neighbours and write their parts; return what is not 0 of all but the first. */
HELPER two_parts write_parts(GLOBAL part_bits *to, isize stride, floats rest, int inside)
{
    two_parts longer = 0;
    UNROLL for (int p = 0; p < PARTS; ++p) {
        two_parts made[VECTOR / 2];
        UNROLL for (int e = 0; e < VECTOR; e += 2) {
            const two_parts both = parts_of(rest.e[e], rest.e[e + 1]);
            made[e / 2] = both;
            rest.e[e] -= number_of((part_bits)both);
            rest.e[e + 1] -= number_of((part_bits)(both >> 8 * sizeof(part_bits)));
            if (p > 0)
                longer |= both & WITHOUT_SIGNS;
        }
        if (inside)
            WRITE_FOUR(to + p * stride, made[0], made[1]);
    }
    return longer;
}

/* Scale four neighbours; add to `sums` what the guard counts of them. */
HELPER floats scaled_floats(floats v, const PRIVATE scale *scales, PRIVATE unsigned int *sums,
                            int inside, int step, int side_inner)
{
    UNROLL for (int e = 0; e < VECTOR; ++e) {
        const scale s = scales[side_inner ? e : step];
        if (GUARDED)
            sums[side_inner ? e : 0] += counted(v.e[e], s);
        v.e[e] = v.e[e] * s.first * s.second;
    }
    if (GUARDED && inside < VECTOR) /* take back what was counted of zeros outside */
        UNROLL for (int e = 0; e < VECTOR; ++e)
            if (e >= inside)
                sums[side_inner ? e : 0] -= counted(0, scales[side_inner ? e : step]);
    return v;
}

/* Where shared memory has four neighbours of row o of a tile that is transposed.  Rows are read and
 * columns written, or the other way round, by warps that meet no bank twice: every fourth row
 * exchanges the fours within a row otherwise.
 *
 *     row 0-3    0 1 2 3 4 5 6 7 ...
 *     row 4-7    1 0 3 2 5 4 7 6 ...
 *     row 8-11   2 3 0 1 6 7 4 5 ...
 */
#define TRANSPOSED_AT(o, i) ((o) * INNER + (((i) / VECTOR ^ (o) / VECTOR) * VECTOR) + (i) % VECTOR)
#define OUTER_FOURS (OUTER / VECTOR)

HELPER void leave_transposed(SHARED float *transposed, floats v, int o, int i)
{
    *(SHARED floats *)(transposed + TRANSPOSED_AT(o, i)) = v;
}

/* The parts of a whole tile in the other order: eight threads side by side write four
 * neighbours each. */
HELPER two_parts write_transposed(GLOBAL part_bits *to, isize stride, isize ld,
                              const SHARED float *transposed, tile t)
{
    const int o = THREAD_ID % OUTER_FOURS * VECTOR, first = THREAD_ID / OUTER_FOURS;
    GLOBAL part_bits *column = to + t.outer0 + o + (t.inner0 + first) * ld;
    two_parts longer = 0;
    UNROLL for (int step = 0; step < STEPS; ++step) {
        const int i = first + step * (INNER / STEPS);
        floats v;
        UNROLL for (int e = 0; e < VECTOR; ++e) v.e[e] = transposed[TRANSPOSED_AT(o + e, i)];
        longer |= write_parts(column, stride, v, o < t.outer_left && i < t.inner_left);
        column += INNER / STEPS * ld;
    }
    return longer;
}

/* Where parts go. */
typedef struct {
    GLOBAL part_bits *first;
    isize stride, ld;
} parts_of_matrix;

/* A tile's parts, or with `transpose` its scaled elements in shared memory, and what the guard
 * counts; returns what is not 0 of all parts but the first. */
HELPER two_parts split_tile(matrix of, parts_of_matrix to, tile t, const GLOBAL int *known,
                            SHARED int *found, SHARED float *transposed, int side_inner,
                            int transpose)
{
    const int across = THREAD_ID % ACROSS, i = across * VECTOR, down = THREAD_ID / ACROSS;
    GLOBAL part_bits *row = to.first + t.inner0 + i + (t.outer0 + down) * to.ld;
    floats v[STEPS];
    scale scales[VECTOR];
    unsigned int sums[VECTOR] = {0, 0, 0, 0};
    two_parts longer = 0;
    read_tile(v, of, t);
    read_scales(scales, known, t, side_inner);
    UNROLL for (int step = 0; step < STEPS; ++step) {
        const int o = step * DOWN + down, inside = o < t.outer_left ? t.inner_left - i : 0;
        v[step] = scaled_floats(v[step], scales, sums, inside, step, side_inner);
        if (transpose)
            leave_transposed(transposed, v[step], o, i);
        else
            longer |= write_parts(row, to.stride, v[step], inside > 0);
        row += DOWN * to.ld;
        if (GUARDED && !side_inner) {
            found[slot(o, across, 0)] = (int)sums[0];
            sums[0] = 0;
        }
    }
    if (GUARDED && side_inner)
        UNROLL for (int e = 0; e < VECTOR; ++e) found[slot(i + e, down, 1)] = (int)sums[e];
    return longer;
}

/* Add what a block counted of a side to what others did. */
HELPER void tell_counts(GLOBAL int *sides, isize all, isize side, const SHARED int *found,
                        int side_inner)
{
    unsigned int sum = 0;
    UNROLL for (int s = 0; s < SHARERS(side_inner); ++s)
        sum += (unsigned int)found[slot(THREAD_ID, s, side_inner)];
    for (int c = 0; c < COUNTS; ++c)
        if (sum >> 10 * c & 1023u)
            ATOMIC_ADD(sides + COUNT(side, c), (int)(sum >> 10 * c & 1023u));
}

#if GUARDED
#define GUARD_ARGUMENTS , isize k, GLOBAL int *RESTRICT decision, GLOBAL int *RESTRICT report
#else
#define GUARD_ARGUMENTS
#endif

/* A pass that may not be wanted has few blocks, which go on to further tiles. */
#ifdef RUN_IF
#define FOR_ITS_TILES(at, last) for (isize at = (last) - BLOCK_ID; at >= 0; at -= BLOCK_COUNT)
#define TILE_DONE() BARRIER()
#else
#define FOR_ITS_TILES(at, last) const isize at = (last) - BLOCK_ID;
#define TILE_DONE()
#endif

/* Both operands' tiles have one code, unless they lie in different orders. */
#define ALIKE (SIDE_INNER_A == SIDE_INNER_B && TRANSPOSE_A == TRANSPOSE_B)
#define USE_B(is_b) (!ALIKE && (is_b))

KERNEL THREADS_AND_BLOCKS(THREADS, TOGETHER) void split(
    MATRICES, GLOBAL part_bits *RESTRICT parts_a, isize stride_a, isize ld_parts_a,
    GLOBAL part_bits *RESTRICT parts_b, isize stride_b, isize ld_parts_b,
    GLOBAL int *RESTRICT tops, GLOBAL int *RESTRICT sides, isize all GUARD_ARGUMENTS
    STEPS_OF_BATCH RUN_IF_ARGUMENT)
{
    LET_NEXT_BEGIN();
    WAIT_FOR_PREVIOUS();
    GO_TO_PRODUCT
    parts_a += PRODUCT * PARTS_OF_PRODUCT * stride_a;
    parts_b += PRODUCT * PARTS_OF_PRODUCT * stride_b;
#ifdef RUN_IF
    run_if += PRODUCT * DECISIONS;
#endif
    RETURN_UNLESS_WANTED
#if GUARDED || EXPONENTS == EXPONENTS_OF_TOPS
    SHARED_ARRAY int found[SLOTS];
#else /* PoCL 5 ends the process where an array in shared memory is not used */
    SHARED int *const found = 0;
#endif
    SHARED_ARRAY floats transposed[TRANSPOSE_A || TRANSPOSE_B ? OUTER * INNER / VECTOR : 1];
    const isize of_a = tiles_of(inner_a, outer_a);
    FOR_ITS_TILES(at, of_a + tiles_of(inner_b, outer_b) - 1) {
        const int is_b = at >= of_a, side_inner = is_b ? SIDE_INNER_B : SIDE_INNER_A;
        const matrix of = MATRIX(is_b);
        const parts_of_matrix to = {is_b ? parts_b : parts_a, is_b ? stride_b : stride_a,
                                    is_b ? ld_parts_b : ld_parts_a};
        const tile t = tile_of(at - (is_b ? of_a : 0), of.inner, of.outer);
        const isize side0 = of.first_side + (side_inner ? t.inner0 : t.outer0);
        const GLOBAL int *const known =
            EXPONENTS == EXPONENTS_KNOWN ? sides + EXPONENT(side0) : tops + TOP(side0);
        SHARED float *const space = (SHARED float *)transposed;
        two_parts longer; /* not 0: a part but the first is not zero */
        if (USE_B(is_b))
            longer = split_tile(of, to, t, known, found, space, SIDE_INNER_B, TRANSPOSE_B);
        else
            longer = split_tile(of, to, t, known, found, space, SIDE_INNER_A, TRANSPOSE_A);
        BARRIER();
        if (is_b ? TRANSPOSE_B : TRANSPOSE_A)
            longer = write_transposed(to.first, to.stride, to.ld, space, t);
        if (GUARDED && longer)
            sides[MARK(is_b)] = 1; /* whoever writes it writes this */
        /* Numbers of sides are read by fours: what is missing to these has some, too. */
        const int left = (SIDES_LEFT(t, side_inner) + VECTOR - 1) / VECTOR * VECTOR;
        const int is_first = (side_inner ? t.outer0 : t.inner0) == 0;
        if (EXPONENTS == EXPONENTS_OF_TOPS && is_first && THREAD_ID < left)
            sides[EXPONENT(side0 + THREAD_ID)] = exponent_of_side(known[THREAD_ID]);
        if (GUARDED && THREAD_ID < left) {
            if (USE_B(is_b))
                tell_counts(sides, all, side0 + THREAD_ID, found, SIDE_INNER_B);
            else
                tell_counts(sides, all, side0 + THREAD_ID, found, SIDE_INNER_A);
        }
        TILE_DONE();
    }
#if EXPONENTS == EXPONENTS_OF_TOPS
    if (!is_last_block(tops, found))
        return;
#if GUARDED
    decide(k, found, tops, sides, all, first_b, decision + PRODUCT * DECISIONS, report);
#else
    const ints none = {{0, 0, 0, 0}};
    for (isize s = THREAD_ID * VECTOR; s < all; s += THREADS * VECTOR)
        *(GLOBAL ints *)(tops + TOP(s)) = none;
#endif
    if (THREAD_ID == 0)
        tops[DONE] = 0;
#endif
}
