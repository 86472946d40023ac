/* Device memory that the calls of a stream share: they run one after another.
 *
 *     | zero between calls   | anything |
 *                            ^ scratch
 *
 * Kernels whose blocks leave parts of sums to one another find their words at the end of what is
 * zero, and the parts behind them.  Streams are told apart by the driver's number for them, which is
 * never given twice, nor at all while a stream is captured: asking for it then spoils the capture. */
#include "core.h"

#include <pthread.h>
#include <string.h>

/* The least that an arena has: words of four launches' blocks that share sums, and parts of a block
 * for each of 132 multiprocessors. */
enum { LEAST_ZERO = 64 << 10, LEAST_SCRATCH = 8 << 20 };

/* CU_STREAM_CAPTURE_MODE_RELAXED: what a thread does with memory spoils no capture. */
enum { RELAXED = 2 };

typedef struct {
    void *context;
    unsigned long long context_id; /* an address may be that of another context later */
    unsigned long long stream;     /* the driver's number */
    uint64_t scratch, zero_bytes, scratch_bytes;
    uint64_t used; /* when, in calls */
    int busy;      /* a call enqueues what works in it */
    int spoiled;
    int is_drivers; /* whose memory it is: the driver's, or somebody's who is told */
} arena;

/* Nobody waits for the driver under the lock: where a stream's queue is full a launch waits for its
 * device, which may wait for what another thread has yet to enqueue elsewhere. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER; /* an arena is no longer busy */
static arena arenas[TILEWRIGHT_ARENAS];
static int count;
static uint64_t now;

static arena *find(void *context, unsigned long long stream)
{
    for (int i = 0; i < count; ++i)
        if (arenas[i].context == context && arenas[i].stream == stream)
            return &arenas[i];
    return NULL;
}

/* Hold a stream's arena as it is; its scratch is 0 where it is too small, or there is none. */
static arena hold(void *context, unsigned long long stream, uint64_t zero_bytes,
                  uint64_t scratch_bytes)
{
    arena held = {0}, *it;
    pthread_mutex_lock(&lock);
    while ((it = find(context, stream)) != NULL && it->busy)
        pthread_cond_wait(&idle, &lock);
    if (it != NULL && it->zero_bytes >= zero_bytes && it->scratch_bytes >= scratch_bytes) {
        it->busy = 1;
        it->used = ++now;
        held = *it;
    }
    pthread_mutex_unlock(&lock);
    return held;
}

int tilewright_arena_hold(void *context, void *stream, uint64_t zero_bytes,
                          uint64_t scratch_bytes, uint64_t *scratch)
{
    unsigned long long id;
    *scratch = 0;
    int status = tilewright_driver.stream_id(stream, &id);
    if (status)
        return status;
    const arena held = hold(context, id, zero_bytes, scratch_bytes);
    if (held.spoiled)
        status = tilewright_driver.clear(held.scratch - held.zero_bytes, 0, held.zero_bytes, stream);
    if (status)
        tilewright_arena_let_go(held.scratch, 1);
    else
        *scratch = held.scratch;
    return status;
}

void tilewright_arena_let_go(uint64_t scratch, int spoiled)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; ++i)
        if (arenas[i].scratch == scratch) {
            arenas[i].busy = 0;
            arenas[i].spoiled = spoiled;
        }
    pthread_cond_broadcast(&idle);
    pthread_mutex_unlock(&lock);
}

/* Under the lock: the arena of a stream, or a place for one; null while calls have them all. */
static arena *place_for(void *context, unsigned long long stream)
{
    arena *it = find(context, stream);
    if (it != NULL)
        return it->busy ? NULL : it;
    if (count < TILEWRIGHT_ARENAS)
        return memset(&arenas[count++], 0, sizeof *it);
    for (int i = 0; i < count; ++i)
        if (!arenas[i].busy && (it == NULL || arenas[i].used < it->used))
            it = &arenas[i];
    return it;
}

/* The power of two that holds so many bytes: arenas grow by doubling, few times. */
static uint64_t power(uint64_t bytes)
{
    uint64_t found = 1;
    while (found < bytes)
        found *= 2;
    return found;
}

void tilewright_arena_sizes(uint64_t *zero_bytes, uint64_t *scratch_bytes)
{
    *zero_bytes = *zero_bytes > LEAST_ZERO ? power(*zero_bytes) : LEAST_ZERO;
    *scratch_bytes = *scratch_bytes > LEAST_SCRATCH ? power(*scratch_bytes) : LEAST_SCRATCH;
}

