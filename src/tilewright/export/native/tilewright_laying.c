/* Plans laid out: operands copied or not, a kernel chosen, arguments and tensor maps filled in.
 *
 * Every kernel takes
 *
 *     m, n, k, alpha re im, A, offset, lda, B, offset, ldb, beta re im, C, offset, ldc
 *
 * Behind these, one of a batch takes the steps from a product's A, B and C to the next one's, and the
 * number of products where persistent blocks go through all of them.  One of a single product takes
 * its operands' tensor maps, where the copy engine brings them (TMA), and the address of a workspace,
 * where blocks leave parts of sums.  A kernel that copies an operand takes
 *
 *     inner, outer, operand, offset, step inner, step outer, copy, ld
 *
 * A plan's workspace, from the scratch on (core.h):
 *
 *     number and words, 16384 bytes | a part for each block | copy of A | copy of B
 *                                   ^ scratch
 */
#include "tilewright_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAPS_OF_KERNEL = 2, COPIES = 2, MAPS = MAPS_OF_KERNEL * TILEWRIGHT_PIECES };
enum { OF_COPY = 8, STEPS = 3, OF_KERNEL = 16 + STEPS + MAPS_OF_KERNEL };

/* Launches at most. */
enum { LAUNCHES = COPIES + 2 * TILEWRIGHT_PIECES };
enum { PLACES = COPIES * OF_COPY + TILEWRIGHT_PIECES * OF_KERNEL, PATCHES = PLACES };

/* A launch's workspace: what begins it, and blocks that find a word there. */
enum { NUMBER_BYTES = 128, WORD_BYTES = 4, PARTS_AT = 16384 };
enum { MOST_WORDS = (PARTS_AT - NUMBER_BYTES) / WORD_BYTES };

/* What allocators align to, so that no copy is worse off than an array. */
enum { PIECE_BYTES = 256 };

/* Of cuda.h: CUtensorMap's size, alignment and enums. */
enum { MAP_BYTES = 128, MAP_ALIGNMENT = 128, CHUNK_BYTES = 16 };
enum { TYPE_FLOAT32 = 7, TYPE_FLOAT64 = 8, PROMOTION_L2_128B = 2 };

/* Operands have other addresses at each call; maps are made of one that the driver takes. */
#define MADE_UP ((uintptr_t)1 << 45)

typedef struct {
    _Alignas(MAP_ALIGNMENT) unsigned char bytes[MAP_BYTES];
} tensor_map;

/* A plan as it is laid out. */
typedef struct {
    tilewright_launch launches[LAUNCHES];
    struct {
        _Alignas(16) unsigned char bytes[16];
    } places[PLACES];
    int map_of[PLACES];
    tensor_map maps[MAPS];
    tilewright_patch patches[PATCHES];
    unsigned launch_count, place_count, map_count, patch_count;
    uint64_t zero_bytes, scratch_bytes;
} layout;

_Static_assert(sizeof(tilewright_product) == 16 * sizeof(uint64_t), "a key without padding");

/* Where an operand is: of a kind of address, so many bytes behind, and so many elements. */
typedef struct {
    unsigned char kind;
    int64_t delta, ld, offset;
} operand;

/* ---- Ways and kernels ------------------------------------------------------------- */

/* The product as it lies. */
static tilewright_problem problem_of(const tilewright_product *it)
{
    const tilewright_problem made = {
        .element_bytes = (int)tilewright_element_bytes(it->precision),
        .is_single = it->precision == 0,
        .trans_a = it->op_a != 0,
        .trans_b = it->op_b != 0,
        /* Where neither A nor B is read, they may begin anywhere; no tensor map is made of them. */
        .aligned = it->reads && it->begins_a == 0 && it->begins_b == 0,
        .m = it->m,
        .n = it->n,
        .k = it->k,
        .lda = it->lda,
        .ldb = it->ldb,
        .ldc = it->ldc,
    };
    return made;
}

