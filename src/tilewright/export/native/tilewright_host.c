/* Products of matrices in the host's memory, computed by the device.
 *
 *     copies      | A | B0 |    | B1 | C0 |    | B2 | C1 | C2 |       one stream
 *     products             | C0 |    | C1 |         | C2 |            another
 *
 * A product is one on the device if its matrices take little time to copy; larger ones are cut
 * along the longer side of C, so that copies and products go on at once, and what is larger than
 * half of the device's memory along m, n and k.  Parts of a sum along k are added in C's precision.
 * All cuts follow from the sizes and the device, so that equal calls give equal bits.
 *
 *     TILEWRIGHT_BLAS_MEMORY    bytes of the device's memory at most, instead of half of it
 *
 * Pageable memory is copied through pinned buffers (staging.h).  One product at a time has the
 * device: its copies take all of the host's bandwidth.
 */
#include "tilewright_host.h"
#include "staging.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A core copies 10 GB/s, a link takes 50. */
enum { MOST_COPIERS = 12, BUFFER_BYTES = 4 << 20 };

/* Of cuda.h. */
enum { NO_TIMING = 2, NON_BLOCKING = 1, CAPTURE_RELAXED = 2 };

/* Bytes of panels in a cut product: a few ms of copies, beside which a launch is nothing. */
static const int64_t CUT_BYTES = 128 << 20;
enum { MOST_PANELS = 16, CUT_TO = 256 }; /* whole tiles of every kernel */

/* Device memory that stays allocated for the next call. */
static const uint64_t KEPT_BYTES = (uint64_t)1 << 30;

/* What the driver's own allocations are aligned to, and tensor maps want of columns. */
enum { MEMORY_ALIGNED = 256, COLUMN_ALIGNED = 16 };

static int64_t rounded(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

int64_t tilewright_host_cores(void)
{
    cpu_set_t mine;
    return sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
}

/* ---- The device -------------------------------------------------------------------------- */

/* In the order of their names. */
typedef struct {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*new_stream)(void **stream, unsigned flags);
    int (*let_wait)(void *stream, void *event, unsigned flags);
    int (*wait)(void *event);
    int (*pin)(void **memory, size_t bytes, unsigned flags);
    int (*allocate)(uint64_t *memory, size_t bytes);
    int (*copy)(const tilewright_plane *plane, void *stream);
} functions;

static const char *const names[] = {
    "cuInit", "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuStreamWaitEvent",
    "cuEventSynchronize", "cuMemHostAlloc", "cuMemAlloc_v2", "cuMemcpy2DAsync_v2"};
enum { NAMES = sizeof names / sizeof *names };

/* Two panels of each matrix: one is used while the other is on its way. */
enum { OF_A, OF_B, OF_C, MATRICES, SLOTS = 2 };

static functions cu;
static struct {
    void *context, *copies, *products; /* the streams */
    unsigned char *buffers;
    void *buffer_events[2 * MOST_COPIERS];
    void *arrived[MATRICES][SLOTS], *used[MATRICES][SLOTS];
    uint64_t copiers, memory, room, most;
} here;

enum { UNKNOWN, READY, OFF };
static atomic_int state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The driver serves no process that was forked from its own. */
static void forked(void) { atomic_store(&state, OFF); }

static int find_functions(void)
{
    void *found[NAMES], *const library = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < NAMES; ++i) {
        found[i] = library == NULL ? NULL : dlsym(library, names[i]);
        if (found[i] == NULL)
            return 0;
    }
    _Static_assert(sizeof found == sizeof cu, "a name for each function");
    memcpy(&cu, found, sizeof cu);
    return tilewright_find_driver();
}

/* In the context: make what all calls use. */
static int prepare(int device)
{
    const int64_t cores = tilewright_host_cores();
    size_t memory = 0;
    here.copiers = (uint64_t)least(cores, MOST_COPIERS);
    int fails = tilewright_driver.device_memory(&memory, device) ||
                cu.new_stream(&here.copies, NON_BLOCKING) ||
                cu.new_stream(&here.products, NON_BLOCKING) ||
                cu.pin((void **)&here.buffers, 2 * here.copiers * BUFFER_BYTES, 0);
    for (uint64_t i = 0; !fails && i < 2 * here.copiers; ++i)
        fails = tilewright_driver.new_event(&here.buffer_events[i], NO_TIMING);
    for (int i = 0; !fails && i < MATRICES * SLOTS; ++i)
        fails = tilewright_driver.new_event(&here.arrived[i / SLOTS][i % SLOTS], NO_TIMING) ||
                tilewright_driver.new_event(&here.used[i / SLOTS][i % SLOTS], NO_TIMING);
    const char *const asked = getenv("TILEWRIGHT_BLAS_MEMORY");
    const long long bytes = asked == NULL ? 0 : strtoll(asked, NULL, 10);
    here.most = bytes > 0 ? (uint64_t)bytes : memory / 2;
    return !fails;
}

