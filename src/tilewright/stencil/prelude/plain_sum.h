/* The plain sum of one element of C, straight from memory: slow, and rare.  Sums that need care
 * (double_double.h) are computed anew so where they are not finite.  `a` and `b` are the
 * element's row of op(A) and its column of op(B). */
HELPER elem plain_sum(const GLOBAL elem *a, isize lda, const GLOBAL elem *b, isize ldb, isize k)
{
    elem sum = elem_zero();
    ROLLED for (isize l = 0; l < k; ++l) {
        const elem x = a[l * (K_FAST_A ? 1 : lda)], y = b[l * (K_FAST_B ? 1 : ldb)];
        sum = elem_plain_madd(sum, CONJ_A ? elem_conj(x) : x, CONJ_B ? elem_conj(y) : y);
    }
    return sum;
}
