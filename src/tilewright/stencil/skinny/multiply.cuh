/* The loop along k: shares of X in registers times a slab of Y in shared memory.  A part of
 * kernel.cuh. */

/* Where an element of Y lies in the slab. */
HELPER int slab_at(int l, int w) { return K_FAST_X ? w * PITCH + l : l * SHORT + w; }

/* Elements of Y that a thread reads before it writes any. */
#define FILLED 4

/* Row and column in the slab of the element with a number: neighbours read what lies side by side
 * in memory, rows of a warp's length where that is along k. */
HELPER int slab_row(int e) { return K_FAST_Y ? e / (32 * SHORT) * 32 + e % 32 : e / SHORT; }

HELPER int slab_column(int e) { return K_FAST_Y ? e / 32 % SHORT : e % SHORT; }

/* Fill the slab from step `from` of k on, with zeros beyond `to` as far as whole steps go, and
 * beyond the last column. */
HELPER void fill_slab(operand *slab, product p, place at, isize from, isize to)
{
    const operand *const y = p.y + (K_FAST_Y ? from + at.column * p.ldy : at.column + from * p.ldy);
    const int left = least(to - from, SLAB_K), whole = (left + BLOCK_K - 1) / BLOCK_K * BLOCK_K;
    const int all = (whole + 31) / 32 * 32 * SHORT;
    ROLLED for (int first = THREAD_ID; first < all; first += FILLED * THREADS) {
        operand found[FILLED];
        UNROLL for (int f = 0; f < FILLED; ++f) {
            const int e = first + f * THREADS, l = slab_row(e), w = slab_column(e);
            found[f] = operand_zero();
            if (l < left && w < at.columns)
                found[f] = load_element(y + (K_FAST_Y ? l + w * p.ldy : w + l * p.ldy));
        }
        UNROLL for (int f = 0; f < FILLED; ++f) {
            const int e = first + f * THREADS;
            if (e < all)
                slab[slab_at(slab_row(e), slab_column(e))] =
                    CONJ_Y ? operand_conj(found[f]) : found[f];
        }
    }
}

/* Read N elements side by side in shared memory, 16 bytes at once where N and alignment allow. */
template <int N> HELPER void read_shared(elem *to, const operand *from)
{
    if (N % CHUNK == 0) {
        UNROLL for (int i = 0; i < N / CHUNK; ++i) {
            const chunk v = *(const chunk *)(from + i * CHUNK);
            UNROLL for (int e = 0; e < CHUNK; ++e) to[i * CHUNK + e] = element_of(v, e);
        }
    } else {
        UNROLL for (int i = 0; i < N; ++i) to[i] = widened(from[i]);
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
                    y[v] = widened(slab[slab_at(step_from<WIDE>(u, v), w)]);
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
template <bool WIDE> HELPER void leave_sums(const elem *sum, elem *parts);

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
