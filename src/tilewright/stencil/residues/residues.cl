/* Third pass: both operands as integers, and these modulo each of the moduli that are wanted.
 *
 *     x 2^exponent, rounded to an integer below 2^63  =  sum of digits d[l] 256^l, -128 <= d < 128
 *     residue of p                                    =  sum of d[l] (256^l mod p), nearest to zero
 *
 * exponent is the largest at which the side's norm is at most `most` of the number of moduli.  A complex
 * element has two residues of p, at planes 2 z and 2 z + 1: of re + im j and of re - im j, where j is a
 * number with j^2 = -1 modulo p: their products are those of the complex numbers.
 *
 * A pair (PAIR) becomes two or, for more than NARROW moduli, three words of eight digits, each word worth
 * 2^WORD_BITS of the one before.  Of complex pairs there are three planes of p: re, im and re + im.
 * With CERTIFY sums of integers times random numbers of their sides go into a certificate (certify.cl):
 * of A where bit 0 of `counted` is set, of B where bit 1 is; k counts from `first_k` there.
 *
 *     exponents    of every side, for reconstruct.cl
 *     conjugated   bits: 1 for op(A), 2 for op(B), of which imaginary parts change their sign
 *
 * Macros: FIRST (least number of moduli), COUNT, MOST_OF_COUNTS (norms, a double for each number from
 * FIRST on), NUMBERS (moduli), LOW, HIGH (words with 256^l mod p, signed bytes), and for complex
 * elements LOW_J, HIGH_J (the same times j); for pairs in the place of LOW and HIGH POWERS (LOW and HIGH
 * of each of three words), WORD_BITS, NARROW.
 */
#include "residues/planes.h"
#ifdef CERTIFY
#include "residues/modulo.h"
#define CERTIFICATE                                                                        \
    , const GLOBAL unsigned int *RESTRICT randoms, GLOBAL usize *RESTRICT sums, isize all_k, \
        isize first_k, isize counted
#else
#define CERTIFICATE
#endif

TABLE double most_of[] = {MOST_OF_COUNTS};
TABLE int numbers[] = {NUMBERS};
#ifdef PAIR
TABLE int powers[] = {POWERS};
#else
TABLE int low[] = {LOW};
TABLE int high[] = {HIGH};
#endif
#if PARTS == 2 && !defined(PAIR)
TABLE int low_j[] = {LOW_J};
TABLE int high_j[] = {HIGH_J};
#endif

/* sum + the products of two words' signed bytes. */
HELPER int dot(int x, int y, int sum)
{
#ifdef __CUDACC__
    int found;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(found) : "r"(x), "r"(y), "r"(sum));
    return found;
#else
    for (int i = 0; i < 4; ++i) sum += (int)(signed char)(x >> 8 * i) * (int)(signed char)(y >> 8 * i);
    return sum;
#endif
}

/* What is added to a float of less than 2^22 is rounded to an integer, 1.5 2^23, and its bits. */
#define MAGIC 12582912.0f
#define MAGIC_BITS 0x4b400000

/* What is left of x, |x| < 2^22, modulo p, nearest to zero, in the last byte; x comes with MAGIC_BITS.
 * Floating-point numbers of 24 bits hold all of it.  (The quotient is off by less than 2^-2 / p, so none
 * but that nearest is found.) */
HELPER int nearest(int x, float p, float reciprocal)
{
    union { float number; int bits; } both;
    both.bits = x;
    const float quotient = ((both.number - MAGIC) * reciprocal + MAGIC) - MAGIC;
    both.number = both.number - p * quotient;
    return both.bits;
}

#ifdef PAIR
/* Bytes of a number and 128 of each are its digits and 128. */
HELPER usize digits_of(isize whole)
{
    const usize all = 0x8080808080808080ul;
    return ((usize)whole + all) ^ all;
}

/* Both words of x times a power of two are cut at multiples of 2^WORD_BITS, without error; what is left
 * of the high word behind its point counts with the low word, which is rounded. */
