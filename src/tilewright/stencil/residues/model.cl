/* Models of what tensor cores compute between the passes, for devices that have none: slow.
 *
 * A thread has one element: of a product of residues modulo a number, or of bound.cl's bytes.
 */
#include "residues/tiles.h"

/* Column j's residues of plane z: products of k bytes, modulo the table's number, nearest to zero.  With
 * `exchanged` B's planes 2 z and 2 z + 1 change places. */
KERNEL THREADS_PER_BLOCK(THREADS) void multiply(isize m, isize n, isize k,
                                                const GLOBAL unsigned char *RESTRICT a, isize stride_a,
                                                const GLOBAL unsigned char *RESTRICT b, isize stride_b,
                                                int exchanged, isize ld, GLOBAL unsigned char *RESTRICT made,
                                                isize stride, isize ld_made,
                                                const GLOBAL int *RESTRICT decision)
{
    const isize at = (isize)BLOCK_ID * THREADS + THREAD_ID;
    if (at >= m * n)
        return;
    const isize i = at % m, j = at / m;
    for (int z = 0; z < decision[PLANES]; ++z) {
        const GLOBAL unsigned char *const x = a + z * stride_a + i * ld,
                                 *const y = b + (z ^ exchanged) * stride_b + j * ld;
        const int p = decision[TABLE_AT + 2 * z];
        int sum = 0;
        for (isize l = 0; l < k; ++l) sum += (int)(signed char)x[l] * (int)(signed char)y[l];
        const int left = (sum % p + p) % p;
        made[z * stride + i + j * ld_made] = (unsigned char)(2 * left >= p ? left - p : left);
    }
}

HELPER float of_e5m2(unsigned char bits)
{
    const int e = bits >> 2, rest = bits & 3;
    return e ? (float)((4 + rest) * power_of_two(e - 17)) : (float)(rest * power_of_two(-16));
}

/* The sum in BF16, cut. */
KERNEL THREADS_PER_BLOCK(THREADS) void multiply_bound(isize m, isize n, isize k,
                                                      const GLOBAL unsigned char *RESTRICT a,
                                                      isize offset_a,
                                                      const GLOBAL unsigned char *RESTRICT b,
                                                      isize offset_b, isize ld,
                                                      GLOBAL unsigned short *RESTRICT made, isize ld_made)
{
    const isize at = (isize)BLOCK_ID * THREADS + THREAD_ID;
    if (at >= m * n)
        return;
    const isize i = at % m, j = at / m;
    union { float number; unsigned int bits; } sum;
    sum.number = 0;
    for (isize l = 0; l < k; ++l) sum.number += of_e5m2(a[offset_a + i * ld + l]) * of_e5m2(b[offset_b + j * ld + l]);
    made[i + j * ld_made] = (unsigned short)(sum.bits >> 16);
}
