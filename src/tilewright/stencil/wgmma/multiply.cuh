/* The loop over k.  A part of kernel.cuh. */

/* Whether roundings of promoted sums are made up for. */
#ifndef COMPENSATED
#define COMPENSATED 0
#endif

/* Steps in k of one instruction: 32 bytes. */
#define STEP_K (32 / ELEMENT_BYTES)

/* A consumer's part of the block: ROWS x COLUMNS results of one instruction, each held by
 * its threads as SUMS numbers. */
#define ROWS (SIDE_OF_ROWS / (64 * SHARERS))
#define COLUMNS (SIDE_OF_COLUMNS / INSTRUCTION_M)
#define PIECES (ROWS * COLUMNS)
#define SUMS_OF_THREAD (PIECES * SUMS)

/* Where pieces of a stage are, as the tensor core is told: `side` is the index along m or n,
 * SIDE of which an operand's tile has. */
template <int K_FAST> HELPER operand_at start_of(shared_at tile)
{
    /* Along k: 8 rows a group.  Else: squares side by side, in groups of 8 steps in k. */
    return K_FAST ? operand_place(tile, 16, 8 * ROW_BYTES, ROW_BYTES)
                  : operand_place(tile, BLOCK_K * 128, 8 * 128, 128);
}

/* How far an instruction's operand lies behind the tile's start, in bytes. */
template <int K_FAST> HELPER int distance(int side, int k)
{
    return K_FAST ? side * ROW_BYTES + k * ELEMENT_BYTES
                  : side / LINE_ELEMENTS * (BLOCK_K * 128) + k * 128;
}

/* Where the parts of the operands in product number i begin, in bytes behind their first ones. */
HELPER int part_of_rows(int i)
{
    const int number = (int)(PRODUCTS >> 4 * i & 15);
    return ROWS_OF_A ? number / 4 * PART_BYTES_A : number % 4 * PART_BYTES_B;
}

HELPER int part_of_columns(int i)
{
    const int number = (int)(PRODUCTS >> 4 * i & 15);
    return ROWS_OF_A ? number % 4 * PART_BYTES_B : number / 4 * PART_BYTES_A;
}

/* A stage as one consumer sees it. */
struct view {
    shared_at own; /* of its rows */
    operand_at rows, columns;
};

HELPER view view_of(shared_at stage)
{
    const int row = PINGPONG ? 0 : THREAD_ID / GROUP * ROWS * 64;
    const shared_at a = stage, b = stage + PARTS * PART_BYTES_A, rows = ROWS_OF_A ? a : b;
    view v;
    v.own = rows + distance<K_FAST_ROWS>(row, 0);
    v.rows = start_of<K_FAST_ROWS>(rows) + (distance<K_FAST_ROWS>(row, 0) >> 4);
    v.columns = start_of<K_FAST_COLUMNS>(ROWS_OF_A ? b : a);
    return v;
}

#if ROWS_IN_REGISTERS
#include "wgmma/rows.cuh"
#endif

/* Start the products of DEPTH steps of k, from `k` of the tile on, for one piece.  Without
 * `go_on` the first of them forgets what the sums were. */
template <int DEPTH> HELPER void start_products(accumulator *sum, view v, int piece, int k, int go_on)
{
    const int row = piece / COLUMNS * 64, column = piece % COLUMNS * INSTRUCTION_M;
#if ROWS_IN_REGISTERS
    words_of_rows words[PRODUCT_COUNT * (DEPTH / STEP_K)];
    UNROLL for (int i = 0; i < PRODUCT_COUNT; ++i)
        UNROLL for (int l = 0; l < DEPTH; l += STEP_K)
            words[(i * DEPTH + l) / STEP_K] =
                read_rows(v.own + part_of_rows(i) + distance<K_FAST_ROWS>(row, k + l));
    begin_multiplies();
#endif
    UNROLL for (int i = 0; i < PRODUCT_COUNT; ++i)
        UNROLL for (int l = 0; l < DEPTH; l += STEP_K) {
            const int at = part_of_columns(i) + distance<K_FAST_COLUMNS>(column, k + l);
#if ROWS_IN_REGISTERS
            start_multiply_words(sum, words[(i * DEPTH + l) / STEP_K].word, v.columns + (at >> 4),
                                 i || l ? 1 : go_on);
#else
            const int own = part_of_rows(i) + distance<K_FAST_ROWS>(row, k + l);
            start_multiply(sum, v.rows + (own >> 4), v.columns + (at >> 4), i || l ? 1 : go_on);
#endif
        }
}

HELPER void start_stage(accumulator *sum, view v, int go_on)
{
#if ROWS_IN_REGISTERS
    /* Those of the stage before are overwritten; other consumers multiply meanwhile. */
    wait_for_multiplies<0>();
#endif
    begin_multiplies();
    UNROLL for (int piece = 0; piece < PIECES; ++piece)
        start_products<BLOCK_K>(sum + piece * SUMS, v, piece, 0, go_on);
    end_multiplies();
}

