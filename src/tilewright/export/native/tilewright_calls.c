/* Plans of products: laid out at the first call, and started from then on.
 *
 *     product  ->  table of plans  ->  addresses, scalars, stream  ->  launches
 *
 * A call holds its plan while it starts it, so that a table that is full, or forgotten, may drop any
 * plan at any time.  The lock is held while the table is looked at, not while plans are laid out or
 * started.
 */
#include "tilewright_internal.h"
#include "table.h"

#include <pthread.h>
#include <stdlib.h>

enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */

typedef struct {
    tilewright_node node;
    tilewright_product key;
    tilewright_plan *plan;
    int has_copies;
    int users;   /* calls that start it */
    int is_gone; /* whether it is no longer in the table */
} kept;

static tilewright_table plans = {
    .key_bytes = sizeof(tilewright_product), .entry_bytes = sizeof(kept)};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock, what is no longer in the table: free it, or let its last user. */
static void drop(kept *it)
{
    it->is_gone = 1;
    if (it->users > 0)
        return;
    tilewright_plan_free(it->plan);
    free(it);
}

static void let_go(kept *it)
{
    pthread_mutex_lock(&lock);
    --it->users;
    if (it->is_gone)
        drop(it);
    pthread_mutex_unlock(&lock);
}

static kept *held(const tilewright_product *key)
{
    pthread_mutex_lock(&lock);
    kept *const found = tilewright_table_find(&plans, key);
    if (found != NULL)
        ++found->users;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Keep a plan, and hold it; null where memory is short.  Another thread may have been faster. */
static kept *keep(const tilewright_product *key, tilewright_plan *plan, int has_copies)
{
    void *removed = NULL;
    pthread_mutex_lock(&lock);
    kept *it = tilewright_table_find(&plans, key);
    if (it == NULL) {
        it = tilewright_table_add(&plans, key, &removed);
        if (it != NULL) {
            it->plan = plan;
            it->has_copies = has_copies;
            plan = NULL;
        }
    }
    if (it != NULL)
        ++it->users;
    if (removed != NULL)
        drop(removed);
    pthread_mutex_unlock(&lock);
    tilewright_plan_free(plan);
    return it;
}

/* Start the plan of a product; `has_copies` says what it was. */
static tw_status start(tilewright_context *here, const tilewright_product *key,
                       const tilewright_call *call, int *result, int *has_copies)
{
    uint64_t freed; /* all arenas are the driver's memory */
    tilewright_plan *plan;
    kept *it = held(key);
    if (it == NULL) {
        const tw_status status = tilewright_lay(here, key, &plan, has_copies);
        if (status)
            return status;
        it = keep(key, plan, *has_copies);
        if (it == NULL)
            return TW_NO_MEMORY;
    }
    *has_copies = it->has_copies;
    *result = tilewright_run(it->plan, call, &freed);
    let_go(it);
    return TW_OK;
}

tw_status tilewright_multiply(tilewright_product *it, const tilewright_call *call)
{
    tilewright_context *here;
    int result = 0, has_copies = 0;
    tw_status status = tilewright_current(&here);
    if (status)
        return status;
    it->context = here->id;
    status = start(here, it, call, &result, &has_copies);
    if (status == TW_OK && result == TILEWRIGHT_NO_MEMORY && has_copies) {
        it->lean = 1;
        status = start(here, it, call, &result, &has_copies);
    }
    if (status)
        return status;
    return tilewright_status_of(result == TILEWRIGHT_NO_MEMORY ? OUT_OF_MEMORY : result);
}

void tilewright_forget_plans(void)
{
    kept *it;
    pthread_mutex_lock(&lock);
    while ((it = tilewright_table_take(&plans)) != NULL)
        drop(it);
    pthread_mutex_unlock(&lock);
}
