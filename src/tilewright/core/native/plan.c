/* Plans made, and started.
 *
 * A plan's data lie in one piece, so that a call copies them at once:
 *
 *     | tensor maps, 128 bytes each | arguments, 16 bytes each | pointers to them, 8 bytes each |
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum { MAP_BYTES = 128, PLACE_BYTES = 16 };

/* Most calls have one launch or a few: copies of their data fit here. */
enum { ON_STACK = 8192 };

/* Tensor maps lie at multiples of 64 bytes (cuda.h). */
enum { ALIGNMENT = 64 };

/* Of an arena: what streams keep must not fill a device. */
enum { MOST_ARENA = 64 << 20 };

enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */

/* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION; CUDA C++ Programming Guide,
 * "Programmatic Dependent Launch". */
static const tilewright_cu_attribute early = {6, 0, {1}};

struct tilewright_plan {
    void *context;
    tilewright_launch *launches;
    tilewright_patch *patches;
    int *map_of;
    unsigned char *data;
    unsigned launch_count, patch_count, place_count, map_count;
    uint64_t zero_bytes, scratch_bytes;
    tilewright_repeat *repeats;
    unsigned repeat_count;
};

static size_t data_bytes(const tilewright_plan *it)
{
    return (size_t)it->map_count * MAP_BYTES + (size_t)it->place_count * PLACE_BYTES;
}

static void *copied(const void *from, size_t bytes)
{
    void *const made = malloc(bytes ? bytes : 1);
    return made != NULL && bytes ? memcpy(made, from, bytes) : made;
}

tilewright_plan *tilewright_plan_new(void *context, const tilewright_launch *launches,
                                     unsigned launch_count, const void *places, const int *map_of,
                                     unsigned place_count, const void *maps, unsigned map_count,
                                     const tilewright_patch *patches, unsigned patch_count,
                                     uint64_t zero_bytes, uint64_t scratch_bytes)
{
    tilewright_plan *const it = zero_bytes <= UINT64_MAX - scratch_bytes ? calloc(1, sizeof *it) : NULL;
    if (it == NULL)
        return NULL;
    it->context = context;
    it->launch_count = launch_count;
    it->place_count = place_count;
    it->map_count = map_count;
    it->patch_count = patch_count;
    it->zero_bytes = zero_bytes;
    it->scratch_bytes = scratch_bytes;
    it->launches = copied(launches, launch_count * sizeof *launches);
    it->patches = copied(patches, patch_count * sizeof *patches);
    it->map_of = copied(map_of, place_count * sizeof *map_of);
    it->data = malloc(data_bytes(it) + 1);
    if (!it->launches || !it->patches || !it->map_of || !it->data) {
        tilewright_plan_free(it);
        return NULL;
    }
    memcpy(it->data, maps, (size_t)map_count * MAP_BYTES);
    memcpy(it->data + (size_t)map_count * MAP_BYTES, places, (size_t)place_count * PLACE_BYTES);
    return it;
}

void tilewright_plan_free(tilewright_plan *it)
{
    if (it == NULL)
        return;
    free(it->launches);
    free(it->patches);
    free(it->map_of);
    free(it->data);
    free(it->repeats);
    free(it);
}

int tilewright_plan_repeat(tilewright_plan *it, const tilewright_repeat *repeats, unsigned count)
{
    it->repeats = copied(repeats, count * sizeof *repeats);
    it->repeat_count = it->repeats == NULL ? 0 : count;
    return it->repeats != NULL;
}

uint64_t tilewright_plan_bytes(const tilewright_plan *it)
{
    return it->zero_bytes + it->scratch_bytes;
}

int tilewright_plan_shares(const tilewright_plan *it)
{
    return tilewright_plan_bytes(it) <= MOST_ARENA;
}

/* ---- Patching ------------------------------------------------------------------ */

static void put_number(void *at, int type, double high, double low)
{
    const float single = (float)high;
    const double both[2] = {high, low};
    const int whole = type == TILEWRIGHT_INT ? (int)high : 0;
    switch (type) {
    case TILEWRIGHT_FLOAT: memcpy(at, &single, sizeof single); break;
    case TILEWRIGHT_DOUBLE: memcpy(at, both, sizeof *both); break;
    case TILEWRIGHT_PAIR: memcpy(at, both, sizeof both); break;
    default: memcpy(at, &whole, sizeof whole);
    }
}

