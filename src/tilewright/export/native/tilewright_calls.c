/* Plans of products: laid out at the first call, and started from then on.
 *
 *     product  ->  table of plans  ->  addresses, scalars, stream  ->  launches
 *
 * Plans count who holds them: the table, and calls that start them, so that a table that is full, or
 * forgotten, may drop any plan at any time.  The lock is held while the table is looked at, not while
 * plans are laid out or started.
 */
#include "tilewright_internal.h"
#include "table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */

/* Multiply-adds; shorter products are computed by IEEE arithmetic in every accuracy: an H100 has done
 * so many before its passes over operands have begun. */
#define LEAST_EMULATED 33554432.0

tilewright_layer *tilewright_emulation[TILEWRIGHT_PRECISIONS];
_Thread_local int tilewright_was_emulated, tilewright_only_emulated;

typedef struct {
    tilewright_node node;
    tilewright_product key;
    tilewright_plan *plan;
    int has_copies; /* or is emulated: there is another plan, which takes less memory */
    int emulated;
    atomic_int holders;
} kept;

static tilewright_table plans = {
    .key_bytes = sizeof(tilewright_product), .entry_bytes = sizeof(kept)};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Hold an entry no longer. */
static void let_go(kept *it)
{
    if (atomic_fetch_sub_explicit(&it->holders, 1, memory_order_acq_rel) > 1)
        return;
    tilewright_plan_free(it->plan);
    free(it);
}

/* Under the lock. */
static void hold(kept *it) { atomic_fetch_add_explicit(&it->holders, 1, memory_order_relaxed); }

static kept *held(const tilewright_product *key)
{
    pthread_mutex_lock(&lock);
    kept *const found = tilewright_table_find(&plans, key);
    if (found != NULL)
        hold(found);
    pthread_mutex_unlock(&lock);
    return found;
}

/* Keep a plan, and hold it; null where memory is short.  Another thread may have been faster. */
static kept *keep(const tilewright_product *key, tilewright_plan *plan, int has_copies,
                  int emulated)
{
    void *removed = NULL;
    pthread_mutex_lock(&lock);
    kept *it = tilewright_table_find(&plans, key);
    if (it == NULL) {
        it = tilewright_table_add(&plans, key, &removed);
        if (it != NULL) {
            it->plan = plan;
            it->has_copies = has_copies;
            it->emulated = emulated;
            hold(it); /* as the table does */
            plan = NULL;
        }
    }
    if (it != NULL)
        hold(it);
    pthread_mutex_unlock(&lock);
    tilewright_plan_free(plan);
    if (removed != NULL)
        let_go(removed);
    return it;
}

static tw_status lay(tilewright_context *here, const tilewright_product *key,
                     tilewright_plan **plan, int *has_copies, int *emulated)
{
    tw_status status = TW_NO_KERNEL;
    if (key->emulated)
        status = tilewright_emulation[key->precision](here, key, plan);
    *emulated = *has_copies = status == TW_OK;
    return status == TW_OK ? status : tilewright_lay(here, key, plan, has_copies);
}

/* Start the plan of a product; `has_copies` says what it was. */
static tw_status start(tilewright_context *here, const tilewright_product *key,
                       const tilewright_call *call, int *result, int *has_copies)
{
    uint64_t freed; /* all arenas are the driver's memory */
    tilewright_plan *plan;
    kept *it = held(key);
    if (it == NULL) {
        int emulated = 0;
        const tw_status status = lay(here, key, &plan, has_copies, &emulated);
        if (status)
            return status;
        it = keep(key, plan, *has_copies, emulated);
        if (it == NULL)
            return TW_NO_MEMORY;
    }
    if (tilewright_only_emulated && !it->emulated) {
        let_go(it);
        return TW_NO_KERNEL;
    }
    *has_copies = it->has_copies;
    tilewright_was_emulated = it->emulated;
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
    const double work = (double)it->m * (double)it->n * (double)it->k * (double)it->batch;
    if (tilewright_emulation[it->precision] != NULL && it->reads && work >= LEAST_EMULATED) {
        it->emulated = 1;
        it->is_real = call->alpha.im == 0 && call->beta.im == 0;
    }
    status = start(here, it, call, &result, &has_copies);
    if (status == TW_OK && result == TILEWRIGHT_NO_MEMORY && has_copies) {
        it->lean = 1;
        it->emulated = it->is_real = 0;
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
        let_go(it);
    pthread_mutex_unlock(&lock);
}
