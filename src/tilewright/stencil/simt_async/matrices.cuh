/* What a launch is given.  A part of kernel.cuh. */

/* With TMA also a tensor map of each operand. */
#if TMA
#define MAP_ARGUMENTS , const GRID_CONSTANT tensor_map map_a, const GRID_CONSTANT tensor_map map_b
#define MAPS , &map_a, &map_b
#else
#define MAP_ARGUMENTS
#define MAPS
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
};