HELPER void clear(accumulator *sum, int count)
{
    UNROLL for (int i = 0; i < count; ++i) sum[i] = 0;
}

#if PROMOTE_K
/* Move sums out of the tensor core's truncating additions.
 *
 * COMPENSATED: what rounding loses of an addition (Kahan, 1965) is what the next partial sum begins
 * with, so that errors do not grow with k:
 *
 *     sum + part = total + lost        part:  | lost | + products of the next interval
 */
HELPER void promote(accumulator *sum, accumulator *part, int count)
{
    settle(part, count);
#if COMPENSATED
    UNROLL for (int i = 0; i < count; ++i) {
        const accumulator total = sum[i] + part[i];
        part[i] -= total - sum[i];
        sum[i] = total;
    }
#else
    UNROLL for (int i = 0; i < count; ++i) sum[i] += part[i];
#endif
}
#endif

#if PROMOTE_K == 0
/* All steps into one set of sums: a stage is given back when the next one's products have
 * started, so that the tensor core never runs dry. */
HELPER void multiply_tile(accumulator *sum, shared_at arena, ring *at, unsigned int rank,
                          unsigned int steps)
{
    clear(sum, SUMS_OF_THREAD);
    /* Compilers that see zeros before the first of a block's only tile wait for each multiply. */
    if (PARALLEL_SPLIT_K)
        settle(sum, SUMS_OF_THREAD);
    unsigned int last = 0;
    ROLLED for (unsigned int t = 0; t < steps; ++t) {
        wait_for(full_of(arena, at->stage), at->round);
        start_stage(sum, view_of(stage_at(arena, at->stage)), 1);
        if (t > 0) {
            wait_for_multiplies<1>();
            release(arena, last, rank);
        }
        last = at->stage;
        advance(at);
    }
    /* Also where there was no step: compilers do not see that nothing is under way then. */
    wait_for_multiplies<0>();
    if (steps > 0)
        release(arena, last, rank);
    settle(sum, SUMS_OF_THREAD);
}

#elif PROMOTE_K <= BLOCK_K
/* Piece after piece of the stage into PARTIALS sets of sums that alternate: while one is moved,
 * the tensor core works on the next. */
HELPER void multiply_tile(accumulator *sum, shared_at arena, ring *at, unsigned int rank,
                          unsigned int steps)
{
    clear(sum, SUMS_OF_THREAD);
    accumulator part[PARTIALS * SUMS];
#if COMPENSATED /* every piece has a set of its own */
    clear(part, SUMS_OF_THREAD);
#endif
    ROLLED for (unsigned int t = 0; t < steps; ++t) {
        wait_for(full_of(arena, at->stage), at->round);
        const view v = view_of(stage_at(arena, at->stage));
        const int turns = BLOCK_K / PROMOTE_K * PIECES;
        UNROLL for (int turn = 0; turn < turns + PARTIALS - 1; ++turn) {
            if (turn < turns) {
                begin_multiplies();
                start_products<PROMOTE_K>(part + turn % PARTIALS * SUMS, v, turn % PIECES,
                                          turn / PIECES * PROMOTE_K, COMPENSATED);
                end_multiplies();
            }
            const int done = turn - (PARTIALS - 1);
            if (done >= 0) {
                if (turn < turns)
                    wait_for_multiplies<PARTIALS - 1>();
                else
                    wait_for_multiplies<0>();
                promote(sum + done % PIECES * SUMS, part + done % PARTIALS * SUMS, SUMS);
            }
        }
        release(arena, at->stage, rank);
        advance(at);
    }
#if COMPENSATED
    UNROLL for (int i = 0; i < SUMS_OF_THREAD; ++i) sum[i] += part[i];
#endif
}

#else
/* Several stages into a set of sums as large as the first. */
HELPER void multiply_tile(accumulator *sum, shared_at arena, ring *at, unsigned int rank,
                          unsigned int steps)
{
    clear(sum, SUMS_OF_THREAD);
    accumulator part[SUMS_OF_THREAD];
    ROLLED for (unsigned int t = 0; t < steps;) {
        unsigned int last = 0;
        const unsigned int left = steps - t;
        const unsigned int run = left < PROMOTE_K / BLOCK_K ? left : PROMOTE_K / BLOCK_K;
        ROLLED for (unsigned int s = 0; s < run; ++s) {
            wait_for(full_of(arena, at->stage), at->round);
            start_stage(part, view_of(stage_at(arena, at->stage)), s > 0);
            if (s > 0) {
                wait_for_multiplies<1>();
                release(arena, last, rank);
            }
            last = at->stage;
            advance(at);
        }
        wait_for_multiplies<0>();
        release(arena, last, rank);
        promote(sum, part, SUMS_OF_THREAD);
        t += run;
    }
}
#endif
