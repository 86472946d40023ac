/* Third pass: both operands as integers, and these modulo each of the moduli that are wanted.
 *
 *     x 2^exponent, rounded to an integer below 2^63  =  sum of digits d[l] 256^l, -128 <= d < 128
 *     residue of p                                    =  sum of d[l] (256^l mod p), nearest to zero
 *
 * exponent is the largest at which the side's norm is at most `most` of the number of moduli.  A complex
 * element has two residues of p, at planes 2 z and 2 z + 1: of re + im j and of re - im j, where j is a
 * number with j^2 = -1 modulo p: their products are those of the complex numbers.
 *
 * With CERTIFY sums of integers times random numbers of their sides go into a certificate (certify.cl):
 * of A where bit 0 of `counted` is set, of B where bit 1 is; k counts from `first_k` there.
 *
 *     exponents    of every side, for reconstruct.cl
 *     conjugated   bits: 1 for op(A), 2 for op(B), of which imaginary parts change their sign
 *
 * Macros: FIRST (least number of moduli), COUNT, MOST_OF_COUNTS (norms, a double for each number from
 * FIRST on), NUMBERS (moduli), LOW, HIGH (words with 256^l mod p, signed bytes), and for complex
 * elements LOW_J, HIGH_J (the same times j).
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
TABLE int low[] = {LOW};
TABLE int high[] = {HIGH};
#if PARTS == 2
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

/* What is left of x, |x| < 2^22, modulo p, nearest to zero: floating-point numbers of 24 bits hold all
 * of it.  (The quotient is off by less than 2^-2 / p, so none but that nearest is found.) */
HELPER int nearest(int x, float p, float reciprocal)
{
    const float magic = 12582912.0f; /* 1.5 2^23: what is added to it is rounded to an integer */
    union { float number; int bits; } both;
    both.bits = x + 0x4b400000;
    const float v = both.number - magic;
    const float quotient = (v * reciprocal + magic) - magic;
    both.number = (v - p * quotient) + magic;
    return both.bits;
}

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
    usize certified[4 * PARTS];
    UNROLL for (int e = 0; e < 4 * PARTS; ++e) certified[e] = 0;
#endif
    UNROLL for (int step = 0; step < STEPS; ++step) {
        const isize side = t.side0 + step * DOWN + down;
        const int inside = step * DOWN + down < t.sides_left && at < t.ks_left;
        const int exponent = exponent_of(norms[of.first_side + side], most);
        if (inside && t.k0 + at == 0)
            exponents[of.first_side + side] = exponent;
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
            certified[e] += folded(modulo(integer) * randoms[of.first_side + side]);
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
                const int re = dot(digits_high[e * PARTS], high[z], dot(digits_low[e * PARTS], low[z], 0));
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
    }
#ifdef CERTIFY
    if (!(counted >> is_b & 1))
        return;
    /* Sides of a tile: each thread's, then those of all that have the same k. */
    SHARED usize *const found = (SHARED usize *)space;
    const int numbers_of_k = KS * PARTS;
    BARRIER();
    UNROLL for (int e = 0; e < 4 * PARTS; ++e) found[down * numbers_of_k + at * PARTS + e] = certified[e];
    BARRIER();
    const isize l = t.k0 + THREAD_ID / PARTS;
    if (THREAD_ID >= numbers_of_k || l >= k)
        return;
    usize sum = 0;
    UNROLL for (int i = 0; i < DOWN; ++i) sum += found[i * numbers_of_k + THREAD_ID];
    ATOMIC_ADD_LONG(sums + (is_b * PARTS + THREAD_ID % PARTS) * all_k + first_k + l, folded(sum));
#endif
}