/* Whether an arena's context is the one that it was made in, with which its memory goes. */
static int is_there(const arena *it)
{
    unsigned long long id;
    return tilewright_driver.context_id(it->context, &id) == 0 && id == it->context_id;
}

/* Free an arena's memory that is the driver's, in whose place another came.  Its own stream does it
 * in its order; of another, which may be gone, all work of its context has to end first.  Where that
 * cannot be, the memory goes with the context. */
static void free_memory(const arena *it, const arena *other, void *stream)
{
    const uint64_t memory = it->scratch - it->zero_bytes;
    int mode = RELAXED;
    void *context;
    if (it->context == other->context && it->stream == other->stream &&
        tilewright_driver.free(memory, stream) == 0)
        return;
    if (!is_there(it) || tilewright_driver.push(it->context))
        return;
    if (tilewright_driver.exchange_mode(&mode) == 0) {
        if (tilewright_driver.synchronize() == 0)
            tilewright_driver.free_now(memory);
        tilewright_driver.exchange_mode(&mode);
    }
    tilewright_driver.pop(&context);
}

static int put(arena made, void *stream, uint64_t *freed)
{
    int status = tilewright_driver.stream_id(stream, &made.stream);
    if (status == 0)
        status = tilewright_driver.context_id(made.context, &made.context_id);
    if (status)
        return status;
    arena *it;
    pthread_mutex_lock(&lock);
    while ((it = place_for(made.context, made.stream)) == NULL)
        pthread_cond_wait(&idle, &lock);
    const arena before = *it;
    made.used = ++now;
    *it = made;
    pthread_mutex_unlock(&lock);
    if (before.is_drivers)
        free_memory(&before, &made, stream);
    else if (before.scratch)
        *freed = before.scratch;
    return 0;
}

int tilewright_arena_put(void *context, void *stream, uint64_t scratch, uint64_t zero_bytes,
                         uint64_t scratch_bytes, uint64_t *freed)
{
    const arena made = {.context = context, .scratch = scratch, .zero_bytes = zero_bytes,
                        .scratch_bytes = scratch_bytes};
    return put(made, stream, freed);
}

int tilewright_take(uint64_t *memory, uint64_t bytes, void *stream)
{
    enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */
    int mode = RELAXED;
    int status = tilewright_driver.exchange_mode(&mode);
    if (status)
        return status;
    status = tilewright_driver.allocate(memory, bytes, stream);
    tilewright_driver.exchange_mode(&mode);
    return status == OUT_OF_MEMORY ? TILEWRIGHT_NO_MEMORY : status;
}

int tilewright_arena_make(void *context, void *stream, uint64_t zero_bytes, uint64_t scratch_bytes,
                          uint64_t *freed)
{
    uint64_t memory;
    int status = tilewright_take(&memory, zero_bytes + scratch_bytes, stream);
    if (status)
        return status;
    const arena made = {.context = context, .scratch = memory + zero_bytes,
                        .zero_bytes = zero_bytes, .scratch_bytes = scratch_bytes,
                        .is_drivers = 1};
    status = tilewright_driver.clear(memory, 0, zero_bytes, stream);
    if (status == 0)
        status = put(made, stream, freed);
    if (status)
        tilewright_driver.free(memory, stream);
    return status;
}

/* Under the lock: whether a call enqueues in a context. */
static int is_busy(void *context)
{
    for (int i = 0; i < count; ++i)
        if (arenas[i].context == context && arenas[i].busy)
            return 1;
    return 0;
}

int tilewright_arena_release(void *context)
{
    arena found[TILEWRIGHT_ARENAS];
    int many = 0, kept = 0;
    pthread_mutex_lock(&lock);
    while (is_busy(context))
        pthread_cond_wait(&idle, &lock);
    for (int i = 0; i < count; ++i)
        if (arenas[i].context == context)
            found[many++] = arenas[i];
        else
            arenas[kept++] = arenas[i];
    count = kept;
    pthread_mutex_unlock(&lock);
    if (many == 0)
        return 0;
    const int status = tilewright_driver.synchronize();
    for (int i = 0; i < many; ++i)
        if (found[i].is_drivers && is_there(&found[i]))
            tilewright_driver.free_now(found[i].scratch - found[i].zero_bytes);
    return status;
}
