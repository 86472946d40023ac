/* The inverse of a lower triangle in shared memory, which grows by SLAB rows at a time.
 *
 *     | V       0 |        V          0 |      rows: SLAB rows of the triangle, from column 0
 *     | rows    D |   ->   -W rows V  W |      to their diagonal block D, W its inverse
 *
 * Parts above the diagonal are zero.  UNIT: the diagonal is 1, whatever memory has there.
 *
 * Macros: WIDTH (rows at most), SLAB, THREADS, UNIT.
 */

/* Between rows in shared memory: neighbours begin in other banks. */
#define PITCH (WIDTH + 2 * CHUNK)

/* Of the product with V, each thread computes so many rows of one column. */
#define GROUPS (THREADS / WIDTH)
#define TOGETHER (SLAB / GROUPS)

/* `rows` begin at a multiple of 16 bytes.  `product`: SLAB x PITCH elements that are free. */
HELPER void grow_inverse(elem *inverse, const elem *rows, elem *product, int first)
{
    const int column = THREAD_ID % WIDTH, group = THREAD_ID / WIDTH;
    elem sum[TOGETHER];
    UNROLL for (int i = 0; i < TOGETHER; ++i) sum[i] = elem_zero();
    if (column < first) {
        /* V is lower: its column begins on the diagonal, for a warp on its first one's. */
        ROLLED for (int k = column / WARP * WARP; k < first; k += CHUNK) {
            elem v[CHUNK];
            UNROLL for (int e = 0; e < CHUNK; ++e) v[e] = inverse[(k + e) * PITCH + column];
            UNROLL for (int i = 0; i < TOGETHER; ++i) {
                const chunk row = *(const chunk *)(rows + (group * TOGETHER + i) * PITCH + k);
                UNROLL for (int e = 0; e < CHUNK; ++e) sum[i] = elem_madd(sum[i], row.e[e], v[e]);
            }
        }
        UNROLL for (int i = 0; i < TOGETHER; ++i)
            product[(group * TOGETHER + i) * PITCH + column] = sum[i];
    } else if (group == 0 && column < first + SLAB) {
        elem w[SLAB]; /* a column of W, by substitution */
        UNROLL for (int i = 0; i < SLAB; ++i) w[i] = i == column - first ? elem_one() : elem_zero();
        UNROLL for (int k = 0; k < SLAB; ++k) {
            if (!UNIT)
                w[k] = elem_over(w[k], rows[k * PITCH + first + k]);
            UNROLL for (int i = k + 1; i < SLAB; ++i)
                w[i] = elem_madd(w[i], elem_minus(rows[i * PITCH + first + k]), w[k]);
            inverse[(first + k) * PITCH + column] = w[k];
        }
    }
    BARRIER();
    if (column >= first)
        return;
    elem *const to = inverse + (first + group * TOGETHER) * PITCH;
    UNROLL for (int i = 0; i < TOGETHER; ++i) sum[i] = elem_zero();
    UNROLL for (int k = 0; k < SLAB; k += CHUNK) {
        elem v[CHUNK];
        UNROLL for (int e = 0; e < CHUNK; ++e)
            v[e] = elem_minus(product[(k + e) * PITCH + column]);
        UNROLL for (int i = 0; i < TOGETHER; ++i) {
            const chunk w = *(const chunk *)(to + i * PITCH + first + k);
            UNROLL for (int e = 0; e < CHUNK; ++e) sum[i] = elem_madd(sum[i], w.e[e], v[e]);
        }
    }
    UNROLL for (int i = 0; i < TOGETHER; ++i) to[i * PITCH + column] = sum[i];
}
