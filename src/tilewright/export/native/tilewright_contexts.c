/* Contexts of the driver, and kernels loaded into them.
 *
 * Every context that was ever used has a node in a list that only grows at its head:
 *
 *     contexts -> | id | device | loaded[codes] | -> | id | device | loaded[codes] | -> null
 *
 * A call finds its context's node by the driver's id, which is never used again when a context
 * is destroyed (its address may be).  The list is read with acquire loads and no lock (C11
 * atomics).  Whoever finds a node missing takes the lock, looks again, and publishes what it made
 * with a release store.
 */
#include "tilewright_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef __STDC_NO_ATOMICS__
#error "this library needs C11 atomics"
#endif

/* Of cuda.h. */
enum {
    CUDA_INVALID_VALUE = 1,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_NO_BINARY = 209,
    CUDA_CONTEXT_IS_DESTROYED = 709
};
enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, CAPTURE_RELAXED = 2 };
enum { MULTIPROCESSOR_COUNT = 16, COMPUTE_CAPABILITY_MAJOR = 75 };

/* CUDA C++ Programming Guide, "Programmatic Dependent Launch". */
enum { EARLY_FROM = 9 };

static _Atomic(tilewright_context *) contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

tw_status tilewright_status_of(int result)
{
    switch (result) {
    case 0: return TW_OK;
    case CUDA_NOT_INITIALIZED:
    case CUDA_INVALID_CONTEXT: return TW_NO_CONTEXT;
    case CUDA_NO_BINARY: return TW_WRONG_DEVICE;
    default: return TW_CUDA + result;
    }
}

const char *tilewright_driver_says(int result)
{
    const char *text = NULL;
    if (!tilewright_find_driver() || tilewright_driver.error_string(result, &text))
        return NULL;
    return text;
}

/* ---- Contexts ------------------------------------------------------------- */

static tilewright_context *find_context(unsigned long long id)
{
    tilewright_context *found = atomic_load_explicit(&contexts, memory_order_acquire);
    while (found != NULL && found->id != id)
        found = found->next;
    return found;
}

/* Find out what device the current context is on. */
static tw_status look_at_device(tilewright_context *it)
{
    int device, many = 0, major = 0;
    size_t memory = 0;
    int result = tilewright_driver.current(&it->handle);
    if (result == 0)
        result = tilewright_driver.context_device(&device);
    if (result == 0)
        result = tilewright_driver.device_attribute(&many, MULTIPROCESSOR_COUNT, device);
    if (result == 0)
        result = tilewright_driver.device_attribute(&major, COMPUTE_CAPABILITY_MAJOR, device);
    if (result == 0)
        result = tilewright_driver.device_memory(&memory, device);
    if (result)
        return tilewright_status_of(result);
    it->begins_early = major >= EARLY_FROM;
    it->place.memory = memory;
    it->place.multiprocessors = many > 0 ? many : 1;
    for (int i = 0; i < tilewright_device_count; ++i)
        if (tilewright_devices[i] == many)
            it->place.alike |= (uint64_t)1 << i;
    return TW_OK;
}

/* Under the lock: make the current context's node. */
static tw_status add_context(unsigned long long id, tilewright_context **made)
{
    tilewright_context *it = find_context(id);
    if (it == NULL) {
        it = calloc(1, sizeof *it + (size_t)tilewright_code_count * sizeof it->loaded[0]);
        if (it == NULL)
            return TW_NO_MEMORY;
        const tw_status status = look_at_device(it);
        if (status) {
            free(it);
            return status;
        }
        it->id = id;
        it->next = atomic_load_explicit(&contexts, memory_order_relaxed);
        atomic_store_explicit(&contexts, it, memory_order_release);
    }
    *made = it;
    return TW_OK;
}

tw_status tilewright_current(tilewright_context **here)
{
    unsigned long long id;
    if (!tilewright_find_driver())
        return TW_NO_DRIVER;
    const int result = tilewright_driver.context_id(NULL, &id);
    /* Nothing else about these arguments could be invalid. */
    if (result == CUDA_INVALID_VALUE || result == CUDA_CONTEXT_IS_DESTROYED)
        return TW_NO_CONTEXT;
    if (result)
        return tilewright_status_of(result);
    *here = find_context(id);
    if (*here != NULL)
        return TW_OK;
    pthread_mutex_lock(&lock);
    const tw_status status = add_context(id, here);
    pthread_mutex_unlock(&lock);
    return status;
}

tilewright_place tilewright_here(void)
{
    tilewright_context *here;
    const tilewright_place first = {tilewright_devices[0], 1, 0};
    return tilewright_current(&here) == TW_OK ? here->place : first;
}

/* ---- Machine code ----------------------------------------------------------- */

tw_status tilewright_load(const tilewright_code *it, tilewright_loaded *loaded)
{
    tilewright_loaded made = {NULL, NULL, NULL};
    int mode = CAPTURE_RELAXED; /* a stream may be captured meanwhile, of which loading is no part */
    const int exchanged = tilewright_driver.exchange_mode(&mode);
    int result = tilewright_driver.load(&made.module, it->image);
    if (exchanged == 0)
        tilewright_driver.exchange_mode(&mode);
    if (result)
        return tilewright_status_of(result);
    result = tilewright_driver.function(&made.function, made.module, it->symbol);
    if (result == 0 && it->second != NULL)
        result = tilewright_driver.function(&made.second, made.module, it->second);
    if (result == 0 && it->shared_bytes > 0)
        result = tilewright_driver.set_attribute(made.function, MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                 (int)it->shared_bytes);
    if (result) {
        tilewright_driver.unload(made.module);
        return tilewright_status_of(result);
    }
    *loaded = made;
    return TW_OK;
}

/* Under the lock: load a code into the current context, if it is not. */
static tw_status load(tilewright_context *here, int code)
{
    if (here->loaded[code].module != NULL)
        return TW_OK;
    return tilewright_load(&tilewright_codes[code], &here->loaded[code]);
}

tw_status tilewright_function(tilewright_context *here, int code, void **function, void **second)
{
    pthread_mutex_lock(&lock);
    const tw_status status = load(here, code);
    *function = here->loaded[code].function;
    *second = here->loaded[code].second;
    pthread_mutex_unlock(&lock);
    return status;
}

tw_status tilewright_load_all(tilewright_context *here)
{
    tw_status status = TW_OK;
    pthread_mutex_lock(&lock);
    for (int code = 0; status == TW_OK && code < tilewright_code_count; ++code)
        status = load(here, code);
    pthread_mutex_unlock(&lock);
    return status;
}

tw_status tilewright_unload_all(tilewright_context *here)
{
    tw_status status = TW_OK;
    pthread_mutex_lock(&lock);
    for (int code = 0; code < tilewright_code_count; ++code) {
        const tilewright_loaded it = here->loaded[code];
        if (it.module == NULL)
            continue;
        here->loaded[code] = (tilewright_loaded){NULL, NULL, NULL};
        const int result = tilewright_driver.unload(it.module);
        if (result && status == TW_OK)
            status = tilewright_status_of(result);
    }
    pthread_mutex_unlock(&lock);
    return status;
}
