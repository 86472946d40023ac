/* Results on their way to C, a chunk at a time.  A part of store.cuh. */

/* A lane's access to device memory, 8 bytes, in elements of C: four lanes write a sector. */
#define CHUNK (8 / OUTPUT_BYTES)
#define QUAD (4 * CHUNK)

struct result {
    output *c;
    isize ld, m, n;
    scalar alpha, beta;
    const int *exponents_a, *exponents_b;
    bool aligned; /* to 8 bytes, every column */
    epilogue then;
    bool lower; /* with TRIANGLE: which one of C is written */
};

/* The same of another product, so many elements on. */
HELPER result moved(result to, isize step)
{
    to.c += step;
    to.aligned = to.aligned && step * OUTPUT_BYTES % 8 == 0;
    return to;
}

/* sum * 2^exponent, correctly rounded: in two steps, of which the first is exact unless
 * the whole becomes zero or infinite. */
HELPER scalar scaled_by_power(scalar sum, int exponent)
{
#if SCALED
    const int last = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    const int rest = exponent - last;
    const int first = rest < -126 ? -126 : rest > 127 ? 127 : rest;
    return sum * power_of_two(first) * power_of_two(last);
#else
    return sum;
#endif
}

HELPER scalar combined(result to, scalar sum, int exponent, const output *old)
{
    const scalar v = to.alpha * scaled_by_power(sum, exponent);
    /* With beta = 0 C may hold anything, NaN too. */
    return to.beta == 0 ? v : v + to.beta * widened(*old);
}

/* Write a chunk of column j of C, from row i on, all of it inside and aligned. */
template <bool ADDED>
HELPER void store_whole_chunk(result to, scalar *sum, isize i, isize j, const int *exponents)
{
    output *const at = to.c + i + j * to.ld;
    chunk v;
    if (ADDED && to.beta != 0)
        v = *(const chunk *)at;
    UNROLL for (int e = 0; e < CHUNK; ++e)
        sum[e] = ADDED ? combined(to, sum[e], exponents[e], &v.e[e])
                       : to.alpha * scaled_by_power(sum[e], exponents[e]);
    round_chunk(&v, sum);
    *(chunk *)at = v;
}

/* Write what of a chunk lies inside C, and in the triangle that is written. */
HELPER void store_chunk(result to, scalar *sum, isize i, isize j, int exponent_b)
{
    const int left = to.m - i < CHUNK ? (int)(to.m - i) : CHUNK;
    /* Little code: the next number is always the first. */
    ROLLED for (int e = 0; e < left; ++e) {
        output *const at = to.c + i + e + j * to.ld;
        const int exponent = SCALED ? to.exponents_a[i + e] + exponent_b : 0;
        if (in_triangle(to.lower, i + e, j))
            *at = rounded(combined(to, sum[0], exponent, at));
        UNROLL for (int next = 1; next < CHUNK; ++next) sum[next - 1] = sum[next];
    }
}