/* Under the lock: begin with CUDA, on the device that the thread uses, else on the first. */
static int begin(void)
{
    void *before = NULL;
    int device = 0, is_ready = 0, mode = CAPTURE_RELAXED; /* as in gemm() */
    if (!find_functions() || cu.init(0))
        return 0;
    const int relaxed = tilewright_driver.exchange_mode(&mode) == 0;
    if (!tilewright_driver.current(&before) &&
        (before == NULL || !tilewright_driver.context_device(&device)) &&
        !cu.retain(&here.context, device) && !tilewright_driver.push(here.context)) {
        is_ready = prepare(device) && pthread_atfork(NULL, NULL, forked) == 0;
        tilewright_driver.pop(&before);
    }
    if (relaxed)
        tilewright_driver.exchange_mode(&mode);
    return is_ready;
}

int tilewright_host_serves(void) { return atomic_load(&state) != OFF; }

/* ---- Panels -------------------------------------------------------------------------------- */

/* A matrix on the host, as it is stored, and its panels on the device. */
typedef struct {
    int which, transposed;
    unsigned char *host;
    int64_t rows, columns, ld, size;       /* of op(X); ld as stored; bytes of an element */
    int64_t panel_rows, panel_columns, pitch; /* of op(X); bytes from a stored column to the next */
    uint64_t bytes, slots;                 /* of a panel, and how many there is room for */
    uint64_t memory[SLOTS];
    int64_t has[SLOTS][2];                 /* where the panel that is there begins; -1: none is */
    int last;                              /* the slot taken last */
} matrix;

static matrix matrix_of(int which, int op, const void *host, int64_t rows, int64_t columns,
                        int64_t ld, int64_t size)
{
    return (matrix){.which = which, .transposed = op != 0, .host = (unsigned char *)(uintptr_t)host,
                    .rows = rows, .columns = columns, .ld = ld, .size = size,
                    .has = {{-1, -1}, {-1, -1}}};
}

/* Say how large panels are. */
static void cut(matrix *x, int64_t rows, int64_t columns)
{
    x->panel_rows = rows;
    x->panel_columns = columns;
    const int64_t side_by_side = x->transposed ? columns : rows;
    x->pitch = rounded((side_by_side > 0 ? side_by_side : 1) * x->size, COLUMN_ALIGNED);
    x->bytes = (uint64_t)rounded(x->pitch * (x->transposed ? rows : columns), MEMORY_ALIGNED);
    x->slots = rows < x->rows || columns < x->columns ? SLOTS : 1;
}

/* The part of a matrix that a slot has, or will have, from a row and column of op(X) on. */
static tilewright_lines lines_of(const matrix *x, int slot, int64_t row, int64_t column)
{
    const int64_t rows = least(x->panel_rows, x->rows - row);
    const int64_t columns = least(x->panel_columns, x->columns - column);
    const int64_t first = x->transposed ? column + row * x->ld : row + column * x->ld;
    return (tilewright_lines){.device = x->memory[slot],
                              .pitch = (uint64_t)x->pitch,
                              .host = x->host + first * x->size,
                              .step = x->ld * x->size,
                              .width = (uint64_t)((x->transposed ? columns : rows) * x->size),
                              .lines = (uint64_t)(x->transposed ? rows : columns)};
}

static tilewright_staging staging(void)
{
    return (tilewright_staging){tilewright_driver.push, tilewright_driver.pop, cu.copy,
                                tilewright_driver.record, cu.wait, here.context, here.copies,
                                here.buffers, here.buffer_events, BUFFER_BYTES, here.copiers};
}

