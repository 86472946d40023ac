/* How a grid follows from a problem, and which launch mode suits it.
 *
 *         n ->
 *      +------+------+------+     a thread block computes tile_m x tile_n of C, tile_k steps of k
 *    m | tile | tile | tile |     at a time; a cluster of cluster_m x cluster_n such tiles is
 *    | +------+------+------+     launched whole, and cluster_k blocks may share one tile
 *    v | tile | tile | tile |
 *      +------+------+------+
 *
 * A data-parallel launch has a block for each tile.  A persistent one has as many blocks as the
 * device holds, which take one tile after another; with stream-K they share tiles along k.  Parallel
 * split-K launches a block for each part of k of each tile, and a reduction kernel behind them.
 */
#include "choice.h"

/* CUDA C++ Programming Guide, technical specifications: grid in x and in y. */
#define MOST_X 2147483647
#define MOST_Y 65535

/* Estimates for an H100, in cycles: what a wave of blocks takes beside its steps along k, and
 * bytes of parts that are written, and read again by the reduction kernel, in a cycle. */
#define WAVE_CYCLES 8000
#define PART_BYTES_A_CYCLE 1500

/* A share of a tile has at least so many steps of k. */
enum { LEAST_SHARE = 64 };

/* Shares of a tile in single precision at most: added up one after another, and by halves. */
enum { MOST_SINGLE = 12, MOST_IN_TREE = 32 };

/* Kernels count steps of shared tiles in 32 bits; where these are too few, all tiles are whole. */
#define MOST_STEPS 4294967295

/* What copies and stores take at once, and what a thread stages results in. */
enum { CHUNK_BYTES = 16, STAGED_BYTES = 32 };

/* Elements that threads copy one by one, which takes as long where they are aligned: kernels with TMA
 * are for those, and for batches of all that is aligned. */
enum { COPIED_BYTES = 4 };

/* cuTensorMapEncodeTiled: a box's place is told in signed 32-bit numbers; strides are below. */
#define MOST_PLACES ((int64_t)1 << 31)
#define MOST_STRIDE ((int64_t)1 << 40)

/* Rows of an operand of 16 bits that is streamed across k: a lane has as many. */
#define LEAST_STREAMED 8

int64_t tilewright_chunk(const tilewright_problem *p)
{
    return tilewright_most(1, CHUNK_BYTES / p->element_bytes);
}

int64_t tilewright_tiles(int64_t side, int64_t tile, int64_t cluster)
{
    return tilewright_up(side, tile * cluster) * cluster;
}

/* Of elements of 16 and 8 bits: whether the other side is no longer than the streamed operand's,
 * and that one is long enough across k. */
static int is_streamed(const tilewright_geometry *it, const tilewright_problem *p)
{
    const int64_t other = it->streamed == 1 ? p->n : p->m;
    const int64_t side = it->streamed == 1 ? p->m : p->n;
    const int along_k = it->streamed == 1 ? p->trans_a : !p->trans_b;
    return other <= side && (along_k || side >= LEAST_STREAMED);
}

int tilewright_takes(const tilewright_geometry *it, const tilewright_problem *p)
{
    if (it->most_k && p->k > it->most_k)
        return 0;
    if (it->streamed && p->element_bytes <= 2 && !is_streamed(it, p))
        return 0;
    const int64_t size = p->element_bytes, chunk = tilewright_chunk(p);
    const int by_threads = it->any_alignment && !it->most_k && !it->streamed;
    const int unaligned = by_threads && (size == COPIED_BYTES || p->batch > 1);
    if (!it->tma && !unaligned)
        return 1;
    const int64_t line = tilewright_most(1, it->tma_line_bytes / size);
    /* A map's elements have 8 bytes at most. */
    const int64_t words = tilewright_most(1, size / 8);
    const int64_t longest = tilewright_most(p->m, tilewright_most(p->n, p->k));
    const int whole = p->aligned && p->lda % chunk == 0 && p->ldb % chunk == 0 &&
                      longest < MOST_PLACES / words &&
                      tilewright_most(p->lda, p->ldb) < MOST_STRIDE / size;
    if (!it->tma)
        return !whole;
    return whole && (p->trans_a || p->m % line == 0) && (!p->trans_b || p->n % line == 0);
}

/* Whether results may pass through the stage that is free while they are stored. */
static int may_stage(const tilewright_geometry *it, int64_t element_bytes)
{
    const int64_t stage = it->tile_k * (it->tile_m + it->tile_n) * element_bytes;
    return it->stages_k > 0 && (int64_t)it->threads_x * STAGED_BYTES <= stage;
}

