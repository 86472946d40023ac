/* A double-double product put together from its residues, unscaled, with alpha and beta.
 *
 *     X = sum of residue[z] W[z] - q P,   |X| < P / 2,   W[z] = 1 modulo modulus z, 0 modulo the others
 *     C <- alpha X 2^-(ea[i] + eb[j]) + beta C
 *
 * W and P are integers in parts of 40 or 39 bits, the highest first, and so is X: of each part every sum of
 * products with residues is exact in a double, carries included.  q is the nearest integer to the two
 * highest parts over P.  X's parts become a pair by sums without error.
 *
 * A complex element has three residues u, v, t of each modulus, of the products of real parts, imaginary
 * parts and their sums: re = u - v, im = t - u - v.
 *
 *     residues, plane z:  | column 0: ld bytes | column 1 | ...    `stride` bytes apart
 *
 * A thread has four elements of a column, and writes those of the part of C that is computed.  A complex
 * result that is `hermitian` has a real diagonal, and no imaginary part of C's is read there.
 *
 * Macros: FIRST, COUNT, PARTS_OF_COUNTS (6, 7 or 8, of each number of moduli from FIRST on), WEIGHTS (for
 * each number of moduli COUNT times as many doubles), PRODUCTS (P's, unit^(parts - 1) / P, unit).
 */
#include "residues/tiles.h"
#if COMPONENTS == 2
#include "prelude/w.h"
#define PAIR_SCALAR(x) REAL x##_re, REAL x##_im
#define ELEM_SCALAR(x) elem_scalar(x##_re, x##_im)
#define HERMITIAN , int hermitian
#define IS_HERMITIAN hermitian
HELPER elem real_part(elem x) { return elem_scalar(x.re, pair_of(0, 0)); }
#else
#include "prelude/e.h"
#define PAIR_SCALAR(x) REAL x
#define ELEM_SCALAR(x) x
#define HERMITIAN
#define IS_HERMITIAN 0
#define real_part(x) (x)
#endif

#define MOST 8
#ifdef __CUDACC__
#define WEIGHTS_OF SHARED
#define STEP_OF(many) MOST
#if COMPONENTS == 1
#define UNROLL_SOME _Pragma("unroll 8") /* as many as registers are enough for */
#else
#define UNROLL_SOME _Pragma("unroll 4")
#endif
#else
#define WEIGHTS_OF OF_TABLE
#define STEP_OF(many) many
#define UNROLL_SOME
#endif
#define PLANES_OF_EACH (2 * COMPONENTS - 1)

TABLE double weights[] = {WEIGHTS};
TABLE double products[] = {PRODUCTS};
TABLE int parts_of[] = {PARTS_OF_COUNTS};

/* A small number, not below -BIAS, of the bits of 2^52 and that and BIAS. */
#define BIAS 512
HELPER double number_of(int x)
{
    return of_bits((usize)0x43300000 << 32 | (unsigned int)(x + BIAS)) - (4503599627370496.0 + BIAS);
}

/* x to an integer, |x| < 2^51. */
HELPER double nearest_integer(double x)
{
    const double magic = 6755399441055744.0; /* 1.5 2^52: what is added to it is rounded */
    return minus(plus(x, magic), magic);
}

/* A signed byte of four. */
HELPER int byte_of(unsigned int word, int e) { return (int)(word << (24 - 8 * e)) >> 24; }

/* X as a pair: at most 2^-105 |X| away, and exact where a pair holds it. */
HELPER pair rounded_sum(PRIVATE double *part, const OF_TABLE double *product, int many)
{
    const double unit = product[many + 1], share = 1 / unit;
    const double q = nearest_integer((part[0] + part[1] * share) * product[many]);
    UNROLL for (int w = 0; w < many; ++w) part[w] -= q * product[w];
    UNROLL for (int w = many - 1; w > 0; --w) { /* to at most half a unit */
        const double carry = nearest_integer(part[w] * share);
        part[w] -= carry * unit;
        part[w - 1] += carry;
    }
    /* From below: a part is 0 or larger than the sum of those below it. */
    double scale = 1, error[MOST];
    pair sum = pair_of(part[many - 1], 0);
    UNROLL for (int w = many - 2; w >= 0; --w) {
        scale *= unit;
        sum = fast_two_sum(part[w] * scale, sum.x);
        error[w] = sum.y;
    }
    double low = error[many - 2];
    UNROLL for (int w = many - 3; w >= 0; --w) low = plus(error[w], low);
    return fast_two_sum(sum.x, low);
}

