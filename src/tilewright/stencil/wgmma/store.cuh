/* Exponents, alpha and beta, and C written.  A part of kernel.cuh. */

#include "wgmma/chunks.cuh"

/* Write one element. */
HELPER void store_element(result to, accumulator sum, isize i, isize j)
{
    output *const at = to.c + i + j * to.ld;
#if EPILOGUE
    const epilogue e = to.then;
    const scalar scaled = to.alpha * (scale_at(e.scale_m, i) * scale_at(e.scale_n, j)) * sum;
    scalar v = to.beta == 0 ? scaled : scaled + to.beta * widened(*at);
    v += bias_at(e.bias_m, e.flags, i) + bias_at(e.bias_n, e.flags, j);
    *at = rounded(activated(v, e.flags));
#else
    const int exponent = SCALED ? to.exponents_a[i] + to.exponents_b[j] : 0;
    *at = rounded(combined(to, sum, exponent, at));
#endif
}

/* Where a thread's sums are.  In an instruction's result, lane l of
 * warp w has rows 16 w + l / 4 and 8 more, and of every 8 columns the pair number l % 4:
 *
 *     column   0   1   2   3   4   5   6   7   8 ...
 *     row 0    lane 0  lane 1  lane 2  lane 3  lane 0 ...
 *     row 1    lane 4  lane 5  ...
 *
 * C's columns are these rows: a thread has LINES of them, and of each a pair of every 8 elements.
 */
#define LINES (2 * ROWS)

/* A column of C within the block's tile; a row, where rows are of A. */
HELPER int column_of(int line)
{
    const int lane = THREAD_ID % 32, warp = THREAD_ID / 32;
    const int own = PINGPONG ? 0 : warp / 4 * (ROWS * 64);
    return own + warp % 4 * 16 + lane / 4 + line / 2 * 64 + line % 2 * 8;
}

/* The pair of a line among its elements from `row` on, a multiple of 8. */
template <class number> HELPER const number *pair_of(const number *sum, int line, int row)
{
    const int piece = line / 2 * COLUMNS + row / INSTRUCTION_M;
    return sum + piece * SUMS + row % INSTRUCTION_M / 2 + line % 2 * 2;
}

/* Write what this thread's group of warps has summed.  Of 4-byte results a pair is a chunk.  Of
 * 2-byte results two lanes exchange pairs of 16 elements: even ones have those of the first 8 then,
 * odd ones of the others.
 *
 * PLAIN: the tile is inside C, which is not read.
 */
template <bool PLAIN> HELPER void store_sums(result to, tile at, const scalar *sum)
{
    const int lane = THREAD_ID % 32;
    const int place = OUTPUT_BYTES == 4 ? lane % 4 * 2 : lane % 2 * 8 + lane % 4 / 2 * 4;
    const isize j0 = at.j0 + column_of(0);
    int exponents_b[LINES] = {};
    UNROLL for (int line = 0; SCALED && line < LINES; ++line) {
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
        UNROLL for (int line = 0; line < LINES; ++line) {
            const isize j = j0 + line / 2 * 64 + line % 2 * 8;
            const scalar *const from = pair_of(sum, line, column);
            scalar v[CHUNK];
            UNROLL for (int e = 0; e < CHUNK; ++e) v[e] = from[e / 2 * 4 + e % 2];
            exchange_pairs(v);
            if (!PLAIN && (j >= to.n || i >= to.m))
                continue;
            const int exponent_b = exponents_b[line];
            int exponents[CHUNK];
            UNROLL for (int e = 0; e < CHUNK; ++e) exponents[e] = exponents_a[e] + exponent_b;
            if (whole && in_triangle(to.lower, i, j) && in_triangle(to.lower, i + CHUNK - 1, j))
                store_whole_chunk<!PLAIN>(to, v, i, j, exponents);
            else
                store_chunk(to, v, i, j, exponent_b);
        }
    }
}

/* Whether all columns of C begin at multiples of so many bytes. */
HELPER bool columns_begin_at(result to, int bytes)
{
    return (ADDRESS(to.c) | (unsigned long long)to.ld * OUTPUT_BYTES) % bytes == 0;
}

/* Whether a tile is inside C, which is not read, and in the triangle that is written. */
HELPER bool is_only_written(result to, tile at)
{
    return is_of_triangle(to.lower, at) && to.beta == 0 && at.i0 + BLOCK_M <= to.m
           && at.j0 + BLOCK_N <= to.n;
}

#if STAGED
#include "wgmma/staged.cuh"
#endif

#if ROWS_OF_A
/* Rows of A are turned on their way to C, whose columns then are side by side: of 8 x 8 elements a lane
 * gets two of column l / 4, and two lanes exchange those of two such squares.
 *
 *     column l / 4 of 16 rows    | lane 0: 0 to 3 | lane 2: 4 to 7 | lane 1: 8 to 11 | lane 3: 12 to 15 |
 */

/* A lane's first row, of those in a part of 64, within the block's tile. */
HELPER int row_of(int part)
{
    const int warp = THREAD_ID / 32, own = PINGPONG ? 0 : warp / 4 * (ROWS * 64);
    return own + part * 64 + warp % 4 * 16 + THREAD_ID % 2 * 8 + THREAD_ID % 4 / 2 * 4;
}