HELPER void digits_of_pair(PRIVATE int *digits, const PRIVATE double *x, double scale, int words)
{
    const double up = power_of_two(WORD_BITS), down = power_of_two(-WORD_BITS);
    const double high = x[0] * scale, low = x[1] * scale;
    const double high1 = rint(high * down), low1 = rint(low * down), high0 = high - high1 * up;
    const double whole0 = rint(high0), high2 = words == 3 ? rint(high1 * down) : 0;
    const double low0 = (high0 - whole0) + (low - low1 * up);
    const usize made[3] = {
        digits_of((isize)whole0 + (isize)ROUNDED_TO_LONG(low0)),
        digits_of((isize)(high1 - high2 * up) + (isize)low1),
        digits_of((isize)high2),
    };
    UNROLL for (int word = 0; word < words; ++word) {
        digits[2 * word] = (int)made[word];
        digits[2 * word + 1] = (int)(made[word] >> 32);
    }
}

/* Residues of four steps of k of a side. */
HELPER void reduce_pairs(GLOBAL unsigned char *to, isize stride, const PRIVATE double *x, double scale,
                         double scale_im, int inside, int count, int words)
{
    int digits[4 * COMPONENTS * 6];
    UNROLL for (int e = 0; e < 4 * COMPONENTS; ++e)
        digits_of_pair(digits + 6 * e, x + 2 * e, e % COMPONENTS ? scale_im : scale, words);
    UNROLL_MODULI for (int z = 0; z < COUNT; ++z) {
        if (z >= count)
            break;
        const float p = numbers[z], reciprocal = 1.0f / numbers[z];
        int sums[4 * COMPONENTS];
        UNROLL for (int e = 0; e < 4 * COMPONENTS; ++e) {
            sums[e] = e % COMPONENTS ? 0 : MAGIC_BITS;
            UNROLL for (int w = 0; w < 2 * words; ++w)
                sums[e] = dot(digits[6 * e + w], powers[w * COUNT + z], sums[e]);
        }
        UNROLL for (int plane = 0; plane < 2 * COMPONENTS - 1; ++plane) {
            int found[4];
            UNROLL for (int e = 0; e < 4; ++e) {
                const PRIVATE int *const sum = sums + e * COMPONENTS;
                const int x = plane == 2 ? sum[0] + sum[1] : plane ? sum[1] + MAGIC_BITS : sum[0];
                found[e] = nearest(x, p, reciprocal);
            }
            if (inside)
                *(GLOBAL unsigned int *)to = four_bytes(found[0], found[1], found[2], found[3]);
            to += stride;
        }
    }
}
#endif

