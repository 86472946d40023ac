/* How long a kernel takes on a problem: one linear model, its coefficients data of the tables.
 *
 *     expected ns  =  sum over terms of   cost of the kernel  x  what the launch has to do
 *
 * The same IEEE operations in the same order as in tilewright.portfolio.model, so that both choose
 * alike.  A compiler that contracts a product and a sum to one rounding (FMA) would choose
 * otherwise where times are close: the build says -ffp-contract=off.
 */
#include "choice.h"

#include <math.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

enum {
    LAUNCH, VECTOR_STEPS, SCALAR_STEPS, TILES, LATENCIES, MEMORY, L2, RAGGED_C, PARTS, SPLIT_K,
    WAVES
};

/* No matrix that a device holds has so many elements; the products below stay under 2^63. */
#define MOST_ELEMENTS ((int64_t)1 << 38)

/* What a launch has to do on the busiest multiprocessor. */
typedef struct {
    int64_t stored; /* tiles, or parts of them */
    int64_t added;  /* parts of a shared tile, one after another */
    int64_t waves;  /* tiles that a persistent block takes, one after another */
    int64_t left;   /* parts left in the L2 */
    double along_k; /* steps of k */
} work;

static int is_held(int64_t x, int64_t y)
{
    return x <= MOST_ELEMENTS / tilewright_most(1, y);
}

int tilewright_is_modelled(const tilewright_problem *p)
{
    const int64_t many = tilewright_most(1, p->batch);
    return p->m > 0 && p->n > 0 && p->k >= 0 && is_held(p->m, p->n) && is_held(p->m, p->k) &&
           is_held(p->n, p->k) && is_held(p->m * p->n, many) && is_held(p->m * p->k, many) &&
           is_held(p->n * p->k, many);
}

/* Multiprocessors that clusters reach.  Blocks of a cluster are neighbours on the chip, so that
 * some of its corners stay empty: of 132, clusters of 4 reach 124 and clusters of 8 reach 120. */
static int64_t reached(int64_t multiprocessors, int64_t cluster)
{
    const double share = cluster == 4 ? 124.0 / 132.0 : cluster == 8 ? 120.0 / 132.0 : 1.0;
    /* To the nearest, halves to the even one. */
    return tilewright_most(1, (int64_t)nearbyint((double)multiprocessors * share));
}

