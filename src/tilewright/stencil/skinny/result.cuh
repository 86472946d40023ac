/* Sums of a block's threads are added up and stored.  A part of kernel.cuh.
 *
 *     shared memory     | part of lane 0 along k, TILE elements | part of lane 1 | ...
 *
 * A part is laid out as C is: neighbours store neighbours.
 */

/* Where an element of D lies in a part. */
HELPER int part_at(int row, int w) { return SHORT_M ? row * SHORT + w : w * ROWS + row; }

HELPER int row_in(int e) { return SHORT_M ? e / SHORT : e % ROWS; }

HELPER int column_in(int e) { return SHORT_M ? e % SHORT : e / ROWS; }

/* Add up parts until one is left.  Part e of the fewer takes the place of the first that it is made
 * of, which nobody else reads. */
template <int PARTS> HELPER void add_parts(elem *parts)
{
    constexpr int FEWER = PARTS > RADIX ? PARTS / RADIX : 1;
    BARRIER();
    ROLLED for (int e = THREAD_ID; e < FEWER * TILE; e += THREADS) {
        elem total = parts[e];
        UNROLL for (int part = 1; part < PARTS / FEWER; ++part)
            total = elem_add(total, parts[e + part * FEWER * TILE]);
        parts[e] = total;
    }
    if constexpr (FEWER > 1)
        add_parts<FEWER>(parts);
}

HELPER void add_lanes(elem *parts)
{
    add_parts<K_PARTS>(parts);
    BARRIER();
}

/* alpha times a sum, and beta times what was there, if that counts. */
HELPER void store(product p, place at, int e, elem total)
{
    const int row = row_in(e), w = column_in(e);
    if (row >= at.rows || w >= at.columns)
        return;
    const isize i = at.row + row, j = at.column + w;
    output *const to = p.c + (SHORT_M ? j + i * p.ldc : i + j * p.ldc);
    const elem v = elem_scale(p.alpha, total);
    *to = rounded(elem_is_zero(p.beta) ? v : elem_add(v, elem_scale(p.beta, widened(*to))));
}

HELPER void store_tile(product p, place at, const elem *tile)
{
    ROLLED for (int e = THREAD_ID; e < TILE; e += THREADS) store(p, at, e, tile[e]);
}