/* Find the slot of a panel, or one for it; it is on its way there if `reads`, and products wait. */
static int take(matrix *x, int64_t row, int64_t column, int reads, int *slot)
{
    for (int i = 0; i < SLOTS; ++i)
        if (x->has[i][0] == row && x->has[i][1] == column) {
            *slot = x->last = i;
            return 0;
        }
    *slot = x->last = x->slots == SLOTS ? !x->last : 0;
    x->has[*slot][0] = row;
    x->has[*slot][1] = column;
    if (!reads)
        return 0;
    const tilewright_lines lines = lines_of(x, *slot, row, column);
    const tilewright_staging with = staging();
    void *const arrived = here.arrived[x->which][*slot];
    int fails = cu.let_wait(here.copies, here.used[x->which][*slot], 0);
    if (!fails)
        fails = tilewright_stage_to_device(&with, &lines);
    if (!fails)
        fails = tilewright_driver.record(arrived, here.copies);
    return fails ? fails : cu.let_wait(here.products, arrived, 0);
}

/* ---- Products -------------------------------------------------------------------------------- */

typedef struct {
    const tilewright_host_product *it;
    matrix a, b, c;
    int64_t m, n, k; /* of a tile */
    int reads_ab, reads_c;
    int64_t done_row, done_column; /* of a tile of C that is computed, not yet copied; -1: none */
    int done_slot;
    int *written;
} work;

static uint64_t needed(work *all)
{
    cut(&all->a, all->m, all->k);
    cut(&all->b, all->k, all->n);
    cut(&all->c, all->m, all->n);
    return (all->reads_ab ? all->a.slots * all->a.bytes + all->b.slots * all->b.bytes : 0) +
           all->c.slots * all->c.bytes;
}

/* Cut a side in so many parts. */
static int64_t part(int64_t side, int64_t parts)
{
    return least(side, rounded((side + parts - 1) / parts, CUT_TO));
}

/* Choose the tiles' sizes; false where even the smallest do not fit. */
static int lay(work *all)
{
    const tilewright_host_product *const it = all->it;
    all->m = it->m;
    all->n = it->n;
    all->k = it->k;
    const int64_t panels = least((int64_t)(needed(all) / (uint64_t)CUT_BYTES), MOST_PANELS);
    if (panels > 1 && it->n >= it->m)
        all->n = part(it->n, panels);
    else if (panels > 1)
        all->m = part(it->m, panels);
    while (needed(all) > here.most) {
        int64_t *const longest = all->k > all->m && all->k > all->n ? &all->k
                                 : all->m > all->n                  ? &all->m
                                                                    : &all->n;
        if (*longest <= CUT_TO)
            return 0;
        *longest = part(*longest, 2);
    }
    return 1;
}

/* Let the matrices have their memory. */
static int settle(work *all)
{
    const uint64_t bytes = needed(all);
    matrix *const of[] = {&all->a, &all->b, &all->c};
    if (here.room < bytes) {
        if (here.memory != 0)
            tilewright_driver.free_now(here.memory);
        here.memory = here.room = 0;
        const int fails = cu.allocate(&here.memory, bytes);
        if (fails)
            return fails;
        here.room = bytes;
    }
    uint64_t next = here.memory;
    for (int i = all->reads_ab ? OF_A : OF_C; i < MATRICES; ++i)
        for (uint64_t slot = 0; slot < of[i]->slots; ++slot, next += of[i]->bytes)
            of[i]->memory[slot] = next;
    return 0;
}

/* Copy the tile that is computed to C. */
static int fetch(work *all)
{
    if (all->done_row < 0)
        return 0;
    const tilewright_lines lines =
        lines_of(&all->c, all->done_slot, all->done_row, all->done_column);
    const tilewright_staging with = staging();
    all->done_row = -1;
    /* Not before: what the next tile needs is copied while this one is computed. */
    const int fails = cu.let_wait(here.copies, here.used[OF_C][all->done_slot], 0);
    if (fails)
        return fails;
    *all->written = 1;
    return tilewright_stage_to_host(&with, &lines);
}

