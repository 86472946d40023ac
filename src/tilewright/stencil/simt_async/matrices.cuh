/* What a launch is given.  A part of kernel.cuh. */

/* With TMA also a tensor map of each operand. */
#if TMA
#define MAP_ARGUMENTS , const GRID_CONSTANT tensor_map map_a, const GRID_CONSTANT tensor_map map_b
#define MAPS , &map_a, &map_b
#else
#define MAP_ARGUMENTS
#define MAPS
#endif

/* Where blocks go through all products of a batch, also from one's matrices to the next one's. */
#if BATCHED == 2
#define STEPS_OF_BATCH , step_a, step_b, step_c, batch
#else
#define STEPS_OF_BATCH
#endif

/* op(A) m x k, op(B) k x n, C m x n. */
struct matrices {
    isize m, n, k;
    const elem *a;
    isize offset_a, lda;
    const elem *b;
    isize offset_b, ldb;
    elem *c;
    isize offset_c, ldc;
    elem alpha, beta;
#if TMA
    const tensor_map *map_a, *map_b;
#endif
#if BATCHED == 2
    isize step_a, step_b, step_c;
    int batch;
#endif
};
