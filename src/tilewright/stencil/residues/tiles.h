/* How the passes over both operands walk, whichever way each is stored, and what they tell.
 *
 * A thread block has tiles of SIDES sides (rows of op(A), columns of op(B)) by KS steps of k; a thread
 * has four steps of k of STEPS sides.  Operands along k are read as they lie, others through shared
 * memory:
 *
 *     k -->  t t t t ... ACROSS threads x 4
 *     side   t t t t
 *       v    DOWN threads, STEPS times
 *
 * Sides of op(A) are counted from `first_a` on, 0 of the whole of it, those of op(B) from `first_b`; `all`
 * together.  An element has PARTS doubles: 1, or 2 where it is complex; PAIR, 2 or 4, a high and a low word
 * for each.
 *
 *     decision | planes wanted | moduli | not finite | ratio | top ratio | blocks done | 2 unused | a table |
 *     report   | the same ...                                           | uncertified | seed, 2  |
 *
 * planes wanted: matrices of residues that are multiplied, 0 for the native kernel; ratios: judge.cl;
 * table: two ints for each plane, as the products of residues take them, the first 0 where it is not wanted; uncertified, seed: certify.cl.
 *
 * Macros: PARTS, K_FAST_A, K_FAST_B; PAIR where elements are double-double.
 */
#ifdef PAIR
#define WORDS 2
#else
#define WORDS 1
#endif
#define COMPONENTS (PARTS / WORDS)

#define ACROSS (32 / PARTS)
#define DOWN (8 * PARTS)
#define STEPS (4 / PARTS)
#define SIDES 32
#define KS (4 * ACROSS)
#define THREADS 256

#define PLANES 0
#define MODULI 1
#define UNFIT 2
#define RATIO 3
#define TOP_RATIO 4
#define DONE 5
#define UNCERTIFIED 5 /* of a report */
#define SEED 6
#define TABLE_AT 8

/* Of a side of zeros (measure.cl). */
#define NO_PLACE (-2000)

#ifdef __OPENCL_VERSION__
#define TABLE __constant
#define OF_TABLE __constant
#define UNROLL_MODULI /* compilers take long, and win nothing */
#define ROUNDED_TO_LONG(x) convert_long_rte(x)
#else
#define TABLE static __constant__ const
#define OF_TABLE
#define UNROLL_MODULI UNROLL /* so that numbers of tables are the instructions' own */
#define ROUNDED_TO_LONG(x) __double2ll_rn(x)
#endif

/* A scalar of the elements' type among a kernel's arguments. */
#if PARTS == 1
#define SCALAR(x) double x
#else
#define SCALAR(x) double x##_re, double x##_im
#endif

typedef struct ALIGNED(16) { double e[2]; } doubles;

/* Which part of C is computed, in a kernel's `triangle`: all of it (0), what lies on and below the
 * diagonal (1), or on and above it (-1).  `ahead`: an element's row less its column. */
HELPER int is_computed(int triangle, int ahead) { return triangle * ahead >= 0; }

/* Whether any of four rows is. */
HELPER int is_any_computed(int triangle, int ahead)
{
    return is_computed(triangle, triangle > 0 ? ahead + 3 : ahead);
}

HELPER usize bits_of(double x)
{
    union { double number; usize bits; } both;
    both.number = x;
    return both.bits;
}

HELPER double of_bits(usize bits)
{
    union { double number; usize bits; } both;
    both.bits = bits;
    return both.number;
}

/* 2^e, -1022 <= e <= 1023. */
HELPER double power_of_two(int e) { return of_bits((usize)(e + 1023) << 52); }

/* The largest e with norm 2^e <= most; 0 of a side of zeros. */
HELPER int exponent_of(double norm, double most)
{
    return norm == 0 ? 0 : (int)(bits_of(most / norm) >> 52) - 1023;
}

typedef struct {
    isize sides, k, ld, first_side;
    const GLOBAL double *x;
} matrix;

#define MATRICES                                                                           \
    isize k, isize sides_a, const GLOBAL double *RESTRICT a, isize offset_a, isize lda,    \
        isize sides_b, const GLOBAL double *RESTRICT b, isize offset_b, isize ldb,         \
        isize first_a, isize first_b
#define MATRIX(is_b)                                                                       \
    {                                                                                      \
        (is_b) ? sides_b : sides_a, k, (is_b) ? ldb : lda, (is_b) ? first_b : first_a,     \
        (is_b) ? b + offset_b * PARTS : a + offset_a * PARTS                               \
    }

typedef struct {
    isize side0, k0;
    int sides_left, ks_left; /* inside the matrix; ks_left below 0 where there are none */
} tile;

HELPER tile tile_of(matrix of, isize side0, isize k0)
{
    tile t = {side0, k0, 0, 0};
    t.sides_left = (int)(of.sides - side0 < SIDES ? of.sides - side0 : SIDES);
    t.ks_left = (int)(of.k - k0 < KS ? of.k - k0 : KS);
    return t;
}

/* A thread's elements of a tile along k. */
HELPER void read_along_k(PRIVATE double *v, matrix of, tile t)
{
    const int at = THREAD_ID % ACROSS * 4, down = THREAD_ID / ACROSS;
    const int aligned = ADDRESS(of.x) % 16 == 0 && of.ld * PARTS % 2 == 0;
    UNROLL for (int step = 0; step < STEPS; ++step) {
        const int side = step * DOWN + down;
        const GLOBAL double *const row = of.x + ((t.side0 + side) * of.ld + t.k0 + at) * PARTS;
        PRIVATE double *const to = v + step * 4 * PARTS;
        if (aligned && side < t.sides_left && at + 4 <= t.ks_left) {
            UNROLL for (int i = 0; i < 2 * PARTS; ++i) {
                const doubles two = ((const GLOBAL doubles *)row)[i];
                to[2 * i] = two.e[0];
                to[2 * i + 1] = two.e[1];
            }
        } else {
            UNROLL for (int i = 0; i < 4 * PARTS; ++i)
                to[i] = side < t.sides_left && at + i / PARTS < t.ks_left ? row[i] : 0;
        }
    }
}

/* The same of a tile along its sides; shared memory has a side's numbers in LONG places, one in 17 of
 * which is empty, so that neither writing nor reading meets a bank twice. */
#define LONG 137
#define PLACE_OF(side, number) ((side) * LONG + (number) + (number) / 16)
#define SPACE (SIDES * LONG)
HELPER void read_across_k(PRIVATE double *v, SHARED double *space, matrix of, tile t)
{
    const int side = THREAD_ID % SIDES, first = THREAD_ID / SIDES;
    const GLOBAL double *const column = of.x + (t.k0 * of.ld + t.side0 + side) * PARTS;
    UNROLL for (int i = 0; i < KS / (THREADS / SIDES); ++i) {
        const int at = i * (THREADS / SIDES) + first;
        UNROLL for (int p = 0; p < PARTS; ++p)
            space[PLACE_OF(side, at * PARTS + p)] =
                side < t.sides_left && at < t.ks_left ? column[at * of.ld * PARTS + p] : 0;
    }
    BARRIER();
    const int at = THREAD_ID % ACROSS * 4, down = THREAD_ID / ACROSS;
    UNROLL for (int step = 0; step < STEPS; ++step)
        UNROLL for (int i = 0; i < 4 * PARTS; ++i)
            v[step * 4 * PARTS + i] = space[PLACE_OF(step * DOWN + down, at * PARTS + i)];
}
