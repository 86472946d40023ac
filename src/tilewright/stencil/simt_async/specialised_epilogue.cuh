/* The specialised epilogue: straight code for each case.  A part of store.cuh.
 *
 * `store_chunk` tests for each chunk whether 16 bytes may be stored at once, and whether beta is 0:
 * the code of all cases lies side by side, so that of 170 instructions for a column 40 run, and the
 * next instruction-cache line is known late; code that runs once misses the caches.  With
 * SPECIALISED_EPILOGUE both are tested once, and each case has the code of all columns in a row:
 *
 *     0 | chunk 0: wide, wide + C, single, single + C | chunk 1: wide, wide + C, single, ...
 *     1 | wide: chunk 0, 1, ...    | wide + C: chunk 0, 1, ...    | single: chunk 0, ...
 */

/* Whether a row, or a column, is the block's own: one comparison for both ends. */
HELPER bool is_own(int at, int first, int left)
{
    return (unsigned int)(at - first) < (unsigned int)(left - first);
}

/* Store chunk i of a column of the thread's tile, which begins at `to`.  `wide`: at once; `add`:
 * beta times what C has is added. */
HELPER void store_own(result c, elem *to, const elem *sum, int column, int i, bool wide, bool add)
{
    const int row = i * LANES_M * CHUNK;
    elem v[CHUNK], old[CHUNK];
    bool own[CHUNK];
    UNROLL for (int e = 0; e < CHUNK; ++e)
        own[e] = is_own(column, c.n_first, c.n_left) &&
                 is_own(row + (wide ? 0 : e), c.m_first, c.m_left);
    if (add && wide && own[0]) {
        const chunk there = load_chunk(to + row);
        UNROLL for (int e = 0; e < CHUNK; ++e) old[e] = element_of(there, e);
    }
    UNROLL for (int e = 0; e < CHUNK; ++e) {
        if (add && !wide && own[e])
            old[e] = to[row + e];
#ifdef SUM_NEEDS_CARE
        if (!own[e])
            continue; /* nor has it operands to compute it anew from */
#endif
        v[e] = elem_scale(c.alpha, finished(&c, sum[e], row + e, column));
        if (add)
            v[e] = elem_add(v[e], elem_scale(c.beta, old[e]));
    }
    if (wide && own[0])
        store_global(to + row, chunk_of(v));
    UNROLL for (int e = 0; e < CHUNK; ++e)
        if (!wide && own[e])
            to[row + e] = v[e];
}

HELPER void store_one_way(result c, const elem *sum, int first, int count, bool wide, bool add)
{
    UNROLL for (int j = 0; j < count; ++j) {
        const int column = column_of(first + j);
        isize at = column * c.ld;
        keep(&at); /* one address for a column: compilers make one for each element, from ld */
        UNROLL for (int i = 0; i < TILE_M / CHUNK; ++i)
            store_own(c, c.at + at, sum + j * TILE_M + i * CHUNK, column, i, wide, add);
    }
}

/* With beta = 0 C may hold anything, NaN too. */
HELPER void store_some_way(result c, const elem *sum, int first, int count, shared_at tiles)
{
    const bool wide = CHUNK == 1 || c.wide, add = !elem_is_zero(c.beta);
    if (STAGED && !c.wide)
        store_staged(c, sum, first, count, tiles);
    else if (wide && !add)
        store_one_way(c, sum, first, count, true, false);
    else if (wide)
        store_one_way(c, sum, first, count, true, true);
    else if (!add)
        store_one_way(c, sum, first, count, false, false);
    else
        store_one_way(c, sum, first, count, false, true);
}

/* Store `count` columns of the thread's tile, from `first` on. */
HELPER void store_columns(result c, const elem *sum, int first, int count, shared_at tiles)
{
#if ELEM_BYTES == 2 * REAL_BYTES && !defined(SUM_NEEDS_CARE)
    /* Of a complex alpha elem_scale asks whether it is real: a third answer that all share. */
    if (real_of(c.alpha, 1) == 0) {
        c.alpha = elem_scalar(real_of(c.alpha, 0), 0);
        store_some_way(c, sum, first, count, tiles);
        return;
    }
#endif
    store_some_way(c, sum, first, count, tiles);
}
