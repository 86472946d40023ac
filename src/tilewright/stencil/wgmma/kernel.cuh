/* GEMM on the tensor cores of Hopper (sm_90a), from operands in one or more parts.
 *
 *     C <- alpha 2^(ea[i] + eb[j]) sum of op(A_p) op(B_q) over PRODUCTS  +  beta C
 *
 * op(A_p) m x k, op(B_q) k x n, C m x n, all column-major.  An operand's parts are matrices
 * of one shape and order, one behind the other: the high and low halves of split numbers,
 * or the operand itself where PARTS is 1.  Elements are FP16, BF16, TF32 (in floats), FP8
 * or signed 8-bit integers; sums are FP32, of the integers 32-bit integers.
 *
 * A thread block holds BLOCK_M x BLOCK_N elements of C and walks along k by tiles of
 * BLOCK_K.  One warpgroup brings them (one thread of it: the copy engine does the work),
 * CONSUMERS others multiply.
 *
 *     producer      | t = 0 | t = 1 | t = 2 | ...   waits for `empty`, fills a stage
 *     shared memory | stage 0 | stage 1 | ... | stage STAGES - 1 |       a ring
 *     consumers         | t = 0 | t = 1 | ...       wait for `full`, multiply, then `empty`
 *
 *     stage:  | A part 0 | A part 1 ... | B part 0 | B part 1 ... |
 *
 * The tensor core gives a thread pairs of neighbours in a row of its result.  C's columns
 * are what is contiguous here, so it computes C transposed: its rows, 64 for an instruction,
 * run along n; its columns, INSTRUCTION_M for an instruction, along m.
 *
 *            m: BLOCK_M -->
 *          +---------------+---------------+
 *       n  | INSTRUCTION_M |               |  64 of n   consumer 0, its row 0
 *       :  +---------------+---------------+
 *       v  |               |               |  64 of n   consumer 0, its row 1
 *          +---------------+---------------+
 *          |               |               |            consumer 1 ...
 *
 * A tile of an operand lies in shared memory as the copy engine leaves it and the tensor
 * core wants it, its 16-byte pieces exchanged within rows so that eight rows meet all banks:
 *
 *     memory along k: rows of m (or n), BLOCK_K elements = ROW_BYTES each
 *     memory along m (or n): squares of 128 bytes of elements by BLOCK_K rows of k
 *
 * The tensor core reads the latter of 16-bit types alone.  Of 32-bit ones it takes rows from
 * registers, which lanes fill from shared memory in either order (rows.cuh).  Where A is what lies
 * along m, rows run along m and columns along n: m and n change places in the drawing, and rows
 * pass through shared memory, or are turned in registers where C's columns are aligned (store.cuh).
 *
 * Whatever lies outside a matrix arrives as zeros: neither m, n nor k need be multiples of
 * anything.  With TMA base and leading dimension of A and B are multiples of 16 bytes.
 *
 * CLUSTER_M x CLUSTER_N blocks form a cluster.  Blocks beside each other along m need the
 * same tile of B, along n the same of A: each brings its share, to all who need it.
 *
 * Blocks are persistent: as many as the launch has go through all tiles of C, and while
 * consumers write one, the producer already brings the next one's operands.  With PINGPONG each
 * consumer has tiles of its own, so that one multiplies while another writes:
 *
 *     consumer 0   | multiply tile 0 | write 0 |        | multiply tile 2 | write 2 |
 *     consumer 1                     | multiply tile 1 | write 1 |        | multiply tile 3 ...
 *
 * Each tells the next when it has met all its operands: before, the barriers of the stages
 * could not tell whether they are full of this tile's or of one's before.
 *
 * Of a batch they go through the tiles of all products (tiles.cuh).
 *
 * Without TMA all threads of the producer bring operands, whose columns may begin anywhere
 * (by_threads.cuh; cp_async.cuh, of 32 bits).
 *
 * With CLUSTER_K blocks of a cluster have slices of k of one tile, and add them up in shared memory
 * (cluster_k.cuh); they bring no operands for each other then, and go after that tile.
 *
 * With TRIANGLE they go through the tiles of one triangle of C (triangle.cuh).
 *
 * With PARALLEL_SPLIT_K blocks have slices of k, which a second kernel adds up
 * (parallel_split_k.cuh); no clusters then, and no PINGPONG.
 *
 * With OUTPUT_RESIDUES a batch's products are of one matrix product's residues: each is stored modulo
 * a number of its own (residues.cuh), and the word that ROUTED looks at says how many are wanted.
 *
 * The tensor core's sums are truncated, not rounded.  With PROMOTE_K they are moved every
 * PROMOTE_K steps of k into sums that ordinary additions round.
 *
 * Macros given with the source: the parameters of parameters.py in capitals; ELEMENT, OUTPUT,
 * TRANS_A, TRANS_B, PARTS, PRODUCTS, PRODUCT_COUNT, SCALED and ROUTED of variant.py;
 * CONSUMER_REGISTERS and PRODUCER_REGISTERS of resources.py.  The dialect comes first.
 */

#include "wgmma/parts.cuh"

#if TMA
#define ARGUMENTS                                                                              \
    isize m, isize n, isize k, scalar alpha, const GRID_CONSTANT tensor_map a,                 \
        const GRID_CONSTANT tensor_map b, scalar beta, output *c, isize ldc,                   \
        const int *exponents_a, const int *exponents_b, const int *run_if, int run_value       \
        EPILOGUE_ARGUMENTS TRIANGLE_ARGUMENT BATCH_ARGUMENTS WORKSPACE_ARGUMENT
