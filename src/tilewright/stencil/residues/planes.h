/* Bytes of both operands: matrices ("planes") with a side's k contiguous.
 *
 *     plane z of A at  a + z stride_a:  | side 0: ld bytes | side 1 | ...       the same of B
 *
 * `ld` is k rounded up to 16.
 */
#include "residues/tiles.h"

#define PLANES_OF_BOTH                                                                     \
    GLOBAL unsigned char *RESTRICT planes_a, isize stride_a,                               \
        GLOBAL unsigned char *RESTRICT planes_b, isize stride_b, isize ld_planes

HELPER unsigned int four_bytes(int a, int b, int c, int d)
{
    return ((unsigned int)a & 255) | ((unsigned int)b & 255) << 8 | ((unsigned int)c & 255) << 16 |
           (unsigned int)d << 24;
}
