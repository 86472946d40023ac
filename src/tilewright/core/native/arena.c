/* Device memory that the calls of a stream share: they run one after another.
 *
 *     | zero between calls   | anything |
 *                            ^ scratch
 *
 * Kernels whose blocks leave parts of sums to one another find their words at the end of what is
 * zero, and the parts behind them.  Who gives the memory, and takes it back, is the caller's. */
#include "core.h"

#include <pthread.h>
#include <string.h>

typedef struct {
    void *context;
    unsigned long long stream; /* the driver's number, which is never given twice */
    uint64_t scratch, zero_bytes, scratch_bytes;
    uint64_t used; /* when, in calls */
    int spoiled;
} arena;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static arena arenas[TILEWRIGHT_ARENAS];
static int count;
static uint64_t now;

void tilewright_arena_lock(void) { pthread_mutex_lock(&lock); }
void tilewright_arena_unlock(void) { pthread_mutex_unlock(&lock); }

static arena *find(void *context, unsigned long long stream)
{
    for (int i = 0; i < count; ++i)
        if (arenas[i].context == context && arenas[i].stream == stream)
            return &arenas[i];
    return NULL;
}

int tilewright_arena_of(void *context, void *stream, uint64_t zero_bytes, uint64_t scratch_bytes,
                        uint64_t *scratch)
{
    unsigned long long id;
    *scratch = 0;
    int status = tilewright_driver.stream_id(stream, &id);
    if (status)
        return status;
    arena *const it = find(context, id);
    if (it == NULL || it->zero_bytes < zero_bytes || it->scratch_bytes < scratch_bytes)
        return 0;
    if (it->spoiled) {
        status = tilewright_driver.clear(it->scratch - it->zero_bytes, 0, it->zero_bytes, stream);
        if (status)
            return status;
        it->spoiled = 0;
    }
    it->used = ++now;
    *scratch = it->scratch;
    return 0;
}

void tilewright_arena_spoil(uint64_t scratch)
{
    for (int i = 0; i < count; ++i)
        if (arenas[i].scratch == scratch)
            arenas[i].spoiled = 1;
}

/* Under the lock: the arena of a stream, or a place for one. */
static arena *place_for(void *context, unsigned long long stream)
{
    arena *it = find(context, stream);
    if (it == NULL && count < TILEWRIGHT_ARENAS)
        it = memset(&arenas[count++], 0, sizeof *it);
    if (it == NULL) {
        it = arenas;
        for (int i = 1; i < count; ++i)
            if (arenas[i].used < it->used)
                it = &arenas[i];
    }
    return it;
}

int tilewright_arena_put(void *context, void *stream, uint64_t scratch, uint64_t zero_bytes,
                         uint64_t scratch_bytes, uint64_t *freed)
{
    unsigned long long id;
    const int status = tilewright_driver.stream_id(stream, &id);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    arena *const it = place_for(context, id);
    *freed = it->scratch;
    *it = (arena){context, id, scratch, zero_bytes, scratch_bytes, ++now, 0};
    pthread_mutex_unlock(&lock);
    return 0;
}

void tilewright_arena_forget(void)
{
    pthread_mutex_lock(&lock);
    count = 0;
    pthread_mutex_unlock(&lock);
}
