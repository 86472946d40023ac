/* What every rung shares: the arguments, the place of a thread block, and how C is written.
 * A dialect (OpenCL C or CUDA C++, stencil/prelude/dialect_*.h) comes before it, and a rung after.
 *
 *     C <- alpha A B + beta C        A m x k, B k x n, C m x n, single precision
 *
 * All matrices lie row by row: element (i, j) of C is c[i * ldc + j], and likewise for A and B.
 *
 *                          n
 *                    +-----------+
 *                  k |     B     |        a thread block computes a block of C,
 *                    |     #     |        BLOCK_M x BLOCK_N elements, from BLOCK_M
 *            k       +-----------+        rows of A and BLOCK_N columns of B
 *        +-------+   +-----------+
 *        |       |   |           |
 *      m |   A###|   |     #     |  C
 *        |       |   |           |
 *        +-------+   +-----------+
 *
 * Macros given with the text: a rung's constants in capitals (BLOCK_M and so on) and THREADS, the
 * threads of a block.
 */

/* Tilewright hands matrices over as BLAS does, column by column.  Read row by row, such a matrix
 * is its transpose, and C = A B is C^T = B^T A^T: the first matrix of the list is our B, the second
 * our A, and m and n change places.  The scalars' imaginary parts are for complex kernels. */
#define GEMM_ARGUMENTS                                                                   \
    isize n, isize m, isize k, float alpha, float imaginary_alpha,                       \
        const GLOBAL float *RESTRICT b, isize offset_b, isize ldb,                       \
        const GLOBAL float *RESTRICT a, isize offset_a, isize lda,                       \
        float beta, float imaginary_beta,                                                \
        GLOBAL float *RESTRICT c, isize offset_c, isize ldc

/* A kernel's first line.  An empty sum is zero whatever alpha is, infinite ones too. */
#define GEMM_BEGIN                                                                       \
    a += offset_a;                                                                       \
    b += offset_b;                                                                       \
    c += offset_c;                                                                       \
    if (k == 0)                                                                          \
        alpha = 0.0f;

/* How many blocks of a kernel a multiprocessor should hold: CUDA's compiler then leaves registers
 * enough for them.  OpenCL has no word for it. */
#ifdef __CUDACC__
#define RESIDENT_BLOCKS(count) __launch_bounds__(THREADS, count)
#else
#define RESIDENT_BLOCKS(count) THREADS_PER_BLOCK(THREADS)
#endif

#include "kernels/place.h"

HELPER void place_of_block(isize m, isize n, PRIVATE isize *row, PRIVATE isize *column)
{
    place_of(BLOCK_ID, m, n, row, column);
}

/* How much of `most` is left: sizes of blocks at the matrix's edge. */
HELPER int least(isize left, int most) { return left < most ? (int)left : most; }

/* Write one element of C.  With beta = 0 it may hold anything before, NaN too, and is not read. */
HELPER void put(GLOBAL float *at, float alpha, float sum, float beta)
{
    *at = beta == 0.0f ? alpha * sum : alpha * sum + beta * *at;
}
