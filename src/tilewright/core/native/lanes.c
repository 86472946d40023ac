/* Streams on which launches of a plan run at once, beside the call's own: one set a context.
 *
 *     call's stream   --- begin ---- launches ---------------- waits for all ended ---
 *                           |                                    |
 *     another lane          +------- launches ---- ended --------+
 *
 * Calls on different streams take turns in them, which only delays.  A captured stream never has
 * lanes: streams that it forks into would stay captured until its capture ends. */
#include "core.h"

#include <pthread.h>
#include <string.h>

/* CU_STREAM_NON_BLOCKING and CU_EVENT_DISABLE_TIMING */
enum { NON_BLOCKING = 1, UNTIMED = 2 };

/* CU_STREAM_CAPTURE_MODE_RELAXED: what is made here spoils no other thread's capture. */
enum { RELAXED = 2 };

/* A process works in one context a device; beyond these, launches follow each other. */
enum { CONTEXTS = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    unsigned long long context; /* the driver's number, never given twice */
    int is_whole;               /* whether all of it could be made */
    tilewright_lanes lanes;
} known[CONTEXTS];
static int count;

void tilewright_lanes_lock(void) { pthread_mutex_lock(&lock); }
void tilewright_lanes_unlock(void) { pthread_mutex_unlock(&lock); }

static int make(tilewright_lanes *it)
{
    int mode = RELAXED;
    memset(it, 0, sizeof *it);
    int status = tilewright_driver.exchange_mode(&mode);
    if (status)
        return 0;
    status = tilewright_driver.new_event(&it->begin, UNTIMED);
    for (int lane = 1; lane < TILEWRIGHT_LANES && status == 0; ++lane) {
        status = tilewright_driver.new_stream(&it->streams[lane], NON_BLOCKING);
        if (status == 0)
            status = tilewright_driver.new_event(&it->ended[lane], UNTIMED);
    }
    tilewright_driver.exchange_mode(&mode);
    return status == 0;
}

const tilewright_lanes *tilewright_lanes_of(void *context)
{
    unsigned long long id;
    if (tilewright_driver.context_id(context, &id))
        return NULL;
    int at = 0;
    while (at < count && known[at].context != id)
        ++at;
    if (at == CONTEXTS)
        return NULL;
    if (at == count) {
        known[at].context = id;
        known[at].is_whole = make(&known[at].lanes);
        ++count;
    }
    return known[at].is_whole ? &known[at].lanes : NULL;
}
