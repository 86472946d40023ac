/* Launches: a kernel chosen, its arguments laid out, its functions enqueued.
 *
 * Every kernel takes
 *
 *     m, n, k, alpha re im, A, offset, lda, B, offset, ldb, beta re im, C, offset, ldc
 *
 * and then, where the copy engine brings its operands, their tensor maps (TMA), and where blocks
 * leave parts of sums, the address of a workspace.
 */
#include "tilewright_driver.h"

enum { COMMON = 16, MAPS = 2, ARGUMENTS = COMMON + MAPS + 1 };

/* Blocks that find words in a workspace. */
enum { MOST_WORDS = (16384 - 128) / 4 };

/* Of cuda.h: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, and CUtensorMap's size,
 * alignment and enums. */
enum { ATTRIBUTE_EARLY = 6 };
enum { MAP_BYTES = 128, MAP_ALIGNMENT = 128, CHUNK_BYTES = 16 };
enum { TYPE_FLOAT32 = 7, TYPE_FLOAT64 = 8, PROMOTION_L2_128B = 2 };

typedef struct {
    _Alignas(MAP_ALIGNMENT) unsigned char bytes[MAP_BYTES];
} tensor_map;

/* ---- Choices are remembered ------------------------------------------------- */

typedef struct {
    const tilewright_rows *from;
    tilewright_problem problem;
    tilewright_place place;
    tilewright_choice choice;
    tilewright_grid grid;
    tw_status status;
} plan;

/* A choice takes some microseconds.  Programs ask for few products again and again, so each thread
 * remembers the last one of every slot, and no lock is taken. */
enum { SLOTS = 64 };
static _Thread_local plan remembered[SLOTS];

/* The rows say which precision and transposes. */
static int is_same(const plan *it, const tilewright_rows *from, const tilewright_problem *p,
                   const tilewright_place *place)
{
    const tilewright_problem *const x = &it->problem;
    return it->from == from && x->m == p->m && x->n == p->n && x->k == p->k && x->lda == p->lda &&
           x->ldb == p->ldb && x->ldc == p->ldc && x->aligned == p->aligned &&
           it->place.is == place->is && it->place.multiprocessors == place->multiprocessors;
}

static const plan *plan_of(const tilewright_rows *from, const tilewright_problem *p,
                           const tilewright_place *place)
{
    /* Multiplied by odd constants of many bits (xxHash's), sizes differ in the highest six
     * bits, powers of two as well. */
    const uint64_t mixed = (uint64_t)p->m * 0x9e3779b97f4a7c15u ^
                           (uint64_t)p->n * 0xc2b2ae3d27d4eb4fu ^
                           (uint64_t)p->k * 0x165667b19e3779f9u;
    plan *const it = &remembered[mixed >> 58];
    if (!is_same(it, from, p, place)) {
        it->from = from;
        it->problem = *p;
        it->place = *place;
        it->status = TW_OK;
        if (!tilewright_choose(from, p, place, &it->choice) || it->choice.code == TILEWRIGHT_NONE)
            it->status = TW_NO_KERNEL;
        else if (!tilewright_lay_out(&it->choice.kernel->geometry, p, place->multiprocessors,
                                     &it->grid))
            it->status = TW_TOO_LARGE;
    }
    return it;
}

/* ---- Tensor maps -------------------------------------------------------------- */

/* Make the map of an operand that runs along k or along its other side; with lines, in boxes a line
 * wide, which TMA swizzles, and where lines are whole one box is as many as a tile has. */
static tw_status make_map(tensor_map *map, const tilewright_geometry *it, int64_t element_bytes,
                          uintptr_t first, int64_t side, int64_t k, int64_t ld, int64_t tile,
                          int along_k)
{
    const int64_t words = tilewright_most(1, element_bytes / 8); /* a map's elements of one */
    const int64_t long_side = along_k ? k : side, other = along_k ? side : k;
    const int64_t box_long = along_k ? it->tile_k : tile, box_other = along_k ? tile : it->tile_k;
    uint64_t sizes[3] = {(uint64_t)(tilewright_most(long_side, 1) * words),
                         (uint64_t)tilewright_most(other, 1), 1};
    const uint64_t strides[2] = {(uint64_t)tilewright_most(ld * element_bytes, CHUNK_BYTES),
                                 (uint64_t)it->map_line_bytes};
    unsigned box[3] = {(unsigned)(box_long * words), (unsigned)box_other, 1};
    static const unsigned steps[3] = {1, 1, 1};
    unsigned rank = 2;
    int swizzle = 0;
    if (it->map_line_bytes) {
        const int64_t in_line = it->map_line_bytes / element_bytes;
        /* 32, 64 and 128 bytes are 1, 2 and 3. */
        swizzle = it->map_line_bytes == 128 ? 3 : it->map_line_bytes == 64 ? 2 : 1;
        box[0] = (unsigned)(in_line * words);
        if (!along_k) {
            rank = 3;
            if (long_side > 0 && long_side % in_line == 0) {
                sizes[2] = (uint64_t)(long_side / in_line);
                box[2] = (unsigned)(box_long / in_line);
            }
            sizes[0] /= sizes[2];
        }
    }
    if (tilewright_driver.encode_tiled == NULL)
        return TW_NO_DRIVER;
    return tilewright_status_of(tilewright_driver.encode_tiled(
        map->bytes, element_bytes < 8 ? TYPE_FLOAT32 : TYPE_FLOAT64, rank, (void *)first, sizes,
        strides, box, steps, 0, swizzle, PROMOTION_L2_128B, 0));
}

