/* Complex operands as real ones, so that a real product gives the complex one.
 *
 * Memory of a complex matrix is that of a real one with twice the rows.  With
 *
 *     A' = | re -im |  for each element of op(A): 2m x 2k      B' = | re |  of op(B): 2k x n
 *          | im  re |                                               | im |
 *
 * the product A' B' is 2m x n and lies in memory as op(A) op(B) does: four real products, as in
 * the plain formula.  B' is B's own memory where it is not transposed.
 *
 * One thread copies one element.  Macros: TRANSPOSED, NEGATED_IM (the operand is conjugated),
 * WIDE (1: A', else B'), NEGATED_SECOND (op(B) conjugates: A' takes its place).
 */
#define THREADS 256

KERNEL THREADS_PER_BLOCK(THREADS) void expand(isize rows, isize columns,
                                              const GLOBAL float *RESTRICT x, isize offset,
                                              isize ld, GLOBAL float *RESTRICT made,
                                              isize ld_made)
{
    const isize at = (isize)BLOCK_ID * THREADS + THREAD_ID;
    if (at >= rows * columns)
        return;
    const isize i = at % rows, j = at / rows;
    const GLOBAL float *const from = x + 2 * (offset + (TRANSPOSED ? j + i * ld : i + j * ld));
    const float re = from[0], im = NEGATED_IM ? -from[1] : from[1];
    GLOBAL float *const to = made + 2 * i + (WIDE ? 2 * j : j) * ld_made;
    to[0] = re;
    to[1] = im;
    if (WIDE) {
        to[ld_made] = NEGATED_SECOND ? im : -im;
        to[ld_made + 1] = NEGATED_SECOND ? -re : re;
    }
}