int tilewright_way_of(const tilewright_product *it, const tilewright_place *place,
                      tilewright_way *way, const tilewright_rows **rows, tilewright_choice *choice)
{
    const tilewright_rows(*const of)[TILEWRIGHT_TRANSPOSES] = tilewright_rows_of[it->precision];
    const tilewright_copies *const copying = &tilewright_copying_of[it->precision];
    /* A copy of A runs along m, one of B along n; what runs so is conjugated by the kernel. */
    const uint32_t op_b = it->op_b ? it->op_b : 1;
    const tilewright_rows *const from[TILEWRIGHT_WAYS] = {
        &of[it->op_a][it->op_b], &of[it->op_a][op_b], &of[0][it->op_b], &of[0][op_b]};
    const int aligned[2] = {it->begins_a == 0, it->begins_b == 0};
    const tilewright_problem problem = problem_of(it);
    *way = (tilewright_way){.problem = problem};
    if (it->reads && !it->lean && copying->side > 0)
        tilewright_find_way(from, &problem, aligned, place, &copying->takes, way);
    const int which = TILEWRIGHT_COPIED_A * way->copies[0].is_made +
                      TILEWRIGHT_COPIED_B * way->copies[1].is_made;
    *rows = from[which];
    return tilewright_choose(from[which], &way->problem, place, choice) &&
           choice->code != TILEWRIGHT_NONE;
}

/* ---- Arguments -------------------------------------------------------------------- */

static void put(layout *it, int64_t number)
{
    memcpy(it->places[it->place_count].bytes, &number, sizeof number);
    it->map_of[it->place_count++] = TILEWRIGHT_NO_MAP;
}

/* A scalar that is 1 at each call. */
static void put_one(layout *it, int64_t precision)
{
    int64_t number = 0;
    memcpy(&number, tilewright_one(precision),
           tilewright_is_double(precision) ? sizeof(double) : sizeof(float));
    put(it, number);
}

/* What is filled in at each call. */
static void put_patched(layout *it, unsigned char kind, unsigned char type, int64_t delta)
{
    const tilewright_patch made = {it->place_count, kind, type, 0, delta};
    it->patches[it->patch_count++] = made;
    put(it, 0);
}

static void put_address(layout *it, const operand *x)
{
    put_patched(it, x->kind, 0, x->delta);
}

/* Begin a launch, whose arguments follow. */
static tilewright_launch *begin(layout *it, void *function)
{
    tilewright_launch *const made = &it->launches[it->launch_count++];
    made->function = function;
    made->first = it->place_count;
    return made;
}

/* ---- Tensor maps ------------------------------------------------------------------ */

/* Put the map of an operand that runs along k or along its other side; with lines, in boxes a line
 * wide, which TMA swizzles, and where lines are whole one box is as many as a tile has. */