/* Four sums from there on, of the lane's column of eight. */
HELPER sums_of_chunk turned(const accumulator *sum, int part, int eight)
{
    sums_of_chunk v;
    UNROLL for (int h = 0; h < 2; ++h) turn_pair(v.e + 2 * h, pair_of(sum, 2 * part + h, eight));
    exchange_floats(v.e);
    return v;
}

/* Write a C that is not read, whose columns are not aligned: rows are not turned, eight lanes write
 * eight elements of a column side by side. */
HELPER void store_rows_as_they_lie(result to, tile at, const accumulator *sum)
{
    UNROLL for (int line = 0; line < LINES; ++line) {
        const isize i = at.i0 + column_of(line), j = at.j0 + THREAD_ID % 4 * 2;
        output *c = to.c + i + j * to.ld;
        int left = i >= to.m ? 0 : to.n - j < BLOCK_N ? (int)(to.n - j) : BLOCK_N;
        UNROLL for (int eight = 0; eight < BLOCK_N; eight += 8, c += 8 * to.ld, left -= 8)
            UNROLL for (int e = 0; e < 2; ++e)
                if (e < left)
                    c[e * to.ld] = to.alpha * pair_of(sum, line, eight)[e];
    }
}

HELPER void store_rows(result to, tile at, const accumulator *sum)
{
    const bool aligned = columns_begin_at(to, 16);
    if (!aligned && to.beta == 0) {
        store_rows_as_they_lie(to, at, sum);
        return;
    }
    UNROLL for (int part = 0; part < ROWS; ++part) {
        const isize i = at.i0 + row_of(part);
        UNROLL for (int eight = 0; eight < BLOCK_N; eight += 8) {
            const isize j = at.j0 + eight + THREAD_ID % 32 / 4;
            sums_of_chunk v = turned(sum, part, eight);
            output *const c = to.c + i + j * to.ld;
            if (j < to.n && aligned && i + 4 <= to.m) {
                sums_of_chunk old = {};
                if (to.beta != 0)
                    old = *(const sums_of_chunk *)c;
                UNROLL for (int e = 0; e < 4; ++e) v.e[e] = combined(to, v.e[e], 0, &old.e[e]);
                *(sums_of_chunk *)c = v;
            } else if (j < to.n) {
                UNROLL for (int e = 0; e < 4; ++e)
                    if (i + e < to.m)
                        c[e] = combined(to, v.e[e], 0, c + e);
            }
        }
    }
}
#endif

/* Whether columns that are not aligned are shifted on their way, and written in whole sectors. */
#define SHIFTED (OUTPUT_BYTES == 2 && !SCALED)

#if SHIFTED
/* Elements of a sector of device memory, 32 bytes: what is written in parts is read before. */
#define SECTOR 16

/* Words of a column whose first element lies `shift` behind the start of a sector, as they lie in
 * memory: lane q of four has word q of every 16 bytes.
 *
 *     shift 3      | - - | - 0 | 1 2 | 3 4 |  5 6 | 7 8 | ...     elements
 *                  lane 0  lane 1  lane 2  lane 3  lane 0 ...
 *
 * A lane had pair q of every 8 elements.  Where `shift` is even pairs move to other lanes, where it
 * is odd a word is made of two pairs' halves.
 */
HELPER void shift_words(unsigned int *word, int shift)
{
    const int q = THREAD_ID % 4, by = shift / 2 % 4;
    const unsigned int halves = shift % 2 ? HALVES_OF_BOTH : SECOND_WORD;
    unsigned int low_before = 0, high_before = 0;
    UNROLL for (int g = 0; g <= BLOCK_M / 8; ++g) {
        const unsigned int own = g < BLOCK_M / 8 ? word[g] : 0;
        /* Pairs that give a word's high half, or all of it, and its low half. */
        const unsigned int high = of_quad_lane(own, q - by), low = of_quad_lane(own, q - by - 1);
        const unsigned int whole = q >= by ? high : high_before;
        const unsigned int half = q > by ? low : low_before;
        word[g] = of_bytes(half, whole, halves);
        high_before = high;
        low_before = low;
    }
}

/* Write what of four elements, from place `at` of a column of `rows` on, lies inside. */
HELPER void store_some(output *column, const unsigned int *words, int at, int rows)
{
    UNROLL for (int e = 0; e < 4; ++e)
        if (at + e >= 0 && at + e < rows)
            column[at + e] = (output)(words[e / 2] >> 16 * (e % 2));
}

/* Write a C that is not read, whose columns begin and end anywhere: sector after sector, four lanes
 * each. */
