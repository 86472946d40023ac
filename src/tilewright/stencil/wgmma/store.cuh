/* Exponents, alpha and beta, and C written.  A part of kernel.cuh. */

/* A lane's access to device memory, 8 bytes, in elements of C: four lanes write a sector. */
#define CHUNK (8 / OUTPUT_BYTES)
#define QUAD (4 * CHUNK)

struct result {
    output *c;
    isize ld, m, n;
    scalar alpha, beta;
    const int *exponents_a, *exponents_b;
    bool aligned; /* to 8 bytes, every column */
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

HELPER accumulator combined(result to, accumulator sum, int exponent, const output *old)
{
    const accumulator v = to.alpha * scaled_by_power(sum, exponent);
    /* With beta = 0 C may hold anything, NaN too. */
    return to.beta == 0 ? v : v + to.beta * widened(*old);
}

/* Write a chunk of column j of C, from row i on, all of it inside and aligned. */
template <bool ADDED>
HELPER void store_whole_chunk(result to, accumulator *sum, isize i, isize j, const int *exponents)
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

/* Write what of a chunk lies inside C. */
HELPER void store_chunk(result to, accumulator *sum, isize i, isize j, int exponent_b)
{
    const int left = to.m - i < CHUNK ? (int)(to.m - i) : CHUNK;
    /* Little code: the next number is always the first. */
    ROLLED for (int e = 0; e < left; ++e) {
        output *const at = to.c + i + e + j * to.ld;
        const int exponent = SCALED ? to.exponents_a[i + e] + exponent_b : 0;
        *at = rounded(combined(to, sum[0], exponent, at));
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
 * Of 4-byte results a pair is a chunk.  Of 2-byte results two lanes exchange pairs of 16
 * columns: even ones have those of the first 8 then, odd ones of the others.
 *
 * PLAIN: the tile is inside C, which is not read.
 */
template <bool PLAIN> HELPER void store_sums(result to, tile at, const accumulator *sum)
{
    const int lane = THREAD_ID % 32, warp = THREAD_ID / 32;
    const int own = PINGPONG ? 0 : warp / 4 * (ROWS * 64);
    const int place = OUTPUT_BYTES == 4 ? lane % 4 * 2 : lane % 2 * 8 + lane % 4 / 2 * 4;
    const isize j0 = at.j0 + own + warp % 4 * 16 + lane / 4;
    int exponents_b[2 * ROWS] = {};
    UNROLL for (int line = 0; SCALED && line < 2 * ROWS; ++line) {
        const isize j = j0 + line / 2 * 64 + line % 2 * 8;
        if (PLAIN || j < to.n)
            exponents_b[line] = to.exponents_b[j];
    }
    UNROLL for (int column = 0; column < BLOCK_M; column += QUAD) {
        const isize i = at.i0 + place + column;
        const bool whole = PLAIN || (to.aligned && i + CHUNK <= to.m);
        int exponents_a[CHUNK] = {};
        UNROLL for (int e = 0; SCALED && e < CHUNK; ++e)
            if (whole)
                exponents_a[e] = to.exponents_a[i + e];
        UNROLL for (int line = 0; line < 2 * ROWS; ++line) { /* rows of 64, two lines of each */
            const isize j = j0 + line / 2 * 64 + line % 2 * 8;
            const int piece = line / 2 * COLUMNS + column / INSTRUCTION_M;
            const accumulator *const from =
                sum + piece * SUMS + column % INSTRUCTION_M / 2 + line % 2 * 2;
            accumulator v[CHUNK];
            UNROLL for (int e = 0; e < CHUNK; ++e) v[e] = from[e / 2 * 4 + e % 2];
            exchange_pairs(v);
            if (!PLAIN && (j >= to.n || i >= to.m))
                continue;
            const int exponent_b = exponents_b[line];
            int exponents[CHUNK];
            UNROLL for (int e = 0; e < CHUNK; ++e) exponents[e] = exponents_a[e] + exponent_b;
            if (whole)
                store_whole_chunk<!PLAIN>(to, v, i, j, exponents);
            else
                store_chunk(to, v, i, j, exponent_b);
        }
    }
}

/* Inner tiles of a C that is only written have a way of their own, without checks. */
HELPER void store_tile(result to, tile at, const accumulator *sum)
{
    if (to.aligned && to.beta == 0 && at.i0 + BLOCK_M <= to.m && at.j0 + BLOCK_N <= to.n)
        store_sums<true>(to, at, sum);
    else
        store_sums<false>(to, at, sum);
}