static tw_status make_maps(tensor_map maps[MAPS], const tilewright_geometry *it,
                           const tilewright_problem *p, uintptr_t a, uintptr_t b)
{
    const int64_t size = p->element_bytes;
    const tw_status status =
        make_map(&maps[0], it, size, a, p->m, p->k, p->lda, it->tile_m, p->trans_a);
    return status ? status
                  : make_map(&maps[1], it, size, b, p->n, p->k, p->ldb, it->tile_n, !p->trans_b);
}

/* ---- Launching ------------------------------------------------------------------ */

static tw_status enqueue(const tilewright_context *here, const plan *made, void *function,
                         void *second, void **arguments, tw_stream stream)
{
    const tilewright_geometry *const it = &made->choice.kernel->geometry;
    const unsigned shared_bytes = tilewright_codes[made->choice.code].shared_bytes;
    tilewright_config config = {made->grid.grid_x, made->grid.grid_y, 1, it->threads_x,
                                it->threads_y, 1, shared_bytes, stream, NULL, 0};
    int result = tilewright_driver.launch(&config, function, arguments, NULL);
    if (result == TILEWRIGHT_CUDA_SUCCESS && second != NULL && made->grid.second_x) {
        /* It may begin before the first has ended; it waits by itself before it reads. */
        static const tilewright_attribute early = {ATTRIBUTE_EARLY, 0, {1}};
        config = (tilewright_config){made->grid.second_x, 1, 1, it->reduction_threads, 1, 1, 0,
                                     stream, NULL, 0};
        if (here->begins_early) {
            config.attributes = &early;
            config.attribute_count = 1;
        }
        result = tilewright_driver.launch(&config, second, arguments, NULL);
    }
    return tilewright_status_of(result);
}

tw_status tilewright_launch(const tilewright_rows *from, const tilewright_problem *problem,
                            tilewright_real alpha[2], uintptr_t a, uintptr_t b,
                            tilewright_real beta[2], uintptr_t c, int reads, tw_stream stream)
{
    tilewright_problem p = *problem;
    tilewright_context *here;
    void *function, *second;
    tensor_map maps[MAPS];
    tilewright_memory space = 0;
    /* An empty sum reads neither A nor B, whatever alpha is. */
    int64_t k = reads ? p.k : 0, offset = 0;
    void *arguments[ARGUMENTS] = {
        &p.m, &p.n, &k,
        &alpha[0], &alpha[1], &a, &offset, &p.lda,
        &b, &offset, &p.ldb,
        &beta[0], &beta[1], &c, &offset, &p.ldc,
    };
    int count = COMMON;
    tw_status status = tilewright_current(&here);
    if (status)
        return status;
    const plan *const made = plan_of(from, &p, &here->place);
    if (made->status)
        return made->status;
    const tilewright_code *const code = &tilewright_codes[made->choice.code];
    status = tilewright_function(here, made->choice.code, &function, &second);
    if (status)
        return status;
    if (made->choice.kernel->geometry.tma) {
        status = make_maps(maps, &made->choice.kernel->geometry, &p, a, b);
        arguments[count++] = maps[0].bytes;
        arguments[count++] = maps[1].bytes;
    }
    arguments[count] = &space;
    if (status || code->part_bytes == 0 || (second != NULL && made->grid.second_x == 0))
        return status ? status : enqueue(here, made, function, second, arguments, stream);
    if (second == NULL && made->grid.grid_x > MOST_WORDS)
        return TW_TOO_LARGE;
    /* Until both functions are enqueued no other launch may have the workspace. */
    pthread_mutex_lock(&here->workspace_lock);
    status = tilewright_workspace_of(here, stream, made->grid.grid_x, code->part_bytes, &space);
    if (status == TW_OK)
        status = enqueue(here, made, function, second, arguments, stream);
    pthread_mutex_unlock(&here->workspace_lock);
    return status;
}