static uint64_t address_of(const tilewright_call *call, const tilewright_patch *one,
                           uint64_t scratch)
{
    if (one->kind >= TILEWRIGHT_VECTOR)
        return call->vectors[one->kind - TILEWRIGHT_VECTOR];
    if (call->members != NULL && one->kind <= TILEWRIGHT_C)
        return call->members[3 * one->member + one->kind];
    switch (one->kind) {
    case TILEWRIGHT_A: return call->a;
    case TILEWRIGHT_B: return call->b;
    case TILEWRIGHT_C: return call->c;
    case TILEWRIGHT_REPORT: return call->report;
    default: return scratch;
    }
}

/* Write what a call has of its own into a copy of the plan's data. */
static int patch(const tilewright_plan *it, const tilewright_call *call, uint64_t scratch,
                 unsigned char *maps, unsigned char *places)
{
    for (unsigned i = 0; i < it->patch_count; ++i) {
        const tilewright_patch *const one = &it->patches[i];
        void *const at = places + (size_t)one->place * PLACE_BYTES;
        if (one->kind >= TILEWRIGHT_ALPHA_RE && one->kind < TILEWRIGHT_VECTOR) {
            const int is_beta = one->kind >= TILEWRIGHT_BETA_RE;
            const tilewright_scalar *const of = is_beta ? &call->beta : &call->alpha;
            const int imaginary = one->kind == TILEWRIGHT_ALPHA_IM || one->kind == TILEWRIGHT_BETA_IM;
            put_number(at, one->type, imaginary ? of->im : of->re,
                       imaginary ? of->im_low : of->re_low);
            continue;
        }
        const uint64_t address = address_of(call, one, scratch) + (uint64_t)one->delta;
        const int map = it->map_of[one->place];
        if (map == TILEWRIGHT_NO_MAP) {
            memcpy(at, &address, sizeof address);
            continue;
        }
        const int status = tilewright_driver.move_map(
            map == TILEWRIGHT_MAP_HERE ? at : maps + (size_t)map * MAP_BYTES,
            (void *)(uintptr_t)address);
        if (status)
            return status;
    }
    return 0;
}

/* ---- Starting ------------------------------------------------------------------- */

_Thread_local int tilewright_has_launched;

static int launch_one(const tilewright_launch *one, void *stream, void **pointers)
{
    const unsigned attributes = one->early ? 1u : 0u;
    const tilewright_cu_config config = {
        one->grid_x, one->grid_y, one->grid_z, one->block_x, one->block_y, 1, one->shared_bytes,
        stream, attributes ? &early : NULL, attributes};
    const int status =
        tilewright_driver.launch(&config, one->function, pointers + one->first, NULL);
    if (status == 0)
        tilewright_has_launched = 1;
    return status;
}

static int launch_in_order(const tilewright_plan *it, void *stream, void **pointers)
{
    int status = 0;
    for (unsigned i = 0; i < it->launch_count && status == 0; ++i)
        status = launch_one(&it->launches[i], stream, pointers);
    return status;
}

