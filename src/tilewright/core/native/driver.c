/* The driver's functions, found without linking to it. */
#include "core.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

tilewright_cu tilewright_driver;

/* cuda.h: names with the version that these prototypes are of. */
static const char *const names[] = {
    "cuCtxGetCurrent",  "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
    "cuLaunchKernelEx", "cuTensorMapReplaceAddress", "cuStreamIsCapturing",
    "cuStreamGetId",    "cuMemAllocAsync",     "cuMemFreeAsync",
    "cuMemsetD8Async",  "cuMemFree_v2",        "cuCtxSynchronize",
    "cuThreadExchangeStreamCaptureMode", "cuCtxGetId", "cuCtxGetDevice",
    "cuDeviceGetAttribute", "cuDeviceTotalMem_v2",
    "cuModuleLoadData", "cuModuleUnload",      "cuModuleGetFunction",
    "cuFuncSetAttribute", "cuGetErrorString",  "cuTensorMapEncodeTiled",
    "cuEventCreate",    "cuEventRecord"};

/* Some drivers know no tensor maps, and no kernel that takes one. */
enum { NAMES = sizeof names / sizeof *names, MOVE_MAP = 4, ENCODE_MAP = 22 };

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static int is_here;

/* The library stays open: a program's driver is there to its end. */
static void look(void)
{
    void *found[NAMES];
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    for (int i = 0; i < NAMES; ++i) {
        found[i] = dlsym(library, names[i]);
        if (found[i] == NULL && i != MOVE_MAP && i != ENCODE_MAP) {
            dlclose(library);
            return;
        }
    }
    _Static_assert(sizeof found == sizeof tilewright_driver, "a name for each function");
    memcpy(&tilewright_driver, found, sizeof found);
    is_here = 1;
}

int tilewright_find_driver(void)
{
    return pthread_once(&looked, look) == 0 && is_here;
}