HELPER void store_shifted(result to, tile at, const scalar *sum)
{
    const bool odd = THREAD_ID & 1;
    const int place = odd * 8 + THREAD_ID % 4 / 2 * 4;
    const int rows = to.m - at.i0 < BLOCK_M ? (int)(to.m - at.i0) : BLOCK_M;
    UNROLL for (int line = 0; line < LINES; ++line) {
        const isize j = at.j0 + column_of(line);
        output *const column = to.c + at.i0 + j * to.ld;
        const int shift = (int)(ADDRESS(column) / 2 % SECTOR), size = j < to.n ? rows : 0;
        unsigned int word[BLOCK_M / 8 + 1];
        UNROLL for (int g = 0; g < BLOCK_M / 8; ++g) {
            const scalar *const from = pair_of(sum, line, g * 8);
            const scalar v[2] = {to.alpha * from[0], to.alpha * from[1]};
            word[g] = rounded_pair(v);
        }
        shift_words(word, shift);
        unsigned int last[2] = {};
        int last_at = size; /* none */
        UNROLL for (int s = 0; s <= BLOCK_M / SECTOR; ++s) {
            const bool far = shift >= SECTOR / 2;
            const unsigned int before = s ? word[2 * s - 1] : 0, here = word[2 * s];
            const unsigned int behind = s < BLOCK_M / SECTOR ? word[2 * s + 1] : 0;
            const unsigned int first = far ? before : here, second = far ? here : behind;
            const unsigned int got = of_quad_lane(odd ? first : second, THREAD_ID ^ 1);
            const unsigned int words[2] = {odd ? got : first, odd ? second : got};
            const int e = s * SECTOR - shift + place;
            if (e >= 0 && e + 4 <= size) {
                chunk v;
                UNROLL for (int w = 0; w < 2; ++w) v.pairs[w] = words[w];
                *(chunk *)(column + e) = v;
            } else if (s == 0 && e < 0) {
                store_some(column, words, e, size);
            } else if (e < size) {
                last_at = e;
                UNROLL for (int w = 0; w < 2; ++w) last[w] = words[w];
            }
        }
        store_some(column, last, last_at, size);
    }
}
#endif

#if EPILOGUE
/* The results of a block's tile before they are rounded, in the places of its sums.  A thread's rows
 * are pairs of every 8, from its first on. */
HELPER void finish_tile(scalar *done, result to, tile at, const accumulator *sum)
{
    const epilogue e = to.then;
    const isize first = at.i0 + THREAD_ID % 4 * 2, left = to.m - first;
    const int rows = left < BLOCK_M ? (int)left : BLOCK_M;
    scalar scales[LINES], biases[LINES];
    UNROLL for (int line = 0; line < LINES; ++line) {
        const isize j = at.j0 + column_of(line);
        scales[line] = j < to.n ? to.alpha * scale_at(e.scale_n, j) : 0;
        biases[line] = j < to.n ? bias_at(e.bias_n, e.flags, j) : 0;
    }
    UNROLL for (int place = 0; place < BLOCK_M / 4; ++place) {
        const int row = place / 2 * 8 + place % 2;
        const scalar scale = row < rows ? scale_at(e.scale_m, first + row) : 0;
        const scalar bias = row < rows ? bias_at(e.bias_m, e.flags, first + row) : 0;
        UNROLL for (int line = 0; line < LINES; ++line) {
            const accumulator *const from = pair_of(sum, line, place / 2 * 8) + place % 2;
            done[from - sum] = scales[line] * scale * *from + (bias + biases[line]);
        }
    }
    if (to.beta != 0) {
        UNROLL for (int line = 0; line < LINES; ++line) {
            const isize j = at.j0 + column_of(line);
            const output *const column = to.c + first + j * to.ld;
            const int size = j < to.n ? rows : 0;
            UNROLL for (int place = 0; place < BLOCK_M / 4; ++place) {
                const int row = place / 2 * 8 + place % 2;
                if (row < size)
                    done[pair_of(sum, line, place / 2 * 8) + place % 2 - sum] +=
                        to.beta * widened(column[row]);
            }
        }
    }
    activate(done, SUMS_OF_THREAD, e.flags);
}
#endif

/* Inner tiles of a C that is only written have a way of their own, without checks. */
HELPER void store_results(result to, tile at, const scalar *sum)
{
#if EPILOGUE && SHIFTED /* one way is enough: less code */
    store_shifted(to, at, sum);
#elif STAGED && OUTPUT_BYTES == 4
    store_staged(to, at, sum);
#elif ROWS_OF_A
    store_rows(to, at, sum);
#else
#if STAGED
    if (columns_begin_at(to, 16) && is_only_written(to, at))
        store_lines<true>(to, at, sum);
#else
    if (to.aligned && is_only_written(to, at))
        store_sums<true>(to, at, sum);
#endif
#if SHIFTED
    else if (!to.aligned && to.beta == 0 && is_of_triangle(to.lower, at))
        store_shifted(to, at, sum);
#endif
    else
        store_sums<false>(to, at, sum);
#endif
}

#if OUTPUT != OUTPUT_RESIDUES
HELPER void store_tile(result to, tile at, const accumulator *sum)
{
#if EPILOGUE
    scalar done[SUMS_OF_THREAD];
    finish_tile(done, to, at, sum);
    to.alpha = 1;
    to.beta = 0;
    store_results(to, at, done);
#else
    store_results(to, at, sum);
#endif
}
#endif
