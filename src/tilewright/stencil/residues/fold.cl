/* Residues of a sum over k: those of one piece of k added to those of the pieces before it.
 *
 *     made[z] <- made[z] + piece[z], nearest to zero modulo the table's number of plane z
 *
 * Planes of `stride` bytes, a multiple of 16, which a thread has of one.
 */
#include "residues/tiles.h"

typedef struct ALIGNED(16) { unsigned int word[4]; } sixteen_bytes;

KERNEL THREADS_PER_BLOCK(THREADS) void fold(GLOBAL unsigned char *RESTRICT made,
                                            const GLOBAL unsigned char *RESTRICT piece, isize stride,
                                            const GLOBAL int *RESTRICT decision)
{
    const isize across = (stride + 16 * THREADS - 1) / (16 * THREADS);
    const int z = (int)((isize)BLOCK_ID / across);
    const isize at = ((isize)BLOCK_ID % across * THREADS + THREAD_ID) * 16;
    if (z >= decision[PLANES] || at >= stride)
        return;
    const int p = decision[TABLE_AT + 2 * z];
    GLOBAL sixteen_bytes *const to = (GLOBAL sixteen_bytes *)(made + z * stride + at);
    const sixteen_bytes more = *(const GLOBAL sixteen_bytes *)(piece + z * stride + at);
    sixteen_bytes v = *to;
    UNROLL for (int w = 0; w < 4; ++w) {
        unsigned int word = 0;
        UNROLL for (int e = 0; e < 32; e += 8) {
            int sum = (int)(signed char)(v.word[w] >> e) + (int)(signed char)(more.word[w] >> e);
            sum = 2 * sum >= p ? sum - p : 2 * sum < -p ? sum + p : sum;
            word |= ((unsigned int)sum & 255) << e;
        }
        v.word[w] = word;
    }
    *to = v;
}
