/* The product put together from its residues, unscaled, with alpha and beta.
 *
 *     X = sum of residue[z] W[z] - q P,   |X| < P / 2,   W[z] = 1 modulo modulus z, 0 modulo the others
 *     C <- alpha X 2^-(ea[i] + eb[j]) + beta C
 *
 * W and P are sums of three numbers of so few bits, high unit^2 + middle unit + low, that every sum of
 * products with residues is exact in a double; q is the nearest integer to the first of them over P.
 * So X is rounded once, but for what is 2^-50 of that rounding, and not at all where a double holds it.
 *
 * A complex element has two residues u, v of each modulus: re = (u + v) / 2, im = (u - v) / (2 j), whose
 * divisions are part of W.
 *
 *     residues, plane z:  | column 0: ld bytes | column 1 | ...    `stride` bytes apart
 *
 * A thread has four elements of a column, and writes those of the part of C that is computed.  A complex
 * result that is `hermitian` has a real diagonal, and no imaginary part of C's is read there.
 *
 * With CERTIFY X also goes into a certificate (certify.cl).
 *
 * Macros: PARTS, FIRST, COUNT, WEIGHTS (for each number of moduli from FIRST on COUNT times PARTS times
 * three doubles), PRODUCTS (for each five doubles: P's three, unit^2 / P, unit).
 */
#include "residues/tiles.h"
#ifdef CERTIFY
#include "residues/modulo.h"
#define CERTIFICATE                                                                        \
    , const GLOBAL unsigned int *RESTRICT randoms, GLOBAL usize *RESTRICT sums, isize totals_at
#else
#define CERTIFICATE
#endif

#if PARTS == 1
#define HERMITIAN
#else
#define HERMITIAN , int hermitian
#endif

TABLE double weights[] = {WEIGHTS};
TABLE double products[] = {PRODUCTS};

#ifdef __CUDACC__
#define BYTE_OF(word, e) __byte_perm(word, 0, 0x4440 | (e))
#else
#define BYTE_OF(word, e) ((word) >> 8 * (e) & 255)
#endif

/* A residue of four, plus 128: from bytes whose first bit was flipped. */
#define FLIPPED(word) ((word) ^ 0x80808080u)

/* A small number, of the bits of 2^52 and that and `more`. */
HELPER double number_of(unsigned int plus_more, int more)
{
    return of_bits((usize)0x43300000 << 32 | plus_more) - (4503599627370496.0 + more);
}

/* X as a double. */
HELPER double rounded_sum(const PRIVATE double *sum, int product)
{
    const double q = rint(sum[0] * products[product + 3]);
    const double high = sum[0] - q * products[product];
    const double middle = sum[1] - q * products[product + 1];
    const double low = sum[2] - q * products[product + 2], unit = products[product + 4];
    /* high unit + middle = both + rest, exactly (Knuth). */
    const double first = high * unit, both = first + middle, second = both - first;
    const double rest = (first - (both - second)) + (middle - second);
    return both * unit + (rest * unit + low);
}

#ifdef CERTIFY
/* The sum of four elements' X times random numbers, modulo 2^31 - 1, below 2^33: powers of two are shifts. */
HELPER usize random_sum(const PRIVATE double *sum, int product, const GLOBAL unsigned int *RESTRICT randoms,
                        int count)
{
    const int bits = (int)(bits_of(products[product + 4]) >> 52) - 1023;
    isize parts[3] = {0, 0, 0};
    usize found = 0;
    UNROLL for (int e = 0; e < 4; ++e) {
        const PRIVATE double *const of = sum + e * PARTS * 3;
        const double q = rint(of[0] * products[product + 3]);
        UNROLL for (int part = 0; part < 3; ++part)
            if (e < count)
                parts[part] += random_product((isize)(of[part] - q * products[product + part]), randoms[e]);
    }
    UNROLL for (int part = 0; part < 3; ++part)
        found += folded(modulo(parts[part]) << (2 - part) * bits % 31);
    return folded(found);
}
#endif

/* x 2^e, rounded once. */
HELPER double times_power(double x, int e)
{
    const int first = e / 2;
    return x * power_of_two(first) * power_of_two(e - first);
}

