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

/* A column of W, by substitution. */
HELPER void invert_column(elem *inverse, const elem *rows, int first, int column)
{
    elem w[SLAB];
    UNROLL for (int i = 0; i < SLAB; ++i) w[i] = i == column ? elem_one() : elem_zero();
    UNROLL for (int k = 0; k < SLAB; ++k) {
        if (!UNIT)
            w[k] = elem_over(w[k], rows[k * PITCH + first + k]);
        UNROLL for (int i = k + 1; i < SLAB; ++i)
            w[i] = elem_madd(w[i], elem_minus(rows[i * PITCH + first + k]), w[k]);
        inverse[(first + k) * PITCH + first + column] = w[k];
    }
}

/* `rows` begin at a multiple of 16 bytes.  `product`: SLAB x PITCH elements that are free. */
#if TENSOR
HELPER void grow_inverse(elem *inverse, const elem *rows, elem *product, int first)
{
    const int lane = THREAD_ID % WARP, g = lane / 4, t = lane % 4, warp = THREAD_ID / WARP;
    const int last = THREADS / WARP - 1;
    if (warp == last && lane < SLAB)
        invert_column(inverse, rows, first, lane);
    /* 8 columns by a warp; V is lower: they begin on the diagonal. */
    for (int n = 8 * warp; warp < last && n < first; n += 8 * last) {
        double sum[4] = {0, 0, 0, 0};
        _Pragma("unroll 4") for (int k = n; k < first; k += 4) {
            const double l[2] = {rows[g * PITCH + k + t], rows[(g + 8) * PITCH + k + t]};
            multiply_by_warp(sum, l, inverse[(k + t) * PITCH + n + g]);
        }
        UNROLL for (int i = 0; i < 4; ++i)
            product[(g + i / 2 * 8) * PITCH + n + 2 * t + i % 2] = sum[i];
    }
    BARRIER();
    elem *const to = inverse + first * PITCH;
    for (int n = 8 * warp; n < first; n += 8 * (last + 1)) {
        double sum[4] = {0, 0, 0, 0};
        UNROLL for (int k = 0; k < SLAB; k += 4) {
            const double w[2] = {to[g * PITCH + first + k + t], to[(g + 8) * PITCH + first + k + t]};
            multiply_by_warp(sum, w, -product[(k + t) * PITCH + n + g]);
        }
        UNROLL for (int i = 0; i < 4; ++i)
            to[(g + i / 2 * 8) * PITCH + n + 2 * t + i % 2] = sum[i];
    }
}
#else
/* Of the product with V, each thread computes so many rows of one column. */
#define GROUPS (THREADS / WIDTH)
#define TOGETHER (SLAB / GROUPS)

HELPER void grow_inverse(elem *inverse, const elem *rows, elem *product, int first)
{
    const int column = THREAD_ID % WIDTH, group = THREAD_ID / WIDTH;
    elem sum[TOGETHER];
    UNROLL for (int i = 0; i < TOGETHER; ++i) sum[i] = elem_zero();
    if (column < first) {
        /* V is lower: its column begins on the diagonal, for a warp on its first one's. */
        _Pragma("unroll 2") for (int k = column / WARP * WARP; k < first; k += CHUNK) {
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
        invert_column(inverse, rows, first, column - first);
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
#endif
