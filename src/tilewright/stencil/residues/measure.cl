/* What is to be known of both operands: sums of every side, its last bit, and magnitudes as bytes.
 *
 *     partial   | squares: all x chunks | magnitudes: all x chunks |    a chunk behind the other
 *     places    of each side the largest p at which an element has a bit worth 2^-p
 *     byte      |x| 2^unit in FP8 (E5M2), cut to 3 significant bits, 0 below 2^-16
 *
 * Sums are of CHUNK tiles of k, of squares and of magnitudes (of complex numbers at least); each has one
 * order, so equal calls find equal numbers.  Bytes are for a bound of |A| |B| from below; they lie as
 * planes.h says.
 *
 * Of a pair (PAIR) the high word counts, and the low word's last bit.  A low word of more than an ulp of
 * the high one, or one that is none, makes the sums NaN.
 */
#include "residues/planes.h"

#define CHUNK 8

#ifdef __OPENCL_VERSION__
#define TRAILING_ZEROS(x) ((int)popcount(((x) & (~(x) + 1)) - 1))
#else
#define TRAILING_ZEROS(x) (__ffsll((long long)(x)) - 1)
#endif

/* The p of a number's last bit, 2^-p. */
HELPER int place_of(double x)
{
    const usize bits = bits_of(x), mantissa = bits & (((usize)1 << 52) - 1);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    if (x == 0)
        return NO_PLACE;
    return exponent ? 1075 - exponent - TRAILING_ZEROS(mantissa | (usize)1 << 52)
                    : 1074 - TRAILING_ZEROS(mantissa);
}

/* The bits in E5M2 of a number that is not negative, times 2^unit, cut. */
HELPER int cut(double x, int unit)
{
    const int high = (int)(bits_of(x) >> 50), e = (high >> 2) - 1023 + unit; /* two bits behind it */
    if (e >= -14)
        return e > 15 ? 123 : (e + 15) << 2 | (high & 3);
    return e == -15 ? 2 + (high >> 1 & 1) : e == -16;
}

/* A magnitude, or what is at most one. */
HELPER double magnitude(const PRIVATE double *x)
{
#if COMPONENTS == 1
    return fabs(x[0]);
#else
    const double re = fabs(x[0]), im = fabs(x[WORDS]), most = re > im ? re : im;
    const double mean = 0.7071 * (re + im);
    return most > mean ? most : mean;
#endif
}

/* A magnitude, or what is at least one: sqrt(1 + t^2) <= 1 + (sqrt(2) - 1) t for t from 0 to 1. */
HELPER double magnitude_above(const PRIVATE double *x)
{
#if COMPONENTS == 1
    return fabs(x[0]);
#else
    const double re = fabs(x[0]), im = fabs(x[WORDS]);
    return re > im ? re + 0.414214 * im : im + 0.414214 * re;
#endif
}

KERNEL THREADS_AND_BLOCKS(THREADS, 3) void measure(MATRICES, PLANES_OF_BOTH,
                                               const GLOBAL int *RESTRICT units,
                                               GLOBAL int *RESTRICT places,
                                               GLOBAL double *RESTRICT partial, isize all,
                                               isize chunks)
{
    SHARED_ARRAY double space[SPACE];
    const isize of_a = (sides_a + SIDES - 1) / SIDES * chunks;
    const int is_b = (isize)BLOCK_ID >= of_a;
    const isize number = (isize)BLOCK_ID - (is_b ? of_a : 0);
    const matrix of = MATRIX(is_b);
    GLOBAL unsigned char *const to = is_b ? planes_b : planes_a;
    const isize side0 = number / chunks * SIDES, chunk = number % chunks;
    const int at = THREAD_ID % ACROSS * 4, across = THREAD_ID % ACROSS, down = THREAD_ID / ACROSS;
    double squares[STEPS], magnitudes[STEPS];
    int last[STEPS], unit[STEPS];
    UNROLL for (int step = 0; step < STEPS; ++step) {
        squares[step] = magnitudes[step] = 0;
        last[step] = NO_PLACE;
        unit[step] = units[of.first_side + side0 + step * DOWN + down];
    }
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
        UNROLL for (int step = 0; step < STEPS; ++step) {
            const isize side = side0 + step * DOWN + down;
            int bytes[4];
            UNROLL for (int e = 0; e < 4; ++e) {
                const PRIVATE double *const x = v + (step * 4 + e) * PARTS;
                UNROLL for (int p = 0; p < PARTS; ++p) {
                    const int place = place_of(x[p]);
                    last[step] = place > last[step] ? place : last[step];
                    if (p % WORDS == 0)
                        squares[step] += x[p] * x[p];
                    else if (!(fabs(x[p]) <= fabs(x[p - 1]) * power_of_two(-52)))
                        squares[step] = of_bits((usize)0x7ff8 << 48);
                }
                magnitudes[step] += magnitude_above(x);
                bytes[e] = cut(magnitude(x), unit[step]);
            }
            if (step * DOWN + down < t.sides_left && at < t.ks_left)
                *(GLOBAL unsigned int *)(to + side * ld_planes + t.k0 + at) =
                    four_bytes(bytes[0], bytes[1], bytes[2], bytes[3]);
        }
    }
    BARRIER();
    UNROLL for (int step = 0; step < STEPS; ++step) {
        const int side = step * DOWN + down;
        space[side * (ACROSS + 1) + across] = squares[step];
        space[(SIDES + side) * (ACROSS + 1) + across] = magnitudes[step];
        space[(2 * SIDES + side) * (ACROSS + 1) + across] = last[step];
    }
    BARRIER();
    if (THREAD_ID >= 3 * SIDES)
        return;
    const int which = THREAD_ID / SIDES;
    const isize side = of.first_side + side0 + THREAD_ID % SIDES;
    double sum = which == 2 ? NO_PLACE : 0;
    ROLLED for (int i = 0; i < ACROSS; ++i) {
        const double x = space[THREAD_ID * (ACROSS + 1) + i];
        sum = which < 2 ? sum + x : x > sum ? x : sum;
    }
    if (which < 2)
        partial[(which * chunks + chunk) * all + side] = sum;
    else
        ATOMIC_MAX(places + side, (int)sum);
}