/* The sums of `count` planes' residues with weights, three of each part of four elements. */
HELPER void sum_up(PRIVATE double *sum, const GLOBAL unsigned char *from, isize stride, int count)
{
    const int weight = (count - FIRST) * COUNT * PARTS * 3;
    unsigned int word[COUNT * PARTS];
    UNROLL_MODULI for (int z = 0; z < count * PARTS; ++z)
        word[z] = FLIPPED(*(const GLOBAL unsigned int *)(from + z * stride));
    UNROLL for (int s = 0; s < 4 * PARTS * 3; ++s) sum[s] = 0;
    UNROLL_MODULI for (int z = 0; z < count; ++z)
        UNROLL for (int e = 0; e < 4; ++e) {
            const unsigned int u = BYTE_OF(word[z * PARTS], e);
#if PARTS == 1
            const double x[1] = {number_of(u, 128)};
#else
            const unsigned int v = BYTE_OF(word[2 * z + 1], e);
            const double x[2] = {number_of(u + v, 256), number_of(u - v + 256, 256)};
#endif
            UNROLL for (int p = 0; p < PARTS; ++p)
                UNROLL for (int w = 0; w < 3; ++w)
                    sum[(PARTS * e + p) * 3 + w] += x[p] * weights[weight + (PARTS * z + p) * 3 + w];
        }
}

KERNEL THREADS_AND_BLOCKS(THREADS, 2) void reconstruct(
    isize m, isize n, const GLOBAL unsigned char *RESTRICT residues, isize stride, isize ld,
    const GLOBAL int *RESTRICT exponents, isize first_a, isize first_b, int triangle HERMITIAN,
    SCALAR(alpha), SCALAR(beta),
    GLOBAL double *RESTRICT c, isize offset, isize ldc, const GLOBAL int *RESTRICT decision CERTIFICATE)
{
    const int count = decision[MODULI];
    if (!count)
        return;
    const isize down = (m + 4 * THREADS - 1) / (4 * THREADS);
    const isize own = ((isize)BLOCK_ID % down * THREADS + THREAD_ID) * 4, j = (isize)BLOCK_ID / down;
    const int ahead = (int)(own - j);
#ifdef CERTIFY
    const isize i = own < m ? own : 0; /* all threads add up */
#else
    const isize i = own;
    if (i >= m || !is_any_computed(triangle, ahead))
        return;
#endif
    const GLOBAL unsigned char *const from = residues + i + j * ld;
    double sum[4 * PARTS * 3];
    /* The compiler sees a number in each. */
    UNROLL_MODULI for (int known = FIRST; known <= COUNT; ++known)
        if (count == known)
            sum_up(sum, from, stride, known);
    const int product = (count - FIRST) * 5;
    GLOBAL double *const to = c + (offset + i + j * ldc) * PARTS;
    const int left = (m - own >= 4 ? 4 : m > own ? (int)(m - own) : 0) * PARTS, eb = exponents[first_b + j];
    const int whole = left == 4 * PARTS && is_computed(triangle, ahead) && is_computed(triangle, ahead + 3);
    double v[4 * PARTS];
    UNROLL for (int e = 0; e < 4; ++e) {
        const int power = -(exponents[first_a + i + e] + eb); /* of whole tiles of sides */
        double x[PARTS];
        UNROLL for (int p = 0; p < PARTS; ++p)
            x[p] = times_power(rounded_sum(sum + (PARTS * e + p) * 3, product), power);
#if PARTS == 1
        v[e] = alpha * x[0];
#else
        v[2 * e] = alpha_re * x[0] - alpha_im * x[1];
        v[2 * e + 1] = alpha_re * x[1] + alpha_im * x[0];
#endif
    }
#if PARTS == 1
    if (beta != 0)
        UNROLL for (int e = 0; e < 4; ++e)
            if (e < left && is_computed(triangle, ahead + e))
                v[e] += beta * to[e];
#else
    if (beta_re != 0 || beta_im != 0)
        UNROLL for (int e = 0; e < 8; e += 2)
            if (e < left && is_computed(triangle, ahead + e / 2)) {
                const double im = hermitian && ahead + e / 2 == 0 ? 0 : to[e + 1];
                v[e] += beta_re * to[e] - beta_im * im;
                v[e + 1] += beta_re * im + beta_im * to[e];
            }
    UNROLL for (int e = 0; e < 4; ++e)
        if (hermitian && ahead + e == 0)
            v[2 * e + 1] = 0;
#endif
    if (whole && ADDRESS(to) % 16 == 0) {
        UNROLL for (int e = 0; e < 4 * PARTS; e += 2) {
            const doubles two = {{v[e], v[e + 1]}};
            *(GLOBAL doubles *)(to + e) = two;
        }
    } else {
        UNROLL for (int e = 0; e < 4 * PARTS; ++e)
            if (e < left && is_computed(triangle, ahead + e / PARTS))
                to[e] = v[e];
    }
#ifdef CERTIFY
    UNROLL for (int p = 0; p < PARTS; ++p) {
        const usize mine = random_sum(sum + p * 3, product, randoms + first_a + i, left / PARTS);
        add_all(sums + totals_at + p * TOTALS + j % TOTALS, folded(mine * randoms[first_b + j]));
    }
#endif
}