static tw_status put_map(layout *into, const tilewright_geometry *it, int64_t element_bytes,
                         const operand *x, int64_t side, int64_t k, int64_t tile, int along_k)
{
    const int64_t words = tilewright_most(1, element_bytes / 8); /* a map's elements of one */
    const int64_t long_side = along_k ? k : side, other = along_k ? side : k;
    const int64_t box_long = along_k ? it->tile_k : tile, box_other = along_k ? tile : it->tile_k;
    uint64_t sizes[3] = {(uint64_t)(tilewright_most(long_side, 1) * words),
                         (uint64_t)tilewright_most(other, 1), 1};
    const uint64_t strides[2] = {(uint64_t)tilewright_most(x->ld * element_bytes, CHUNK_BYTES),
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
    if (tilewright_driver.encode_map == NULL)
        return TW_NO_DRIVER;
    const unsigned place = into->place_count, map = into->map_count++;
    put_patched(into, x->kind, 0, x->delta + x->offset * element_bytes);
    into->map_of[place] = (int)map;
    return tilewright_status_of(tilewright_driver.encode_map(
        into->maps[map].bytes, element_bytes < 8 ? TYPE_FLOAT32 : TYPE_FLOAT64, rank,
        (void *)MADE_UP, sizes, strides, box, steps, 0, swizzle, PROMOTION_L2_128B, 0));
}

/* ---- Launches --------------------------------------------------------------------- */

/* Lay the copy of an operand out, which takes its place. */
static tw_status put_copy(layout *into, tilewright_context *here, const tilewright_product *it,
                          const tilewright_copy *one, int conjugated, operand *x)
{
    const tilewright_copies *const by = &tilewright_copying_of[it->precision];
    const int code = !one->is_transposed ? by->straight
                     : conjugated        ? by->conjugated
                                         : by->transposed;
    const int64_t tiles = tilewright_up(one->inner, by->side) * tilewright_up(one->outer, by->side);
    const operand to = {TILEWRIGHT_SCRATCH, (int64_t)into->scratch_bytes, one->ld, 0};
    void *function, *second;
    if (code == TILEWRIGHT_NONE)
        return TW_NO_KERNEL;
    if (tiles > INT32_MAX)
        return TW_TOO_LARGE;
    const tw_status status = tilewright_function(here, code, &function, &second);
    if (status)
        return status;
    tilewright_launch *const made = begin(into, function);
    made->grid_x = (unsigned)tiles;
    made->grid_y = made->grid_z = made->block_y = 1;
    made->block_x = by->threads;
    made->shared_bytes = tilewright_codes[code].shared_bytes;
    made->count = OF_COPY;
    put(into, one->inner);
    put(into, one->outer);
    put_address(into, x);
    put(into, 0);
    put(into, one->is_transposed ? x->ld : 1);
    put(into, one->is_transposed ? 1 : x->ld);
    put_address(into, &to);
    put(into, one->ld);
    into->scratch_bytes +=
        (uint64_t)tilewright_up(tilewright_most(1, one->bytes), PIECE_BYTES) * PIECE_BYTES;
    *x = to;
    return TW_OK;
}

/* Fill in what every kernel takes. */
static void put_common(layout *into, const tilewright_product *it, const tilewright_problem *p,
                       const operand *a, const operand *b, int64_t delta_c, int adds)
{
    const unsigned char type =
        tilewright_is_double(it->precision) ? TILEWRIGHT_DOUBLE : TILEWRIGHT_FLOAT;
    const operand c = {TILEWRIGHT_C, delta_c, p->ldc, 0};
    put(into, p->m);
    put(into, p->n);
    put(into, it->reads ? p->k : 0); /* an empty sum reads neither A nor B, whatever alpha is */
    put_patched(into, TILEWRIGHT_ALPHA_RE, type, 0);
    put_patched(into, TILEWRIGHT_ALPHA_IM, type, 0);
    put_address(into, a);
    put(into, a->offset);
    put(into, a->ld);
    put_address(into, b);
    put(into, b->offset);
    put(into, b->ld);
    if (adds) {
        put_one(into, it->precision);
        put(into, 0);
    } else {
        put_patched(into, TILEWRIGHT_BETA_RE, type, 0);
        put_patched(into, TILEWRIGHT_BETA_IM, type, 0);
    }
    put_address(into, &c);
    put(into, 0);
    put(into, c.ld);
}

/* Whether blocks of a launch leave parts of sums in a workspace. */
static int leaves_parts(const tilewright_code *code, const tilewright_grid *grid)
{
    return code->part_bytes > 0 && (code->second == NULL || grid->second_x > 0);
}

/* Fill in what a kernel takes. */
static tw_status put_arguments(layout *into, const tilewright_product *it,
                               const tilewright_problem *p, const tilewright_geometry *by,
                               const operand *a, const operand *b, int adds, int takes_workspace,
                               int shares)
{
    const operand words = {TILEWRIGHT_SCRATCH, -PARTS_AT, 0, 0};
    tw_status status = TW_OK;
    put_common(into, it, p, a, b, 0, adds);
    if (by->tma)
        status = put_map(into, by, p->element_bytes, a, p->m, p->k, by->tile_m, p->trans_a);
    if (by->tma && status == TW_OK)
        status = put_map(into, by, p->element_bytes, b, p->n, p->k, by->tile_n, !p->trans_b);
    if (shares)
        put_address(into, &words);
    else if (takes_workspace)
        put(into, 0); /* whole tiles: nobody looks at it */
    return status;
}

/* Lay the launch of a piece out, and that of what adds parts up. */
static tw_status put_kernel(layout *into, tilewright_context *here, const tilewright_product *it,
                            const tilewright_piece *piece, const tilewright_grid *grid,
                            const operand operands[2])
{
    const tilewright_problem *const p = &piece->problem;
    const tilewright_geometry *const by = &piece->choice.kernel->geometry;
    const tilewright_code *const code = &tilewright_codes[piece->choice.code];
    operand a = operands[0], b = operands[1];
    void *function, *second;
    tw_status status = tilewright_function(here, piece->choice.code, &function, &second);
    if (status)
        return status;
    a.offset = piece->first * (p->trans_a ? 1 : a.ld);
    b.offset = piece->first * (p->trans_b ? b.ld : 1);
    tilewright_launch *const made = begin(into, function);
    made->grid_x = grid->grid_x;
    made->grid_y = grid->grid_y;
    made->grid_z = 1;
    made->block_x = by->threads_x;
    made->block_y = by->threads_y;
    made->shared_bytes = code->shared_bytes;
    status = put_arguments(into, it, p, by, &a, &b, piece->first > 0, code->part_bytes > 0,
                           leaves_parts(code, grid));
    made->count = into->place_count - made->first;
    if (second != NULL && grid->second_x) {
        /* It may begin before the first has ended; it waits by itself before it reads. */
        tilewright_launch *const behind = begin(into, second);
        *behind = (tilewright_launch){second, grid->second_x, 1, 1, by->reduction_threads, 1, 0,
                                      here->begins_early ? 1u : 0u, made->first, made->count};
    }
    return status;
}

/* ---- Batches ------------------------------------------------------------------------ */

/* The kernel that computes a batch in one launch; false where one a product takes less time. */
static int choose_batched(const tilewright_product *it, const tilewright_place *place,
                          tilewright_choice *choice)
{
    const tilewright_rows *const from =
        &tilewright_batched_of[it->precision][it->op_a][it->op_b];
    tilewright_problem problem = problem_of(it);
    tilewright_choice alone;
    if (it->batch < 2 || from->count == 0)
        return 0;
    if (!tilewright_choose(&tilewright_rows_of[it->precision][it->op_a][it->op_b], &problem, place,
                           &alone) ||
        alone.kernel->own) /* of which there is no machine code for batches */
        return 0;
    problem.batch = it->batch;
    if (!tilewright_choose(from, &problem, place, choice) || choice->code == TILEWRIGHT_NONE)
        return 0;
    return !(alone.ns * (double)it->batch < choice->ns);
}

/* Lay a batch out: all products at once, by blocks in z, or by persistent ones. */
static tw_status put_batch(layout *into, tilewright_context *here, const tilewright_product *it,
                           const tilewright_choice *choice)
{
    const tilewright_problem p = problem_of(it);
    tilewright_geometry by = choice->kernel->geometry;
    tilewright_grid grid;
    void *function, *second;
    const int persistent = by.persistent;
    const int64_t fit = by.resident * here->place.multiprocessors;
    by.split_k = by.persistent = by.stream_k = 0; /* the grid: a block for each tile of a product */
    if (!tilewright_lay_out(&by, &p, here->place.multiprocessors, &grid))
        return TW_TOO_LARGE;
    const tw_status status = tilewright_function(here, choice->code, &function, &second);
    if (status)
        return status;
    for (int64_t first = 0; first < it->batch; first += TILEWRIGHT_LAUNCHED) {
        const int64_t beyond = first * p.element_bytes;
        const int64_t some = tilewright_least(TILEWRIGHT_LAUNCHED, it->batch - first);
        const operand a = {TILEWRIGHT_A, beyond * it->step_a, it->lda, 0};
        const operand b = {TILEWRIGHT_B, beyond * it->step_b, it->ldb, 0};
        tilewright_launch *const made = begin(into, function);
        made->grid_x = grid.grid_x;
        made->grid_y = grid.grid_y;
        made->grid_z = (unsigned)some;
        if (persistent) {
            made->grid_x = (unsigned)tilewright_least(grid.grid_x * some, fit);
            made->grid_z = 1;
        }
        made->block_x = by.threads_x;
        made->block_y = by.threads_y;
        made->shared_bytes = tilewright_codes[choice->code].shared_bytes;
        put_common(into, it, &p, &a, &b, beyond * it->step_c, 0);
        put(into, it->step_a);
        put(into, it->step_b);
        put(into, it->step_c);
        if (persistent)
            put(into, some);
        made->count = into->place_count - made->first;
    }
    return TW_OK;
}

/* Let a plan be started for each product of a batch. */
static tw_status repeat(tilewright_plan *plan, const tilewright_product *it)
{
    const int64_t size = tilewright_element_bytes(it->precision);
    const tilewright_repeat all = {it->batch, it->step_a * size, it->step_b * size,
                                   it->step_c * size};
    if (it->batch < 2 || tilewright_plan_repeat(plan, &all, 1))
        return TW_OK;
    tilewright_plan_free(plan);
    return TW_NO_MEMORY;
}

/* ---- Products --------------------------------------------------------------------- */

/* Lay one product out: copies of operands, and the kernels of all pieces of k behind them. */
static tw_status put_product(layout *into, tilewright_context *here, const tilewright_product *it,
                             int *has_copies)
{
    tilewright_way way;
    tilewright_choice choice;
    const tilewright_rows *from;
    tilewright_piece pieces[TILEWRIGHT_PIECES];
    tilewright_grid grids[TILEWRIGHT_PIECES];
    operand operands[2] = {{TILEWRIGHT_A, 0, it->lda, 0}, {TILEWRIGHT_B, 0, it->ldb, 0}};
    if (!tilewright_way_of(it, &here->place, &way, &from, &choice))
        return TW_NO_KERNEL;
    unsigned count = 1;
    pieces[0] = (tilewright_piece){0, way.problem, choice};
    if (it->reads)
        count = tilewright_cut(from, &way.problem, &here->place, &choice, pieces);
    for (unsigned i = 0; i < count; ++i) {
        const tilewright_code *const code = &tilewright_codes[pieces[i].choice.code];
        if (!tilewright_lay_out(&pieces[i].choice.kernel->geometry, &pieces[i].problem,
                                here->place.multiprocessors, &grids[i]))
            return TW_TOO_LARGE;
        if (!leaves_parts(code, &grids[i]))
            continue;
        if (code->second == NULL && grids[i].grid_x > MOST_WORDS)
            return TW_TOO_LARGE;
        const int64_t parts = tilewright_up((int64_t)grids[i].grid_x * code->part_bytes, PIECE_BYTES);
        into->zero_bytes = PARTS_AT;
        into->scratch_bytes =
            (uint64_t)tilewright_most((int64_t)into->scratch_bytes, parts * PIECE_BYTES);
    }
    tw_status status = TW_OK;
    for (int i = 0; i < 2 && status == TW_OK; ++i)
        if (way.copies[i].is_made) /* op(A) alone is conjugated as it is transposed */
            status = put_copy(into, here, it, &way.copies[i], i == 0 && it->op_a == 2, &operands[i]);
    for (unsigned i = 0; i < count && status == TW_OK; ++i)
        status = put_kernel(into, here, it, &pieces[i], &grids[i], operands);
    *has_copies = way.copies[0].is_made || way.copies[1].is_made;
    return status;
}

tw_status tilewright_lay(tilewright_context *here, const tilewright_product *it,
                         tilewright_plan **plan, int *has_copies)
{
    tilewright_choice choice;
    layout *const made = aligned_alloc(MAP_ALIGNMENT, sizeof *made);
    if (made == NULL)
        return TW_NO_MEMORY;
    memset(made, 0, sizeof *made);
    *has_copies = 0;
    const int together = choose_batched(it, &here->place, &choice);
    tw_status status = together ? put_batch(made, here, it, &choice)
                                : put_product(made, here, it, has_copies);
    if (status == TW_OK) {
        *plan = tilewright_plan_new(here->handle, made->launches, made->launch_count, made->places,
                                    made->map_of, made->place_count, made->maps, made->map_count,
                                    made->patches, made->patch_count, made->zero_bytes,
                                    made->scratch_bytes);
        status = *plan == NULL ? TW_NO_MEMORY : together ? TW_OK : repeat(*plan, it);
    }
    free(made);
    return status;
}