/* Enqueue a tile's product with a piece of k, which begins at `from`. */
static tw_status multiply(work *all, int64_t row, int64_t column, int64_t from, int slot)
{
    const tilewright_host_product *const it = all->it;
    const void *const beta = from == 0 ? it->beta : tilewright_one(it->letter);
    int of_a = 0, of_b = 0, fails = 0;
    if (all->reads_ab && !(fails = take(&all->a, row, from, 1, &of_a)))
        fails = take(&all->b, from, column, 1, &of_b);
    if (fails)
        return tilewright_status_of(fails);
    const matrix *const a = &all->a, *const b = &all->b, *const c = &all->c;
    const tw_status status =
        tw_gemm(tilewright_letters[it->letter], TW_COL_MAJOR, tilewright_operations[it->op_a],
                tilewright_operations[it->op_b], least(all->m, it->m - row), least(all->n, it->n - column),
                least(all->k, it->k - from), it->alpha, (void *)(uintptr_t)a->memory[of_a],
                a->pitch / a->size, (void *)(uintptr_t)b->memory[of_b], b->pitch / b->size, beta,
                (void *)(uintptr_t)c->memory[slot], c->pitch / c->size, here.products);
    if (status == TW_OK && all->reads_ab &&
        !(fails = tilewright_driver.record(here.used[OF_A][of_a], here.products)))
        fails = tilewright_driver.record(here.used[OF_B][of_b], here.products);
    return status ? status : tilewright_status_of(fails);
}

/* A tile of C; the one before is copied to the host while this one is computed. */
static tw_status compute(work *all, int64_t row, int64_t column)
{
    const int64_t k = all->reads_ab ? all->it->k : 0;
    int64_t from = 0;
    int slot;
    tw_status status = tilewright_status_of(take(&all->c, row, column, all->reads_c, &slot));
    do {
        if (status == TW_OK)
            status = multiply(all, row, column, from, slot);
        from += all->k;
    } while (status == TW_OK && from < k);
    if (status == TW_OK)
        status = tilewright_status_of(fetch(all));
    if (status)
        return status;
    all->done_row = row;
    all->done_column = column;
    all->done_slot = slot;
    return tilewright_status_of(tilewright_driver.record(here.used[OF_C][slot], here.products));
}

static tw_status compute_all(work *all)
{
    const tilewright_host_product *const it = all->it;
    tw_status status = tilewright_status_of(settle(all));
    for (int64_t row = 0; row < it->m; row += all->m)
        for (int64_t column = 0; status == TW_OK && column < it->n; column += all->n)
            status = compute(all, row, column);
    if (status == TW_OK)
        status = tilewright_status_of(fetch(all));
    if (status)
        tilewright_driver.synchronize(); /* nothing of it may run on */
    if (here.room > KEPT_BYTES) {
        tilewright_driver.free_now(here.memory);
        here.memory = here.room = 0;
    }
    return status;
}

static tw_status gemm(const tilewright_host_product *it, int *written)
{
    const int64_t size = tilewright_element_bytes(it->letter);
    int mode = CAPTURE_RELAXED; /* whatever other streams of the thread's are captured */
    void *before;
    const tilewright_scalar alpha = tilewright_read_scalar(it->alpha, it->letter);
    const tilewright_scalar beta = tilewright_read_scalar(it->beta, it->letter);
    work all = {.it = it, .done_row = -1, .written = written};
    all.a = matrix_of(OF_A, it->op_a, it->a, it->m, it->k, it->lda, size);
    all.b = matrix_of(OF_B, it->op_b, it->b, it->k, it->n, it->ldb, size);
    all.c = matrix_of(OF_C, 0, it->c, it->m, it->n, it->ldc, size);
    all.reads_ab = it->k > 0 && !tilewright_equals(&alpha, 0);
    all.reads_c = !tilewright_equals(&beta, 0);
    if (!all.reads_ab && tilewright_equals(&beta, 1))
        return TW_OK;
    if (!lay(&all))
        return TW_TOO_LARGE;
    const int fails = tilewright_driver.push(here.context);
    if (fails)
        return tilewright_status_of(fails);
    const int relaxed = tilewright_driver.exchange_mode(&mode) == 0;
    const tw_status status = compute_all(&all);
    if (relaxed)
        tilewright_driver.exchange_mode(&mode);
    tilewright_driver.pop(&before);
    return status;
}

tw_status tilewright_host_gemm(const tilewright_host_product *it, int *written)
{
    tw_status status = TW_NO_DRIVER;
    *written = 0;
    pthread_mutex_lock(&lock);
    if (atomic_load(&state) == UNKNOWN)
        atomic_store(&state, begin() ? READY : OFF);
    if (atomic_load(&state) == READY)
        status = it->m == 0 || it->n == 0 ? TW_OK : gemm(it, written);
    if (status == TW_WRONG_DEVICE)
        atomic_store(&state, OFF);
    pthread_mutex_unlock(&lock);
    return status;
}