#define ELEMENTS_OF_ARGUMENTS
#else
#define ARGUMENTS                                                                              \
    isize m, isize n, isize k, scalar alpha, scalar alpha_im, const operand_bits *first_a,     \
        isize offset_a, isize lda, const operand_bits *first_b, isize offset_b, isize ldb,     \
        scalar beta, scalar beta_im, output *c, isize offset_c, isize ldc                      \
        BATCH_ARGUMENTS WORKSPACE_ARGUMENT
#define ELEMENTS_OF_ARGUMENTS                                                                  \
    const operand a = {first_a + offset_a, lda, m, k}, b = {first_b + offset_b, ldb, n, k};    \
    const int *const exponents_a = nullptr, *const exponents_b = nullptr;                      \
    const int *const run_if = nullptr, run_value = 0;                                          \
    c += offset_c;
#endif

KERNEL CLUSTER __launch_bounds__(THREADS, MIN_BLOCKS) void gemm(ARGUMENTS)
{
    ELEMENTS_OF_ARGUMENTS
    const unsigned int rank = sharing_rank();
    const shared_at arena = shared_memory();
    if (THREAD_ID == 0) {
#if TMA
        expect_map(&a);
        expect_map(&b);
#endif
        begin_barriers(arena);
    }
    cluster_barrier();
    WAIT_FOR_PREVIOUS();
    const int run = ROUTED ? *run_if : run_value;
    /* Another launch is the one for these numbers. */
    if (!IS_WANTED(run, run_value))
        return;

    /* alpha = 0 reads no operand; sums stay zero. */
    const unsigned int steps = alpha == 0 ? 0 : (unsigned int)((k + BLOCK_K - 1) / BLOCK_K);
    const tiles all = tiles_of(m, n);
    ring at = {0, 0};
    if (THREAD_ID / GROUP == CONSUMERS) {
        give_registers();
        const int bytes = bytes_of_stage(m, n);
#if PARALLEL_SPLIT_K
        const slice mine = slice_of(steps, BLOCK_ID / all.count, GRID_BLOCKS / all.count);
        if (THREAD_ID % GROUP < PRODUCERS)
            bring_tile(&a, &b, 0, 0, arena, &at, tile_at(m, n, BLOCK_ID % all.count, 0), mine.first,
                       mine.count, bytes);
#else
        if (THREAD_ID % GROUP < PRODUCERS)
            for (way on = way_of(all, 0, 1); is_there(on, all, PRODUCTS_OF_BLOCK);
                 go_on(&on, all, 1))
                bring_tile(&a, &b, MATRIX_A(on.product), MATRIX_B(on.product), arena, &at,
                           tile_at(m, n, on.tile, rank, IS_LOWER), FIRST_STEP(steps),
                           STEPS_OF_BLOCK(steps), bytes);
#if CLUSTER_K > 1
        cluster_barrier(); /* that of `add_up_cluster` */
#endif
#endif
    } else {
        take_registers();
        c = FIRST_C(c);
        const bool aligned = (ADDRESS(c) | (unsigned long long)ldc * OUTPUT_BYTES) % 8 == 0;
        const result to = {c, ldc, m, n, alpha, beta, exponents_a, exponents_b, aligned,
                           EPILOGUE_OF_ARGUMENTS, IS_LOWER};
#if PARALLEL_SPLIT_K
        const unsigned int slices = GRID_BLOCKS / all.count;
        const tile mine = tile_at(m, n, BLOCK_ID % all.count, 0);
        accumulator sum[SUMS_OF_THREAD];
        multiply_tile(sum, arena, &at, 0, slice_of(steps, BLOCK_ID / all.count, slices).count);
        LET_NEXT_BEGIN();
        if (slices == 1)
            store_tile(to, mine, sum);
        else
            leave_sums(m, n, mine, sum, workspace);
#else
        const unsigned int turn = PINGPONG ? of_whole_warp(THREAD_ID / GROUP) : 0;
        const unsigned int turns = PINGPONG ? CONSUMERS : 1;
        unsigned int round = turn == 0; /* nobody comes before the first */
        skip(&at, turn * steps);
        for (way on = way_of(all, turn, turns); is_there(on, all, PRODUCTS_OF_BLOCK);
             go_on(&on, all, turns)) {
            accumulator sum[SUMS_OF_THREAD];
            if (PINGPONG)
                wait_for(turn_of(arena, turn), round);
            multiply_tile(sum, arena, &at, rank, STEPS_OF_BLOCK(steps));
            if (PINGPONG && THREAD_ID % 32 == 0)
                arrive(turn_of(arena, (turn + 1) % turns), rank);
            round ^= 1;
            skip(&at, (turns - 1) * steps);
#if CLUSTER_K > 1
            if (!add_up_cluster(arena, sum))
                break;
#endif
            store_tile(C_OF(to, on.product), tile_at(m, n, on.tile, rank, IS_LOWER), sum);
        }
#endif
    }
    if (CLUSTER_BLOCKS > 1)
        cluster_barrier(); /* nobody leaves while others copy to it or report to it */
}

#if PARALLEL_SPLIT_K
KERNEL __launch_bounds__(SECOND_THREADS) void add_parts_of_slices(ARGUMENTS)
{
    ELEMENTS_OF_ARGUMENTS
    WAIT_FOR_PREVIOUS();
    if (ROUTED && *run_if != run_value)
        return;
    const result to = {c, ldc, m, n, alpha, beta, exponents_a, exponents_b, false,
                       EPILOGUE_OF_ARGUMENTS};
    add_slices(to, workspace);
}
#endif
