/* The loop along k: shares of X in registers times a slab of Y in shared memory.  A part of
 * kernel.cuh. */

/* Read N elements side by side in shared memory, 16 bytes at once where N and alignment allow. */
template <int N> HELPER void read_shared(elem *to, const operand *from)
{
    if (N % CHUNK == 0) {
        UNROLL for (int i = 0; i < N / CHUNK; ++i) {
            const chunk v = *(const chunk *)(from + i * CHUNK);
            UNROLL for (int e = 0; e < CHUNK; ++e) to[i * CHUNK + e] = element_of(v, e);
        }
    } else {
        UNROLL for (int i = 0; i < N; ++i) to[i] = from[i];
    }
}

HELPER elem of_x(elem v) { return CONJ_X ? elem_conj(v) : v; }

/* Chunks along k: each is a part of a row of X, and meets a part of every column of Y. */
template <bool WIDE> HELPER void multiply_along_k(elem *sum, const share *mine, const operand *slab)
{
    UNROLL for (int u = 0; u < HELD_K; ++u)
        UNROLL for (int w = 0; w < SHORT; ++w) {
            elem y[CHUNK];
            if (WIDE)
                read_shared<CHUNK>(y, slab + slab_at(step_from<WIDE>(u, 0), w));
            else
                UNROLL for (int v = 0; v < CHUNK; ++v)
                    y[v] = slab[slab_at(step_from<WIDE>(u, v), w)];
            UNROLL for (int i = 0; i < HELD_ROWS; ++i)
                UNROLL for (int v = 0; v < CHUNK; ++v) {
                    elem *const to = sum + i * SHORT + w;
                    *to = elem_madd(*to, of_x(element_of(mine->e[u][i], v)), y[v]);
                }
        }
}

/* Chunks along the rows: each is a part of a column of X, and meets one row of Y. */
template <bool WIDE>
HELPER void multiply_along_rows(elem *sum, const share *mine, const operand *slab)
{
    UNROLL for (int u = 0; u < HELD_K; ++u) {
        elem y[SHORT];
        read_shared<SHORT>(y, slab + slab_at(step_from<WIDE>(u, 0), 0));
        UNROLL for (int i = 0; i < HELD_ROWS; ++i)
            UNROLL for (int v = 0; v < CHUNK; ++v)
                UNROLL for (int w = 0; w < SHORT; ++w) {
                    elem *const to = sum + (i * CHUNK + v) * SHORT + w;
                    *to = elem_madd(*to, of_x(element_of(mine->e[u][i], v)), y[w]);
                }
    }
}

/* One step: its share of X is on the way before the slab is filled, where that is due. */
template <bool WIDE, bool CHECKED>
HELPER void multiply_step(elem *sum, const operand *x, product p, place at, isize l, range r,
                          int number, operand *slab)
{
    share mine;
    read_share<WIDE, CHECKED>(&mine, x, p.ldx, at.rows - first_row<WIDE>(),
                              least(r.to - l, BLOCK_K) - first_step<WIDE>());
    if (number == 0) {
        BARRIER(); /* all have multiplied with what is overwritten */
        fill_slab(slab, p, at, l, r.to);
        BARRIER();
    }
    const operand *const from = slab + slab_at(number * BLOCK_K + first_step<WIDE>(), 0);
    if (K_FAST_X)
        multiply_along_k<WIDE>(sum, &mine, from);
    else
        multiply_along_rows<WIDE>(sum, &mine, from);
}

/* Leave the thread's sums in shared memory for `add_lanes`. */
template <bool WIDE> HELPER void leave_sums(const elem *sum, elem *parts)
{
    elem *const to = parts + LANE_K * TILE;
    UNROLL for (int i = 0; i < HELD_ROWS; ++i)
        UNROLL for (int v = 0; v < CHUNK_ROWS; ++v)
            UNROLL for (int w = 0; w < SHORT; ++w) {
                const int row = first_row<WIDE>() + row_from<WIDE>(i, v);
                to[part_at(row, w)] = sum[(i * CHUNK_ROWS + v) * SHORT + w];
            }
}

/* All steps of a range; the last may be a part of one. */
template <bool WIDE>
HELPER void multiply_range(elem *sum, product p, place at, range r, elem *shared)
{
    int number = 0; /* of a step, in its slab */
    isize l = r.from;
    const isize row = at.row + first_row<WIDE>(), from = l + first_step<WIDE>();
    operand *const slab = (operand *)shared;
    const operand *x = p.x + (K_FAST_X ? row * p.ldx + from : row + from * p.ldx);
    const isize apart = (isize)BLOCK_K * (K_FAST_X ? 1 : p.ldx);
    ROLLED for (; l + BLOCK_K <= r.to; l += BLOCK_K, x += apart) {
        multiply_step<WIDE, false>(sum, x, p, at, l, r, number, slab);
        number = number + 1 == SLAB_STEPS ? 0 : number + 1;
    }
    if (l < r.to)
        multiply_step<WIDE, true>(sum, x, p, at, l, r, number, slab);
    BARRIER(); /* sums take the slab's place */
    leave_sums<WIDE>(sum, shared);
}
