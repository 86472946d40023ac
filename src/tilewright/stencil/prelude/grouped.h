/* Groups: products of sizes of their own in one launch.  Blocks in z have a problem each; in x there
 * are as many as the largest has tiles, and those beyond their problem's go.  It stands in the place
 * of run_if.h, whose names these are, for CUDA alone: a table that is an argument needs no memory.
 *
 * Persistent blocks, which look for the problem of each tile, took up to twice as long for small
 * products, and 5 to 17 % longer for sums of unequal length, which they take in a fixed order (H200).
 */
#ifdef __CUDACC__
#define WHOLE_ARGUMENT __grid_constant__
#else
#define WHOLE_ARGUMENT
#endif
/* `Table` of stencil/table.py: rows of 16 bytes. */
struct problem {
    const elem *a;
    int m, n;
    const elem *b;
    int k, tiles;
    elem *c;
    isize ldc;
    isize lda, ldb;
};
struct group {
    problem of[PROBLEMS];
};
#define RUN_IF_ARGUMENT , const WHOLE_ARGUMENT group problems
#define RETURN_UNLESS_WANTED                                                              \
    const problem *const mine = &problems.of[blockIdx.z];                                 \
    if (BLOCK_ID >= (unsigned int)mine->tiles)                                            \
        return;                                                                           \
    m = mine->m, n = mine->n, k = mine->k;                                                \
    a_first = mine->a, lda = mine->lda;                                                   \
    b_first = mine->b, ldb = mine->ldb;                                                   \
    c_first = mine->c, ldc = mine->ldc;                                                   \
    offset_a = offset_b = offset_c = 0;
