/* A model of the tensor core: the product of parts, rounded as it rounds.
 *
 *     C <- alpha 2^(ea[i] + eb[j]) sum over (p, q) of op(A_p) op(B_q) + beta C
 *
 * A tensor core multiplies without error and adds INSTRUCTION_K products at once to a sum in
 * FP32.  What it adds is first brought to the largest exponent among them, and what lies
 * EXTRA_BITS below FP32's last bit is cut off; so is what does not fit when the sum becomes
 * FP32 again (Fasi, Higham, Mikaitis & Pranesh 2021; Hopper: two extra bits):
 *
 *     old sum    1xxxxxxxxxxxxxxxxxxxxxxx|ee
 *     product           1xxxxxxxxxxxxxxxx|xx|xxxxx      the last five are lost
 *     product     1xxxxxxxxxxxxxxxxxxxxxx|
 *
 * Every PROMOTE_K steps along k the sum goes, rounded to nearest, into a second one, and begins
 * again at zero, or with COMPENSATED at what this rounding lost.  Within these steps the small products come first, so that few instructions
 * cut at the size of the large ones:
 *
 *     A_1 B_0  k 0-15, 16-31, ... | A_0 B_1 ... | A_0 B_0 ... | promote
 *
 * One thread computes one element of C, straight from memory: this kernel is for judging
 * accuracy and for devices without tensor cores, not for speed.
 *
 *     parts of A:  | part 0: ld_a x columns | part 1 | ...     part p begins p stride_a later
 *
 * Of C is written all (`triangle` 0), what lies on and below the diagonal (1), or on and above it (-1).
 *
 * Macros: PART, PRODUCTS (four bits a product, the first lowest: 4 p + q), PRODUCT_COUNT,
 * TRANS_A, TRANS_B, INSTRUCTION_K, EXTRA_BITS, PROMOTE_K, COMPENSATED, RESULT (a number of
 * numbers.h, or 0 for FP32), BATCHED.
 */
#include "split/numbers.h"
#include "split/result.h"

#define THREADS 64

/* With BATCHED blocks in z have a product each, so far behind those of the product before. */
#ifdef BATCHED
#ifdef __OPENCL_VERSION__
#define PRODUCT ((isize)get_group_id(2))
#else
#define PRODUCT ((isize)blockIdx.z)
#endif
#define STEPS_OF_PRODUCTS \
    , isize next_a, isize next_b, isize next_c, isize next_exponents, isize next_run_if
#define GO_TO_PRODUCT                       \
    offset_a += PRODUCT * next_a;           \
    offset_b += PRODUCT * next_b;           \
    offset_c += PRODUCT * next_c;           \
    exponents += PRODUCT * next_exponents;  \
    run_if += PRODUCT * next_run_if;
#else
#define STEPS_OF_PRODUCTS
#define GO_TO_PRODUCT
#endif

/* The sum of INSTRUCTION_K products and an old sum. */
HELPER float instruction(float old, const PRIVATE float *product)
{
    int top = -1000;
    if (old != 0)
        top = exponent_of(old);
    for (int l = 0; l < INSTRUCTION_K; ++l)
        if (product[l] != 0 && exponent_of(product[l]) > top)
            top = exponent_of(product[l]);
    if (top == -1000)
        return 0;
    if (top > 127) { /* infinity or NaN among them: no whole numbers, but IEEE's rules */
        for (int l = 0; l < INSTRUCTION_K; ++l) old += product[l];
        return old;
    }
    /* In units of the last bit kept each is a whole number below 2^(24 + EXTRA_BITS). */
    const int unit = top - 23 - EXTRA_BITS;
    isize sum = (isize)times_power(old, -unit);
    for (int l = 0; l < INSTRUCTION_K; ++l) sum += (isize)times_power(product[l], -unit);
    isize size = sum < 0 ? -sum : sum;
    int dropped = 0;
    while (size >> dropped >= 1 << 24) ++dropped;
    size = size >> dropped << dropped;
    return times_power((float)(sum < 0 ? -size : size), unit);
}

/* One element's products of one pair of parts from l0 on. */
HELPER float added(float sum, const GLOBAL part_bits *a, isize step_a, const GLOBAL part_bits *b,
                   isize step_b, isize from, isize to)
{
    for (isize l0 = from; l0 < to; l0 += INSTRUCTION_K) {
        float product[INSTRUCTION_K];
        for (int l = 0; l < INSTRUCTION_K; ++l)
            product[l] = l0 + l < to ? number_of(a[(l0 + l) * step_a]) *
                                           number_of(b[(l0 + l) * step_b])
                                     : 0.0f;
        sum = instruction(sum, product);
    }
    return sum;
}

KERNEL THREADS_PER_BLOCK(THREADS) void model(
    isize m, isize n, isize k, float alpha, const GLOBAL part_bits *RESTRICT a, isize offset_a,
    isize stride_a, isize lda, const GLOBAL part_bits *RESTRICT b, isize offset_b, isize stride_b,
    isize ldb, const GLOBAL int *RESTRICT exponents, isize exponents_a, isize exponents_b, float beta,
    GLOBAL result_bits *RESTRICT c_first, isize offset_c, isize ldc,
    const GLOBAL int *RESTRICT run_if, int wanted, int triangle STEPS_OF_PRODUCTS)
{
    GO_TO_PRODUCT
    if (*run_if != wanted)
        return;
    const isize at = (isize)BLOCK_ID * THREADS + THREAD_ID;
    if (at >= m * n)
        return;
    const isize i = at % m, j = at / m;
    if (triangle * (i - j) < 0)
        return;
    const isize step_a = TRANS_A ? 1 : lda, step_b = TRANS_B ? ldb : 1;
    const GLOBAL part_bits *const row = a + offset_a + i * (TRANS_A ? lda : 1);
    const GLOBAL part_bits *const column = b + offset_b + j * (TRANS_B ? 1 : ldb);
    float sum = 0, lost = 0;
    for (isize from = 0; from < k; from += PROMOTE_K) {
        const isize to = from + PROMOTE_K < k ? from + PROMOTE_K : k;
        float within = lost;
        for (int number = 0; number < PRODUCT_COUNT; ++number) {
            const int parts = (int)((isize)PRODUCTS >> 4 * number & 15);
            within = added(within, row + parts / 4 * stride_a, step_a,
                           column + parts % 4 * stride_b, step_b, from, to);
        }
        const float total = sum + within;
        if (COMPENSATED)
            lost = within - (total - sum);
        sum = total;
    }
    sum += lost;
    store_result(c_first + offset_c + i + j * ldc, sum, alpha, exponents[exponents_a + i] + exponents[exponents_b + j], beta);
}