/* With the context current: patch a copy and launch. */
static int launch_copy(const tilewright_plan *it, const tilewright_call *call, uint64_t scratch,
                       unsigned char *room)
{
    unsigned char *const maps = (unsigned char *)(((uintptr_t)room + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    unsigned char *const places = maps + (size_t)it->map_count * MAP_BYTES;
    void **const pointers = (void **)(void *)(places + (size_t)it->place_count * PLACE_BYTES);
    memcpy(maps, it->data, data_bytes(it));
    for (unsigned i = 0; i < it->place_count; ++i)
        pointers[i] = it->map_of[i] < 0 ? places + (size_t)i * PLACE_BYTES
                                        : maps + (size_t)it->map_of[i] * MAP_BYTES;
    const int status = patch(it, call, scratch, maps, places);
    return status ? status : launch_in_order(it, call->stream, pointers);
}

/* The addresses of the product of a number: repeats count as digits do, the last one fastest. */
static tilewright_call product_of(const tilewright_plan *it, const tilewright_call *call,
                                  int64_t number)
{
    tilewright_call mine = *call;
    for (unsigned i = it->repeat_count; i-- > 0;) {
        const tilewright_repeat *const one = &it->repeats[i];
        const int64_t at = number % one->count;
        number /= one->count;
        mine.a += (uint64_t)(at * one->a);
        mine.b += (uint64_t)(at * one->b);
        mine.c += (uint64_t)(at * one->c);
    }
    return mine;
}

/* All products of a batch, one after the other in the stream's order; they share the workspace. */
static int launch_each(const tilewright_plan *it, const tilewright_call *call, uint64_t scratch,
                       unsigned char *room)
{
    int64_t count = 1;
    int status = 0;
    if (it->repeat_count == 0)
        return launch_copy(it, call, scratch, room);
    for (unsigned i = 0; i < it->repeat_count; ++i)
        count *= it->repeats[i].count;
    for (int64_t number = 0; number < count && status == 0; ++number) {
        const tilewright_call mine = product_of(it, call, number);
        status = launch_copy(it, &mine, scratch, room);
    }
    return status;
}

static int launch_with(const tilewright_plan *it, const tilewright_call *call, uint64_t scratch)
{
    const size_t bytes = data_bytes(it) + it->place_count * sizeof(void *) + ALIGNMENT;
    if (bytes <= ON_STACK) {
        unsigned char room[ON_STACK];
        return launch_each(it, call, scratch, room);
    }
    unsigned char *const room = malloc(bytes);
    if (room == NULL)
        return OUT_OF_MEMORY;
    const int status = launch_each(it, call, scratch, room);
    free(room);
    return status;
}

/* In memory that nobody else has: what is to be zero is made so. */
static int launch_in(const tilewright_plan *it, const tilewright_call *call, uint64_t memory)
{
    int status = 0;
    if (it->zero_bytes)
        status = tilewright_driver.clear(memory, 0, it->zero_bytes, call->stream);
    return status ? status : launch_with(it, call, memory + it->zero_bytes);
}

/* In memory of this call alone, which is the driver's.  Into a graph go nodes for it: graphs run
 * whenever, and at once. */
static int launch_alone(const tilewright_plan *it, const tilewright_call *call)
{
    uint64_t memory;
    int status = tilewright_take(&memory, tilewright_plan_bytes(it), call->stream);
    if (status)
        return status;
    status = launch_in(it, call, memory);
    const int freed = tilewright_driver.free(memory, call->stream);
    return status ? status : freed;
}

/* In the stream's arena, which is this call's until everything is enqueued. */
static int launch_shared(const tilewright_plan *it, const tilewright_call *call)
{
    uint64_t scratch;
    int status = tilewright_arena_hold(it->context, call->stream, it->zero_bytes,
                                       it->scratch_bytes, &scratch);
    if (status)
        return status;
    if (scratch == 0)
        return TILEWRIGHT_NO_WORKSPACE;
    status = launch_with(it, call, scratch);
    tilewright_arena_let_go(scratch, status != 0);
    return status;
}

/* In the stream's arena, made where it is too small; another thread may give it back meanwhile. */
static int launch_making(const tilewright_plan *it, const tilewright_call *call, uint64_t *freed)
{
    uint64_t zero_bytes = it->zero_bytes, scratch_bytes = it->scratch_bytes;
    int status = launch_shared(it, call);
    while (status == TILEWRIGHT_NO_WORKSPACE) {
        tilewright_arena_sizes(&zero_bytes, &scratch_bytes);
        status =
            tilewright_arena_make(it->context, call->stream, zero_bytes, scratch_bytes, freed);
        if (status)
            return status;
        status = launch_shared(it, call);
    }
    return status;
}

/* Where a call's workspace comes from. */
typedef struct {
    uint64_t memory; /* the caller's, if not 0 */
    uint64_t *freed; /* not null: the driver's, where an arena does not do */
} source;

static int start(const tilewright_plan *it, const tilewright_call *call, const source *from)
{
    int capturing = 0;
    if (from->memory)
        return launch_in(it, call, from->memory);
    if (tilewright_plan_bytes(it) == 0)
        return launch_with(it, call, 0);
    const int status = tilewright_driver.capturing(call->stream, &capturing);
    if (status)
        return status;
    if (capturing || (from->freed && !tilewright_plan_shares(it)))
        return launch_alone(it, call);
    return from->freed ? launch_making(it, call, from->freed) : launch_shared(it, call);
}

/* The caller's thread may work on another device, or on none yet. */
static int start_in_context(const tilewright_plan *it, const tilewright_call *call,
                            const source *from)
{
    void *now;
    int status = tilewright_driver.current(&now);
    if (status || now == it->context)
        return status ? status : start(it, call, from);
    status = tilewright_driver.push(it->context);
    if (status)
        return status;
    status = start(it, call, from);
    tilewright_driver.pop(&now);
    return status;
}

int tilewright_start(const tilewright_plan *plan, const tilewright_call *call)
{
    const source from = {0, NULL};
    return start_in_context(plan, call, &from);
}

int tilewright_start_in(const tilewright_plan *plan, const tilewright_call *call, uint64_t memory)
{
    const source from = {memory, NULL};
    return start_in_context(plan, call, &from);
}

int tilewright_run(const tilewright_plan *plan, const tilewright_call *call, uint64_t *freed)
{
    const source from = {0, freed};
    *freed = 0;
    return start_in_context(plan, call, &from);
}