KERNEL THREADS_PER_BLOCK(THREADS) void residues(MATRICES, PLANES_OF_BOTH,
                                                const GLOBAL double *RESTRICT norms,
                                                GLOBAL int *RESTRICT exponents, isize conjugated,
                                                const GLOBAL int *RESTRICT decision CERTIFICATE)
{
    SHARED_ARRAY double space[SPACE];
    double v[STEPS * 4 * PARTS];
    const int count = decision[MODULI];
    if (!count)
        return;
    const isize steps_of_k = (k + KS - 1) / KS;
    const isize of_a = (sides_a + SIDES - 1) / SIDES * steps_of_k;
    const int is_b = (isize)BLOCK_ID >= of_a, along_k = is_b ? K_FAST_B : K_FAST_A;
    const isize number = (isize)BLOCK_ID - (is_b ? of_a : 0);
    const matrix of = MATRIX(is_b);
    const isize across = (of.sides + SIDES - 1) / SIDES;
    const tile t = along_k ? tile_of(of, number / steps_of_k * SIDES, number % steps_of_k * KS)
                           : tile_of(of, number % across * SIDES, number / across * KS);
    if (along_k)
        read_along_k(v, of, t);
    else
        read_across_k(v, space, of, t);
    GLOBAL unsigned char *const planes = is_b ? planes_b : planes_a;
    const isize stride = is_b ? stride_b : stride_a;
    const int at = THREAD_ID % ACROSS * 4, down = THREAD_ID / ACROSS;
    const double most = most_of[count - FIRST];
#ifdef CERTIFY
    isize certified[4 * PARTS];
    UNROLL for (int e = 0; e < 4 * PARTS; ++e) certified[e] = 0;
#endif
    UNROLL for (int step = 0; step < STEPS; ++step) {
        const isize side = t.side0 + step * DOWN + down;
        const int inside = step * DOWN + down < t.sides_left && at < t.ks_left;
        const int exponent = exponent_of(norms[of.first_side + side], most);
        if (inside && t.k0 + at == 0)
            exponents[of.first_side + side] = exponent;
#ifdef PAIR
        GLOBAL unsigned char *const to = planes + side * ld_planes + t.k0 + at;
        const PRIVATE double *const x = v + step * 4 * PARTS;
        const double scale = power_of_two(exponent), scale_im = conjugated >> is_b & 1 ? -scale : scale;
        if (count <= NARROW)
            reduce_pairs(to, stride, x, scale, scale_im, inside, count, 2);
        else
            reduce_pairs(to, stride, x, scale, scale_im, inside, count, 3);
#else
        int digits_low[4 * PARTS], digits_high[4 * PARTS];
        UNROLL for (int e = 0; e < 4 * PARTS; ++e) {
            double x = v[step * 4 * PARTS + e];
            if (PARTS == 2 && e % 2 && conjugated >> is_b & 1)
                x = -x;
            /* Bytes of a number and 128 of each are the digits and 128. */
            const usize all = 0x8080808080808080ul;
            const isize integer = ROUNDED_TO_LONG(x * power_of_two(exponent));
            const usize whole = ((usize)integer + all) ^ all;
#ifdef CERTIFY
            certified[e] += random_product(integer, randoms[of.first_side + side]);
#endif
            digits_low[e] = (int)whole;
            digits_high[e] = (int)(whole >> 32);
        }
        GLOBAL unsigned char *to_four = planes + side * ld_planes + t.k0 + at;
        UNROLL_MODULI for (int z = 0; z < COUNT; ++z) {
            if (z >= count)
                break;
            const float p = numbers[z], reciprocal = 1.0f / numbers[z];
            int found[4 * PARTS];
            UNROLL for (int e = 0; e < 4; ++e) {
                const int first = dot(digits_low[e * PARTS], low[z], MAGIC_BITS);
                const int re = dot(digits_high[e * PARTS], high[z], first);
#if PARTS == 1
                found[e] = nearest(re, p, reciprocal);
#else
                const int im = dot(digits_high[2 * e + 1], high_j[z], dot(digits_low[2 * e + 1], low_j[z], 0));
                found[e] = nearest(re + im, p, reciprocal);
                found[4 + e] = nearest(re - im, p, reciprocal);
#endif
            }
            UNROLL for (int plane = 0; plane < PARTS; ++plane) {
                const PRIVATE int *const x = found + 4 * plane;
                if (inside)
                    *(GLOBAL unsigned int *)to_four = four_bytes(x[0], x[1], x[2], x[3]);
                to_four += stride;
            }
        }
#endif
    }
#ifdef CERTIFY
    if (!(counted >> is_b & 1))
        return;
    /* Sides of a tile: each thread's, then those of all that have the same k. */
    SHARED usize *const found = (SHARED usize *)space;
    const int numbers_of_k = KS * PARTS;
    BARRIER();
    UNROLL for (int e = 0; e < 4 * PARTS; ++e) found[down * numbers_of_k + at * PARTS + e] = modulo(certified[e]);
    BARRIER();
    const isize l = t.k0 + THREAD_ID / PARTS;
    if (THREAD_ID >= numbers_of_k || l >= k)
        return;
    usize sum = 0;
    UNROLL for (int i = 0; i < DOWN; ++i) sum += found[i * numbers_of_k + THREAD_ID];
    ATOMIC_ADD_LONG(sums + (is_b * PARTS + THREAD_ID % PARTS) * all_k + first_k + l, folded(sum));
#endif
}