static int64_t common_divisor(int64_t x, int64_t y)
{
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

/* The least whole number that is not below 1.5 log2(x), exactly: 4^found >= x^3. */
static int64_t by_halves(int64_t x)
{
    int64_t found = 0;
    x = tilewright_least(x, 1 << 20);
    for (int64_t power = 1; power < x * x * x; power *= 4)
        ++found;
    return found;
}

/* What persistent blocks do. */
static work shared_work(const tilewright_geometry *it, const tilewright_problem *p, int64_t tiles,
                        int64_t steps, int64_t multiprocessors)
{
    const tilewright_division by = tilewright_divide(it, p, tiles, steps, multiprocessors);
    const int64_t whole = tiles - by.shared, waves = whole / by.blocks, over = whole % by.blocks;
    const int64_t mine = waves * tilewright_up(by.blocks, multiprocessors) +
                         tilewright_up(over, multiprocessors);
    int64_t of_shares = 0;
    work made = {0};
    if (by.shared > 0) {
        of_shares = tilewright_up(by.workers, multiprocessors);
        const int64_t common = tilewright_most(1, common_divisor(by.workers, by.shared));
        made.left = by.workers - common * tilewright_up(by.workers, common * steps);
        if (by.workers != by.shared)
            made.added = tilewright_most(1, tilewright_up(steps, tilewright_most(1, by.longest)));
    }
    if (it->tree)
        made.added = by_halves(made.added + 1);
    made.along_k = (double)((mine * steps + of_shares * by.longest) * it->tile_k);
    made.stored = mine + of_shares;
    made.waves = waves + (over > 0 || by.shared > 0);
    return made;
}

/* Whether some operand is copied by single elements where it could be by 16 bytes. */
static int is_scalar(const tilewright_geometry *it, const tilewright_problem *p, int64_t chunk)
{
    const int64_t inner_a = p->trans_a ? p->k : p->m, inner_b = p->trans_b ? p->n : p->k;
    const int ragged_a = inner_a % chunk || p->lda % chunk;
    const int ragged_b = inner_b % chunk || p->ldb % chunk;
    if (it->streamed)
        return (it->streamed == 1 ? p->lda : p->ldb) % chunk != 0;
    return !it->tma && ((ragged_a && (!p->trans_a || it->vector_along_k)) ||
                        (ragged_b && (p->trans_b || it->vector_along_k)));
}

double tilewright_expected(const tilewright_kernel *kernel, const tilewright_problem *p,
                           int64_t multiprocessors)
{
    const tilewright_geometry *const it = &kernel->geometry;
    const int64_t size = p->element_bytes, chunk = tilewright_chunk(p);
    const int64_t area = it->tile_m * it->tile_n, resident = tilewright_most(1, it->resident);
    const int64_t rows = tilewright_tiles(p->m, it->tile_m, it->cluster_m);
    const int64_t columns = tilewright_tiles(p->n, it->tile_n, it->cluster_n);
    const int64_t many = tilewright_most(1, p->batch), tiles = rows * columns * many;
    const int64_t steps = tilewright_up(p->k, it->tile_k);
    const int cut = it->split_k && many == 1; /* batches are of whole tiles */
    const int64_t parts = cut ? tilewright_parts(it, steps, tiles, multiprocessors) : 1;
    /* Data-parallel: whole blocks, one after another. */
    const int64_t blocks = tiles * it->cluster_k * parts;
    const int64_t each = tilewright_up(blocks, reached(multiprocessors, it->cluster_k));
    work on = {.stored = each};
    /* In units of k: a kernel steps through whole tiles of it. */
    on.along_k =
        (double)(each * tilewright_up(steps, parts) * it->tile_k) / (double)it->cluster_k;
    if (it->persistent)
        on = shared_work(it, p, tiles, steps, multiprocessors);
    const int64_t together = tilewright_least(tilewright_most(each, 1), resident);
    const int64_t passed = many * p->k *
                           (tilewright_up(p->n, it->tile_n) * p->m +
                            tilewright_up(p->m, it->tile_m) * p->n);
    /* A streamed operand is read anew for each tile of the short side. */
    const int64_t read = many * (p->m * p->k * (it->streamed == 1 ? columns : 1) +
                                 p->k * p->n * (it->streamed == 2 ? rows : 1));
    const int64_t area_c = many * p->m * p->n;
    const int scalar = is_scalar(it, p, chunk);
    const int reduced = many == 1 && tilewright_reduces(it, parts);
    if (reduced) /* one after another, or by threads that share them */
        on.added = it->streamed ? 1 : parts;
    const double does[TILEWRIGHT_TERMS] = {
        [LAUNCH] = 1.0,
        [VECTOR_STEPS] = scalar ? 0.0 : on.along_k,
        [SCALAR_STEPS] = scalar ? on.along_k : 0.0,
        [TILES] = (double)on.stored,
        [LATENCIES] = on.along_k / (double)it->tile_k / (double)together /
                      (double)tilewright_most(1, it->stages - 1),
        [MEMORY] = (double)(size * (read + area_c)) * 1e-6,
        [L2] = (double)(size * (passed + 2 * on.left * area)) * 1e-6,
        [RAGGED_C] =
            p->ldc % chunk && !it->streamed && !reduced ? (double)area_c * 1e-6 : 0.0,
        [PARTS] = (double)on.added,
        [SPLIT_K] = reduced ? (double)(size * blocks * area) * 1e-6 : 0.0,
        [WAVES] = (double)on.waves,
    };
    double total = kernel->costs[0] * does[0];
    for (int term = 1; term < TILEWRIGHT_TERMS; ++term)
        total = total + kernel->costs[term] * does[term];
    return total;
}
