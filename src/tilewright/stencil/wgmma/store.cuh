/* Exponents, alpha and beta, and C written.  A part of kernel.cuh. */

/* The widest access to device memory, 16 bytes, in elements of C. */
#define CHUNK (16 / OUTPUT_BYTES)

/* Columns of an instruction's result that four lanes write together: a chunk each. */
#define QUAD (4 * CHUNK)

struct result {
    output *c;
    isize ld, m, n;
    scalar alpha, beta;
    const int *exponents_a, *exponents_b;
    bool aligned; /* to 16 bytes, every column */
};

/* sum * 2^exponent, correctly rounded: in two steps, of which the first is exact unless
 * the whole becomes zero or infinite. */
HELPER accumulator scaled_by_power(accumulator sum, int exponent)
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

HELPER output combined(result to, accumulator sum, int exponent, const output *old)
{
    const accumulator v = to.alpha * scaled_by_power(sum, exponent);
    /* With beta = 0 C may hold anything, NaN too. */
    return rounded(to.beta == 0 ? v : v + to.beta * widened(*old));
}

/* Write a chunk of column j of C, from row i on, all of it inside and aligned. */
HELPER void store_whole_chunk(result to, const accumulator *sum, isize i, isize j, int exponent_b)
{
    output *const at = to.c + i + j * to.ld;
    chunk old, v;
    if (to.beta != 0)
        old = *(const chunk *)at;
    UNROLL for (int e = 0; e < CHUNK; ++e) {
        const int exponent = SCALED ? to.exponents_a[i + e] + exponent_b : 0;
        v.e[e] = combined(to, sum[e], exponent, &old.e[e]);
    }
    *(chunk *)at = v;
}

/* Write what of a chunk lies inside C. */
HELPER void store_chunk(result to, accumulator *sum, isize i, isize j, int exponent_b)
{
    if (j >= to.n || i >= to.m)
        return;
    const int left = to.m - i < CHUNK ? (int)(to.m - i) : CHUNK;
    /* Little code: the next number is always the first. */
    ROLLED for (int e = 0; e < left; ++e) {
        output *const at = to.c + i + e + j * to.ld;
        const int exponent = SCALED ? to.exponents_a[i + e] + exponent_b : 0;
        *at = combined(to, sum[0], exponent, at);
        UNROLL for (int next = 1; next < CHUNK; ++next) sum[next - 1] = sum[next];
    }
}

/* Write what this thread's group of warps has summed.  In an instruction's result, lane l of
 * warp w has rows 16 w + l / 4 and 8 more, and of every 8 columns the pair number l % 4:
 *
 *     column   0   1   2   3   4   5   6   7   8 ...
 *     row 0    lane 0  lane 1  lane 2  lane 3  lane 0 ...
 *     row 1    lane 4  lane 5  ...
 *
 * Four lanes exchange pairs until each has a chunk.
 */
template <bool WHOLE> HELPER void store_sums(result to, tile at, const accumulator *sum)
{
    const int lane = THREAD_ID % 32, warp = THREAD_ID / 32;
    const int own = TURNS ? 0 : warp / 4 * (ROWS * 64);
    const isize j0 = at.j0 + own + warp % 4 * 16 + lane / 4;
    const isize i0 = at.i0 + lane % 4 * CHUNK;
    UNROLL for (int line = 0; line < 2 * ROWS; ++line) { /* rows of 64, two lines of each */
        const isize j = j0 + line / 2 * 64 + line % 2 * 8;
        const int exponent_b = SCALED && (WHOLE || j < to.n) ? to.exponents_b[j] : 0;
        UNROLL for (int column = 0; column < BLOCK_M; column += QUAD) {
            const int piece = line / 2 * COLUMNS + column / INSTRUCTION_M;
            const accumulator *const from =
                sum + piece * SUMS + column % INSTRUCTION_M / 2 + line % 2 * 2;
            accumulator v[CHUNK];
            UNROLL for (int e = 0; e < CHUNK; ++e) v[e] = from[e / 2 * 4 + e % 2];
            exchange_quad(v);
            if (WHOLE || (to.aligned && j < to.n && i0 + column + CHUNK <= to.m))
                store_whole_chunk(to, v, i0 + column, j, exponent_b);
            else
                store_chunk(to, v, i0 + column, j, exponent_b);
        }
    }
}

/* Inner tiles have a way of their own, without checks. */
HELPER void store_tile(result to, tile at, const accumulator *sum)
{
    if (to.aligned && at.i0 + BLOCK_M <= to.m && at.j0 + BLOCK_N <= to.n)
        store_sums<true>(to, at, sum);
    else
        store_sums<false>(to, at, sum);
}
