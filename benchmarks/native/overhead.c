/* What a call of an exported library costs the host, beside the driver's own launch.
 *
 *     overhead CUBIN KERNEL THREADS GRID SHARED SIZE BATCHES CALLS
 *
 * Both launch the kernel that the library chooses for SGEMM NN of SIZE, the second by
 * cuLaunchKernel with everything laid out beforehand.  The queue is emptied between batches and
 * holds a whole one, so that the device is never waited for.  Prints nanoseconds of a call, one
 * line for each batch: the library's, the driver's.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tilewright_gemm.h"

typedef unsigned long long device_pointer;
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuStreamCreate(tw_stream *stream, unsigned flags);
int cuMemAlloc_v2(device_pointer *memory, size_t bytes);
int cuModuleLoad(void **module, const char *file);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuFuncSetAttribute(void *function, int attribute, int value);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   tw_stream stream, void **arguments, void **extra);

enum { NON_BLOCKING = 1, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

static int64_t size;
static device_pointer memory[3];
static tw_stream stream;
static void *function;
static unsigned threads, grid, shared_bytes;

static void must(int result, const char *doing)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s failed: CUDA error %d\n", doing, result);
    exit(1);
}

static int through_library(void)
{
    const float alpha = 1, beta = 0;
    return tw_sgemm(TW_COL_MAJOR, 'N', 'N', size, size, size, &alpha,
                    (const float *)(uintptr_t)memory[0], size,
                    (const float *)(uintptr_t)memory[1], size, &beta,
                    (float *)(uintptr_t)memory[2], size, stream);
}

static int through_driver(void)
{
    static float one = 1, zero = 0;
    static int64_t offset = 0;
    static void *arguments[] = {
        &size, &size, &size, &one, &zero, &memory[0], &offset, &size,
        &memory[1], &offset, &size, &zero, &zero, &memory[2], &offset, &size,
    };
    return cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared_bytes, stream, arguments,
                          NULL);
}

static double batch(int (*call)(void), int calls)
{
    struct timespec begun, ended;
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int i = 0; i < calls; ++i) {
        const int status = call();
        if (status != 0) {
            fprintf(stderr, "a call failed: %d\n", status);
            exit(1);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    return ((double)(ended.tv_sec - begun.tv_sec) * 1e9 + (double)(ended.tv_nsec - begun.tv_nsec)) /
           calls;
}

int main(int count, char **words)
{
    void *context, *module;
    int device;
    if (count != 9) {
        fprintf(stderr, "usage: overhead CUBIN KERNEL THREADS GRID SHARED SIZE BATCHES CALLS\n");
        return 2;
    }
    threads = (unsigned)atoi(words[3]);
    grid = (unsigned)atoi(words[4]);
    shared_bytes = (unsigned)atoi(words[5]);
    size = atoll(words[6]);
    const int batches = atoi(words[7]), calls = atoi(words[8]);
    const char *const chosen = tw_choose('s', TW_COL_MAJOR, 'N', 'N', size, size, size);
    if (chosen == NULL || strcmp(chosen, words[2]) != 0) {
        fprintf(stderr, "the library chooses %s, not %s\n", chosen ? chosen : "nothing", words[2]);
        return 1;
    }
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must(cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
    for (int i = 0; i < 3; ++i)
        must(cuMemAlloc_v2(&memory[i], (size_t)(size * size) * sizeof(float)), "cuMemAlloc");
    must(cuModuleLoad(&module, words[1]), "cuModuleLoad");
    must(cuModuleGetFunction(&function, module, words[2]), "cuModuleGetFunction");
    if (shared_bytes > 0)
        must(cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared_bytes),
             "cuFuncSetAttribute");
    batch(through_library, calls);
    batch(through_driver, calls);
    for (int i = 0; i < batches; ++i) {
        const double ours = batch(through_library, calls);
        printf("%.1f %.1f\n", ours, batch(through_driver, calls));
    }
    return 0;
}
