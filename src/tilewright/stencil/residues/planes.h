/* A pass over both operands that writes bytes: matrices ("planes") with a side's k contiguous.
 *
 *     plane z of A at  a + z stride_a:  | side 0: ld bytes | side 1 | ...       the same of B
 *
 * `ld` is k rounded up to 16.  Whoever includes this defines bytes_of_four: what becomes of four steps
 * of k of a side.
 */
#include "residues/tiles.h"

typedef struct {
    GLOBAL unsigned char *first;
    isize stride;
} planes;

#define PLANES_OF_BOTH                                                                     \
    GLOBAL unsigned char *RESTRICT planes_a, isize stride_a,                               \
        GLOBAL unsigned char *RESTRICT planes_b, isize stride_b, isize ld_planes

/* A block's operand, tile and elements, by names that a kernel's text goes on with. */
#define BLOCK_OF_BOTH(v, space)                                                            \
    const isize steps_of_k = (k + KS - 1) / KS;                                            \
    const isize of_a = (sides_a + SIDES - 1) / SIDES * steps_of_k;                         \
    const int is_b = (isize)BLOCK_ID >= of_a;                                              \
    const isize number = (isize)BLOCK_ID - (is_b ? of_a : 0);                              \
    const matrix of = MATRIX(is_b);                                                        \
    const int along_k = is_b ? K_FAST_B : K_FAST_A;                                        \
    const isize across_of = (of.sides + SIDES - 1) / SIDES;                                \
    const tile t = along_k                                                                 \
                       ? tile_of(of, number / steps_of_k * SIDES, number % steps_of_k * KS) \
                       : tile_of(of, number % across_of * SIDES, number / across_of * KS); \
    if (along_k)                                                                           \
        read_along_k(v, of, t);                                                            \
    else                                                                                   \
        read_across_k(v, space, of, t);                                                    \
    const planes to = {is_b ? planes_b : planes_a, is_b ? stride_b : stride_a};            \
    const int at = THREAD_ID % ACROSS * 4, down = THREAD_ID / ACROSS;

HELPER unsigned int four_bytes(int a, int b, int c, int d)
{
    return ((unsigned int)a & 255) | ((unsigned int)b & 255) << 8 | ((unsigned int)c & 255) << 16 |
           (unsigned int)d << 24;
}