int tilewright_mode(const tilewright_geometry *it, const tilewright_problem *p)
{
    const int64_t chunk = tilewright_chunk(p);
    const struct {
        int64_t side, ld, tile;
        int along_k;
    } sides[] = {{p->m, p->lda, it->tile_m, p->trans_a}, {p->n, p->ldb, it->tile_n, !p->trans_b}};
    int mode = 0;
    if (it->streamed || it->any_alignment)
        return mode;
    if (may_stage(it, p->element_bytes) && p->k <= it->stages_k && (p->ldc % chunk || p->m % chunk))
        mode |= TILEWRIGHT_STAGED;
    if (it->tma)
        return mode;
    for (int i = 0; i < 2; ++i) {
        const int64_t inner = sides[i].along_k ? p->k : sides[i].side;
        if (sides[i].side < sides[i].tile)
            mode |= TILEWRIGHT_CLAMPED;
        /* Operands along k are copied element by element by some kernels, however they lie. */
        if ((!sides[i].along_k || it->vector_along_k) && (inner % chunk || sides[i].ld % chunk))
            mode |= TILEWRIGHT_SCALAR;
    }
    return mode;
}

int64_t tilewright_parts(const tilewright_geometry *it, int64_t steps, int64_t tiles,
                         int64_t multiprocessors)
{
    const int64_t at_once = tilewright_most(1, it->resident) * multiprocessors;
    const int64_t most = tilewright_most(1, tilewright_least(it->most_parts, steps));
    int64_t best = 1;
    double least = 0;
    for (int64_t parts = 1; parts <= most; ++parts) {
        const int64_t waves = tilewright_up(tiles * parts, at_once);
        const double wave = (double)tilewright_up(steps, parts) * it->step_cycles + WAVE_CYCLES;
        const double moved = (double)(parts * tiles * it->cut_bytes) / PART_BYTES_A_CYCLE;
        const double second = parts > 1 ? it->reduction_cycles : 0.0;
        const double cycles = (double)waves * wave + moved + second;
        if (parts == 1 || cycles < least) {
            least = cycles;
            best = parts;
        }
    }
    return best;
}

tilewright_division tilewright_divide(const tilewright_geometry *it, const tilewright_problem *p,
                                      int64_t tiles, int64_t steps, int64_t multiprocessors)
{
    const int64_t shares = it->stream_k ? TILEWRIGHT_MOST_SHARES : 1;
    const int64_t most = !p->is_single ? TILEWRIGHT_MOST_SHARES
                         : it->tree    ? MOST_IN_TREE
                                       : MOST_SINGLE;
    const int64_t least = tilewright_most(1, LEAST_SHARE / it->tile_k);
    const int64_t pieces = tilewright_least(tilewright_most(steps / least, 1), most);
    tilewright_division made = {0};
    made.blocks = tilewright_least(tiles * shares,
                                   tilewright_most(1, it->resident) * multiprocessors);
    const int64_t rest = tiles % made.blocks;
    const int64_t last = it->stream_k > 1 && tiles > made.blocks ? made.blocks : 0;
    if (it->stream_k && rest && steps && (rest + last) * steps <= MOST_STEPS)
        made.shared = rest + last;
    made.workers = tilewright_least(made.blocks, made.shared * pieces);
    if (made.shared > 0)
        made.longest = tilewright_up(made.shared * steps, tilewright_most(1, made.workers));
    return made;
}

int tilewright_reduces(const tilewright_geometry *it, int64_t parts)
{
    return it->split_k && (parts > 1 || it->reduction_cycles == 0.0);
}

int tilewright_lay_out(const tilewright_geometry *it, const tilewright_problem *p,
                       int64_t multiprocessors, tilewright_grid *grid)
{
    const int64_t along_m = tilewright_tiles(p->m, it->tile_m, it->cluster_m);
    const int64_t along_n = tilewright_tiles(p->n, it->tile_n, it->cluster_n);
    const int64_t cluster = it->cluster_m * it->cluster_n * it->cluster_k;
    int64_t blocks, second = 0;
    if (along_m < 1 || along_n < 1)
        return 0;
    if (!it->folded) {
        if (along_m > MOST_X / it->cluster_k || along_n > MOST_Y)
            return 0;
        *grid = (tilewright_grid){(unsigned)(along_m * it->cluster_k), (unsigned)along_n, 0};
        return 1;
    }
    /* More tiles than that belong to a matrix beyond the address space. */
    if (along_m > INT64_MAX / (1 << 20) / it->cluster_k / along_n)
        return 0;
    blocks = along_m * along_n * it->cluster_k;
    if (it->split_k) {
        if (blocks > MOST_X)
            return 0;
        const int64_t steps = tilewright_up(p->k, it->tile_k);
        const int64_t parts = tilewright_parts(it, steps, blocks, multiprocessors);
        blocks *= parts;
        second = tilewright_reduces(it, parts) ? blocks * it->reduction_blocks : 0;
    } else if (it->persistent && it->resident > 0) {
        const int64_t shares = it->stream_k ? TILEWRIGHT_MOST_SHARES : 1;
        const int64_t most = it->resident * multiprocessors / cluster * cluster;
        blocks = tilewright_least(blocks * shares, tilewright_most(cluster, most));
    } else if (it->stream_k) {
        blocks *= TILEWRIGHT_MOST_SHARES;
    }
    if (blocks > MOST_X || second > MOST_X)
        return 0;
    *grid = (tilewright_grid){(unsigned)blocks, 1, (unsigned)second};
    return 1;
}
