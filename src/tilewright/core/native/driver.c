/* The driver's functions, found without linking to it. */
#include "core.h"

#include <dlfcn.h>
#include <string.h>

tilewright_cu tilewright_driver;

/* cuda.h: names with the version that these prototypes are of. */
static const char *const names[] = {
    "cuCtxGetCurrent",  "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
    "cuLaunchKernelEx", "cuTensorMapReplaceAddress", "cuStreamIsCapturing",
    "cuStreamGetId",    "cuMemAllocAsync",     "cuMemFreeAsync",
    "cuMemsetD8Async"};

/* Drivers before CUDA 12 know no tensor maps, and no kernel that takes one. */
enum { NAMES = sizeof names / sizeof *names, MOVE_MAP = 4 };

int tilewright_find_driver(void)
{
    void *found[NAMES];
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return 0;
    for (int i = 0; i < NAMES; ++i) {
        found[i] = dlsym(library, names[i]);
        if (found[i] == NULL && i != MOVE_MAP) {
            dlclose(library);
            return 0;
        }
    }
    _Static_assert(sizeof found == sizeof tilewright_driver, "a name for each function");
    memcpy(&tilewright_driver, found, sizeof found);
    return 1;
}
