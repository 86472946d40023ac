/* The driver, found when it is first needed, and kernels loaded into contexts.
 *
 * Every context that was ever used has a node in a list that only grows at its head:
 *
 *     contexts -> | id | device | loaded[codes] | -> | id | device | loaded[codes] | -> null
 *
 * A call finds its context's node by the driver's id, which is never used again when a context
 * is destroyed (its address may be), and its kernel's function in the node.  Both are read with
 * acquire loads and no lock (C11 atomics).  Whoever finds one missing takes the lock, looks
 * again, and publishes what it made with a release store.
 */
#define _POSIX_C_SOURCE 200809L

#include "tilewright_driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Of cuda.h. */
enum {
    CUDA_INVALID_VALUE = 1,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_NO_BINARY = 209,
    CUDA_CONTEXT_IS_DESTROYED = 709
};
enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
enum { MULTIPROCESSOR_COUNT = 16, COMPUTE_CAPABILITY_MAJOR = 75 };

/* CUDA C++ Programming Guide, "Programmatic Dependent Launch". */
enum { EARLY_FROM = 9 };

tilewright_driver_calls tilewright_driver;

static atomic_int driver_is_here;
static _Atomic(tilewright_context *) contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Store a symbol's address in a pointer to a function; ISO C has no cast for it. */
static int find(void *library, const char *name, void *pointer)
{
    void *const symbol = dlsym(library, name);
    memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Under the lock.  The library stays open: a program's driver is there to its end. */
static tw_status find_driver(void)
{
    tilewright_driver_calls *const it = &tilewright_driver;
    if (atomic_load_explicit(&driver_is_here, memory_order_relaxed))
        return TW_OK;
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return TW_NO_DRIVER;
    if (!find(library, "cuCtxGetId", &it->context_id) ||
        !find(library, "cuCtxGetDevice", &it->context_device) ||
        !find(library, "cuCtxSynchronize", &it->context_synchronize) ||
        !find(library, "cuDeviceGetAttribute", &it->device_attribute) ||
        !find(library, "cuDeviceGetName", &it->device_name) ||
        !find(library, "cuModuleLoadData", &it->load) ||
        !find(library, "cuModuleUnload", &it->unload) ||
        !find(library, "cuModuleGetFunction", &it->function) ||
        !find(library, "cuFuncSetAttribute", &it->set_attribute) ||
        !find(library, "cuLaunchKernelEx", &it->launch) ||
        !find(library, "cuGetErrorString", &it->error_string) ||
        !find(library, "cuMemAlloc_v2", &it->allocate) ||
        !find(library, "cuMemFree_v2", &it->free) ||
        !find(library, "cuMemsetD8Async", &it->clear) ||
        !find(library, "cuStreamCreate", &it->stream_create) ||
        !find(library, "cuStreamDestroy_v2", &it->stream_destroy) ||
        !find(library, "cuStreamSynchronize", &it->stream_synchronize) ||
        !find(library, "cuStreamGetId", &it->stream_id) ||
        !find(library, "cuStreamGetCaptureInfo_v2", &it->capture) ||
        !find(library, "cuThreadExchangeStreamCaptureMode", &it->exchange_mode)) {
        dlclose(library);
        return TW_NO_DRIVER;
    }
    find(library, "cuTensorMapEncodeTiled", &it->encode_tiled);
    atomic_store_explicit(&driver_is_here, 1, memory_order_release);
    return TW_OK;
}

static tw_status need_driver(void)
{
    if (atomic_load_explicit(&driver_is_here, memory_order_acquire))
        return TW_OK;
    pthread_mutex_lock(&lock);
    const tw_status status = find_driver();
    pthread_mutex_unlock(&lock);
    return status;
}

tw_status tilewright_status_of(int result)
{
    switch (result) {
    case TILEWRIGHT_CUDA_SUCCESS: return TW_OK;
    case CUDA_NOT_INITIALIZED:
    case CUDA_INVALID_CONTEXT: return TW_NO_CONTEXT;
    case CUDA_NO_BINARY: return TW_WRONG_DEVICE;
    default: return TW_CUDA + result;
    }
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
    int device, many, major;
    char name[256] = "";
    int result = tilewright_driver.context_device(&device);
    if (result == TILEWRIGHT_CUDA_SUCCESS)
        result = tilewright_driver.device_attribute(&many, MULTIPROCESSOR_COUNT, device);
    if (result == TILEWRIGHT_CUDA_SUCCESS)
        result = tilewright_driver.device_attribute(&major, COMPUTE_CAPABILITY_MAJOR, device);
    if (result == TILEWRIGHT_CUDA_SUCCESS)
        result = tilewright_driver.device_name(name, sizeof name, device);
    if (result != TILEWRIGHT_CUDA_SUCCESS)
        return tilewright_status_of(result);
    it->begins_early = major >= EARLY_FROM;
    it->place.multiprocessors = many > 0 ? many : 1;
    for (int i = 0; i < tilewright_device_count; ++i)
        if (tilewright_devices[i].multiprocessors == many &&
            strcmp(tilewright_devices[i].name, name) == 0)
            it->place.is |= (uint64_t)1 << i;
    return TW_OK;
}

/* Under the lock: make the current context's node. */
static tw_status add_context(unsigned long long id, tilewright_context **made)
{
    const size_t count = (size_t)tilewright_code_count;
    tilewright_context *it = find_context(id);
    if (it == NULL) {
        it = calloc(1, sizeof *it + count * sizeof it->loaded[0]);
        if (it == NULL)
            return TW_NO_MEMORY;
        const tw_status status = look_at_device(it);
        if (status || pthread_mutex_init(&it->workspace_lock, NULL) != 0) {
            free(it);
            return status ? status : TW_NO_MEMORY;
        }
        for (size_t i = 0; i < count; ++i)
            atomic_init(&it->loaded[i].function, NULL);
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
    tw_status status = need_driver();
    if (status)
        return status;
    const int result = tilewright_driver.context_id(NULL, &id);
    /* Nothing else about these arguments could be invalid. */
    if (result == CUDA_INVALID_VALUE || result == CUDA_CONTEXT_IS_DESTROYED)
        return TW_NO_CONTEXT;
    if (result != TILEWRIGHT_CUDA_SUCCESS)
        return tilewright_status_of(result);
    *here = find_context(id);
    if (*here != NULL)
        return TW_OK;
    pthread_mutex_lock(&lock);
    status = add_context(id, here);
    pthread_mutex_unlock(&lock);
    return status;
}

tilewright_place tilewright_here(void)
{
    tilewright_context *here;
    const tilewright_place first = {tilewright_devices[0].multiprocessors, 1};
    return tilewright_current(&here) == TW_OK ? here->place : first;
}

/* ---- Machine code ----------------------------------------------------------- */

/* Under the lock: load a code into the current context and publish its functions. */
static tw_status load(tilewright_context *here, int code)
{
    const tilewright_code *const it = &tilewright_codes[code];
    tilewright_loaded *const into = &here->loaded[code];
    void *module, *function, *second = NULL;
    int result;
    if (atomic_load_explicit(&into->function, memory_order_relaxed) != NULL)
        return TW_OK;
    result = tilewright_driver.load(&module, it->image);
    if (result != TILEWRIGHT_CUDA_SUCCESS)
        return tilewright_status_of(result);
    result = tilewright_driver.function(&function, module, it->symbol);
    if (result == TILEWRIGHT_CUDA_SUCCESS && it->second != NULL)
        result = tilewright_driver.function(&second, module, it->second);
    if (result == TILEWRIGHT_CUDA_SUCCESS && it->shared_bytes > 0)
        result = tilewright_driver.set_attribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                 (int)it->shared_bytes);
    if (result != TILEWRIGHT_CUDA_SUCCESS) {
        tilewright_driver.unload(module);
        return tilewright_status_of(result);
    }
    into->module = module;
    into->second = second;
    atomic_store_explicit(&into->function, function, memory_order_release);
    return TW_OK;
}

tw_status tilewright_function(tilewright_context *here, int code, void **function, void **second)
{
    tilewright_loaded *const from = &here->loaded[code];
    *function = atomic_load_explicit(&from->function, memory_order_acquire);
    if (*function == NULL) {
        pthread_mutex_lock(&lock);
        const tw_status status = load(here, code);
        pthread_mutex_unlock(&lock);
        if (status)
            return status;
        *function = atomic_load_explicit(&from->function, memory_order_acquire);
    }
    *second = from->second;
    return TW_OK;
}

tw_status tw_load(void)
{
    tilewright_context *here;
    tw_status status = tilewright_current(&here);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    for (int code = 0; status == TW_OK && code < tilewright_code_count; ++code)
        status = load(here, code);
    pthread_mutex_unlock(&lock);
    return status;
}

tw_status tw_unload(void)
{
    tilewright_context *here;
    tw_status status = tilewright_current(&here);
    if (status)
        return status;
    status = tilewright_forget_workspaces(here);
    pthread_mutex_lock(&lock);
    for (int code = 0; code < tilewright_code_count; ++code) {
        tilewright_loaded *const it = &here->loaded[code];
        if (it->module == NULL)
            continue;
        atomic_store_explicit(&it->function, NULL, memory_order_relaxed);
        const int result = tilewright_driver.unload(it->module);
        it->module = it->second = NULL;
        if (result != TILEWRIGHT_CUDA_SUCCESS && status == TW_OK)
            status = tilewright_status_of(result);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

const char *tilewright_driver_says(int result)
{
    const char *text = NULL;
    if (need_driver() != TW_OK ||
        tilewright_driver.error_string(result, &text) != TILEWRIGHT_CUDA_SUCCESS)
        return NULL;
    return text;
}
