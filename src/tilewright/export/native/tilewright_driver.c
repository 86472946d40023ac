/* The driver, found when it is first needed, and kernels loaded into contexts.
 *
 * Every context that was ever used has a node in a list that only grows at its head:
 *
 *     contexts -> | id | functions[kernels] | -> | id | functions[kernels] | -> null
 *
 * A call finds its context's node by the driver's id, which is never used again when a context
 * is destroyed (its address may be), and its kernel's function in the node.  Both are read with
 * acquire loads and no lock (C11 atomics).  Whoever finds one missing takes the lock, looks
 * again, and publishes what it made with a release store.
 */
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tilewright_internal.h"

#ifdef __STDC_NO_ATOMICS__
#error "this library needs C11 atomics"
#endif

/* Of cuda.h; its handles are pointers. */
enum {
    CUDA_SUCCESS = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_NO_BINARY = 209,
    CUDA_CONTEXT_IS_DESTROYED = 709
};
enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

static struct {
    int (*context_id)(void *context, unsigned long long *id);
    int (*load)(void **module, const void *image);
    int (*unload)(void *module);
    int (*function)(void **function, void *module, const char *name);
    int (*set_attribute)(void *function, int attribute, int value);
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  tw_stream stream, void **arguments, void **extra);
    int (*error_string)(int result, const char **text);
} driver;

typedef struct context {
    unsigned long long id;
    struct context *next;
    void **modules;              /* looked at under the lock only */
    _Atomic(void *) functions[]; /* null where not loaded */
} context;

static atomic_int driver_is_here;
static _Atomic(context *) contexts;
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
    if (atomic_load_explicit(&driver_is_here, memory_order_relaxed))
        return TW_OK;
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return TW_NO_DRIVER;
    if (!find(library, "cuCtxGetId", &driver.context_id) ||
        !find(library, "cuModuleLoadData", &driver.load) ||
        !find(library, "cuModuleUnload", &driver.unload) ||
        !find(library, "cuModuleGetFunction", &driver.function) ||
        !find(library, "cuFuncSetAttribute", &driver.set_attribute) ||
        !find(library, "cuLaunchKernel", &driver.launch) ||
        !find(library, "cuGetErrorString", &driver.error_string)) {
        dlclose(library);
        return TW_NO_DRIVER;
    }
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

static tw_status status_of(int result)
{
    switch (result) {
    case CUDA_SUCCESS: return TW_OK;
    case CUDA_NOT_INITIALIZED:
    case CUDA_INVALID_CONTEXT: return TW_NO_CONTEXT;
    case CUDA_NO_BINARY: return TW_WRONG_DEVICE;
    default: return TW_CUDA + result;
    }
}

static tw_status current_context(unsigned long long *id)
{
    const tw_status status = need_driver();
    if (status)
        return status;
    const int result = driver.context_id(NULL, id);
    /* Nothing else about these arguments could be invalid. */
    if (result == CUDA_INVALID_VALUE || result == CUDA_CONTEXT_IS_DESTROYED)
        return TW_NO_CONTEXT;
    return status_of(result);
}

static context *find_context(unsigned long long id)
{
    context *found = atomic_load_explicit(&contexts, memory_order_acquire);
    while (found != NULL && found->id != id)
        found = found->next;
    return found;
}

/* Under the lock: the context's node, made if it is missing; null without memory. */
static context *need_context(unsigned long long id)
{
    const size_t count = (size_t)tilewright_kernel_count;
    context *made = find_context(id);
    if (made != NULL)
        return made;
    made = calloc(1, sizeof *made + count * sizeof made->functions[0]);
    if (made == NULL)
        return NULL;
    made->modules = calloc(count, sizeof *made->modules);
    if (made->modules == NULL) {
        free(made);
        return NULL;
    }
    for (size_t i = 0; i < count; ++i)
        atomic_init(&made->functions[i], NULL);
    made->id = id;
    made->next = atomic_load_explicit(&contexts, memory_order_relaxed);
    atomic_store_explicit(&contexts, made, memory_order_release);
    return made;
}

/* Under the lock: load a kernel into the current context and publish its function. */
static tw_status load(context *here, int kernel)
{
    const tilewright_kernel *const it = &tilewright_kernels[kernel];
    void *module, *function;
    int result;
    if (atomic_load_explicit(&here->functions[kernel], memory_order_relaxed) != NULL)
        return TW_OK;
    result = driver.load(&module, it->image);
    if (result != CUDA_SUCCESS)
        return status_of(result);
    result = driver.function(&function, module, it->name);
    if (result == CUDA_SUCCESS && it->dynamic_shared_bytes > 0)
        result = driver.set_attribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      (int)it->dynamic_shared_bytes);
    if (result != CUDA_SUCCESS) {
        driver.unload(module);
        return status_of(result);
    }
    here->modules[kernel] = module;
    atomic_store_explicit(&here->functions[kernel], function, memory_order_release);
    return TW_OK;
}

/* Load the kernels from `first` up to `end` into the current context. */
static tw_status load_some(unsigned long long id, int first, int end)
{
    pthread_mutex_lock(&lock);
    context *const here = need_context(id);
    tw_status status = here == NULL ? TW_NO_MEMORY : TW_OK;
    for (int kernel = first; status == TW_OK && kernel < end; ++kernel)
        status = load(here, kernel);
    pthread_mutex_unlock(&lock);
    return status;
}

tw_status tilewright_launch(int kernel, const unsigned grid[2], void **arguments, tw_stream stream)
{
    const tilewright_kernel *const it = &tilewright_kernels[kernel];
    unsigned long long id;
    void *function = NULL;
    tw_status status = current_context(&id);
    if (status)
        return status;
    const context *here = find_context(id);
    if (here != NULL)
        function = atomic_load_explicit(&here->functions[kernel], memory_order_acquire);
    if (function == NULL) {
        status = load_some(id, kernel, kernel + 1);
        if (status)
            return status;
        here = find_context(id);
        function = atomic_load_explicit(&here->functions[kernel], memory_order_acquire);
    }
    return status_of(driver.launch(function, grid[0], grid[1], 1, it->threads_x, it->threads_y, 1,
                                   it->dynamic_shared_bytes, stream, arguments, NULL));
}

tw_status tw_load(void)
{
    unsigned long long id;
    const tw_status status = current_context(&id);
    return status ? status : load_some(id, 0, tilewright_kernel_count);
}

tw_status tw_unload(void)
{
    unsigned long long id;
    tw_status status = current_context(&id);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    context *const here = find_context(id);
    for (int kernel = 0; here != NULL && kernel < tilewright_kernel_count; ++kernel) {
        if (here->modules[kernel] == NULL)
            continue;
        atomic_store_explicit(&here->functions[kernel], NULL, memory_order_relaxed);
        const int result = driver.unload(here->modules[kernel]);
        here->modules[kernel] = NULL;
        if (result != CUDA_SUCCESS && status == TW_OK)
            status = status_of(result);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

const char *tilewright_driver_says(int result)
{
    const char *text = NULL;
    if (need_driver() != TW_OK || driver.error_string(result, &text) != CUDA_SUCCESS)
        return NULL;
    return text;
}