/* What is put together of one component of four elements. */
HELPER void sum_up(PRIVATE pair *x, const GLOBAL unsigned char *from, isize stride, int count,
                   const WEIGHTS_OF double *weight, const OF_TABLE double *product, int component, int many)
{
    double sum[4 * MOST];
    UNROLL for (int s = 0; s < 4 * MOST; ++s) sum[s] = 0;
    UNROLL_SOME for (int z = 0; z < count; ++z) {
        unsigned int word[PLANES_OF_EACH];
        UNROLL for (int plane = 0; plane < PLANES_OF_EACH; ++plane)
            word[plane] = *(const GLOBAL unsigned int *)(from + (z * PLANES_OF_EACH + plane) * stride);
        UNROLL for (int e = 0; e < 4; ++e) {
            int found = byte_of(word[0], e);
#if COMPONENTS == 2
            const int v = byte_of(word[1], e);
            found = component ? byte_of(word[2], e) - found - v : found - v;
#endif
            const double residue = number_of(found);
            UNROLL for (int w = 0; w < many; ++w) sum[e * MOST + w] += residue * weight[z * STEP_OF(many) + w];
        }
    }
    UNROLL for (int e = 0; e < 4; ++e) x[e] = rounded_sum(sum + e * MOST, product, many);
}

/* x 2^e, each word rounded at most once. */
HELPER pair times_power(pair x, int e)
{
    const double first = power_of_two(e / 2), second = power_of_two(e - e / 2);
    return pair_of(x.x * first * second, x.y * first * second);
}

KERNEL THREADS_AND_BLOCKS(THREADS, 2) void reconstruct(
    isize m, isize n, const GLOBAL unsigned char *RESTRICT residues, isize stride, isize ld,
    const GLOBAL int *RESTRICT exponents, isize first_a, isize first_b, int triangle HERMITIAN,
    PAIR_SCALAR(alpha), PAIR_SCALAR(beta), GLOBAL elem *RESTRICT c, isize offset, isize ldc,
    const GLOBAL int *RESTRICT decision)
{
    const int count = decision[MODULI];
    if (!count)
        return;
    int before = 0;
    for (int less = FIRST; less < count; ++less) before += parts_of[less - FIRST];
    const int many = parts_of[count - FIRST];
    const OF_TABLE double *const own_weights = weights + before * COUNT;
#ifdef __CUDACC__ /* where loads of constants that are no instruction's own take longer */
    SHARED_ARRAY ALIGNED(16) double weight[COUNT * MOST];
    for (int at = THREAD_ID; at < count * many; at += THREADS)
        weight[at / many * MOST + at % many] = own_weights[at];
    BARRIER();
#else
    const OF_TABLE double *const weight = own_weights;
#endif
    const OF_TABLE double *const product = products + before + 2 * (count - FIRST);
    const isize down = (m + 4 * THREADS - 1) / (4 * THREADS);
    const isize i = ((isize)BLOCK_ID % down * THREADS + THREAD_ID) * 4, j = (isize)BLOCK_ID / down;
    const int ahead = (int)(i - j);
    if (i >= m || !is_any_computed(triangle, ahead))
        return;
    const GLOBAL unsigned char *const from = residues + i + j * ld;
    pair x[4 * COMPONENTS];
    UNROLL for (int component = 0; component < COMPONENTS; ++component) {
        PRIVATE pair *const own = x + 4 * component;
        switch (many) { /* the compiler sees a number in each */
        case 6: sum_up(own, from, stride, count, weight, product, component, 6); break;
        case 7: sum_up(own, from, stride, count, weight, product, component, 7); break;
        default: sum_up(own, from, stride, count, weight, product, component, MOST);
        }
    }
    GLOBAL elem *const to = c + offset + i + j * ldc;
    const int eb = exponents[first_b + j];
    UNROLL for (int e = 0; e < 4; ++e) {
        if (i + e >= m || !is_computed(triangle, ahead + e))
            continue;
        const int power = -(exponents[first_a + i + e] + eb);
#if COMPONENTS == 2
        const elem unscaled = elem_scalar(times_power(x[e], power), times_power(x[4 + e], power));
#else
        const elem unscaled = times_power(x[e], power);
#endif
        const int is_real = IS_HERMITIAN && ahead + e == 0;
        elem v = elem_scale(ELEM_SCALAR(alpha), unscaled);
        if (!elem_is_zero(ELEM_SCALAR(beta)))
            v = elem_add(v, elem_scale(ELEM_SCALAR(beta), is_real ? real_part(to[e]) : to[e]));
        to[e] = is_real ? real_part(v) : v;
    }
}
