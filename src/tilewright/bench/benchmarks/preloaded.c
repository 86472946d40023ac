/* A program that calls cuBLAS and knows nothing of what is preloaded; see preloaded.py, which runs it
 * with and without.
 *
 *     preloaded CUBLAS DEVICE times       a line for each kind of call: its name, and nanoseconds of the
 *                                         host, the median of batches on an idle device
 *     preloaded CUBLAS DEVICE SECONDS     THREADS threads, each with a handle and a stream of its own,
 *                                         whose results keep their bits; a line: calls, failures, and
 *                                         KB of the host and of the device more at the end than after
 *                                         a fifth of the time
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long pointer;

enum { THREADS = 16, SIDE = 512, BATCHES = 201, CALLS = 16 };
enum { TF32_MATH = 3, REAL_32 = 0, REAL_16 = 2, COMPUTE_32 = 68, COMPUTE_TF32 = 77 };
enum { WHOLE = SIDE * SIDE * 4 };

static struct {
    int (*init)(unsigned);
    int (*device)(int *, int);
    int (*retain)(void **, int);
    int (*use)(void *);
    int (*allocate)(pointer *, size_t);
    int (*upload)(pointer, const void *, size_t);
    int (*download)(void *, pointer, size_t);
    int (*wait)(void);
    int (*stream)(void **, unsigned);
    int (*wait_for)(void *);
    int (*memory)(size_t *, size_t *);
} cu;

static struct {
    int (*create)(void **);
    int (*destroy)(void *);
    int (*math)(void *, int);
    int (*stream)(void *, void *);
    int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, const void *, int,
                const void *, void *, int);
    int (*batch)(void *, int, int, int, int, int, const void *, const void *, int, long long,
                 const void *, int, long long, const void *, void *, int, long long, int);
    int (*typed)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *,
                 int, int, const void *, void *, int, int, int, int);
} blas;

static struct {
    int (*create)(void **);
    int (*product)(void **, int, int);
    int (*layout)(void **, int, uint64_t, uint64_t, int64_t);
    int (*multiply)(void *, void *, const void *, const void *, void *, const void *, void *,
                    const void *, const void *, void *, void *, void *, const void *, void *, size_t,
                    void *);
} lt;

static const float one = 1, zero = 0;
static void *context;
static pointer a, b;

/* Where the loader finds a name for a program that is linked: in what is preloaded first. */
static void find(const char *name, void *function)
{
    void *const found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL) {
        fprintf(stderr, "there is no %s\n", name);
        exit(1);
    }
    memcpy(function, &found, sizeof found);
}

static void must(int status, const char *doing)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s failed: status %d\n", doing, status);
    exit(1);
}

static void begin(const char *cublas, int ordinal)
{
    const char *const files[] = {"libcuda.so.1", cublas, "libcublasLt.so.13"};
    static float numbers[SIDE * SIDE];
    int device;
    for (int i = 0; i < 3; ++i)
        if (dlopen(files[i], RTLD_NOW | RTLD_GLOBAL) == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
    find("cuInit", &cu.init);
    find("cuDeviceGet", &cu.device);
    find("cuDevicePrimaryCtxRetain", &cu.retain);
    find("cuCtxSetCurrent", &cu.use);
    find("cuMemAlloc_v2", &cu.allocate);
    find("cuMemcpyHtoD_v2", &cu.upload);
    find("cuMemcpyDtoH_v2", &cu.download);
    find("cuCtxSynchronize", &cu.wait);
    find("cuStreamCreate", &cu.stream);
    find("cuStreamSynchronize", &cu.wait_for);
    find("cuMemGetInfo_v2", &cu.memory);
    find("cublasCreate_v2", &blas.create);
    find("cublasDestroy_v2", &blas.destroy);
    find("cublasSetMathMode", &blas.math);
    find("cublasSetStream_v2", &blas.stream);
    find("cublasSgemm_v2", &blas.gemm);
    find("cublasSgemmStridedBatched", &blas.batch);
    find("cublasGemmEx", &blas.typed);
    find("cublasLtCreate", &lt.create);
    find("cublasLtMatmulDescCreate", &lt.product);
    find("cublasLtMatrixLayoutCreate", &lt.layout);
    find("cublasLtMatmul", &lt.multiply);
    must(cu.init(0), "cuInit");
    must(cu.device(&device, ordinal), "cuDeviceGet");
    must(cu.retain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cu.use(context), "cuCtxSetCurrent");
    must(cu.allocate(&a, WHOLE) || cu.allocate(&b, WHOLE), "cuMemAlloc");
    for (int i = 0; i < SIDE * SIDE; ++i)
        numbers[i] = (float)(i * 7919 % 1013) / 1013 - 0.5f;
    must(cu.upload(a, numbers, WHOLE) || cu.upload(b, numbers, WHOLE), "cuMemcpyHtoD");
}

/* ---- Times ------------------------------------------------------------------------------ */

static void *handle, *light, *how, *matrix, *narrow, *narrow_matrix;
static pointer c;

static int sgemm(int side)
{
    return blas.gemm(handle, 0, 0, side, side, side, &one, (void *)(uintptr_t)a, SIDE,
                     (void *)(uintptr_t)b, SIDE, &zero, (void *)(uintptr_t)c, SIDE);
}

static int strided(int side)
{
    return blas.batch(handle, 0, 0, side, side, side, &one, (void *)(uintptr_t)a, SIDE, side * SIDE,
                      (void *)(uintptr_t)b, SIDE, side * SIDE, &zero, (void *)(uintptr_t)c, SIDE,
                      side * SIDE, 8);
}

static int half(int side)
{
    return blas.typed(handle, 0, 0, side, side, side, &one, (void *)(uintptr_t)a, REAL_16, SIDE,
                      (void *)(uintptr_t)b, REAL_16, SIDE, &zero, (void *)(uintptr_t)c, REAL_16, SIDE,
                      COMPUTE_32, -1);
}

static int by_lt(void *product, void *of)
{
    const void *const x = (void *)(uintptr_t)a, *const y = (void *)(uintptr_t)b;
    void *const to = (void *)(uintptr_t)c;
    return lt.multiply(light, product, &one, x, of, y, of, &zero, to, of, to, of, NULL, NULL, 0, NULL);
}

/* Of the descriptors' size. */
static int tf32_lt(int side) { return side ? by_lt(how, matrix) : 0; }
static int half_lt(int side) { return side ? by_lt(narrow, narrow_matrix) : 0; }

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void *x, const void *y)
{
    const double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

static void report(const char *name, int (*call)(int), int side)
{
    double times[BATCHES];
    must(call(side), name);
    for (int i = 0; i < BATCHES; ++i) {
        must(cu.wait(), "cuCtxSynchronize");
        const double started = now();
        int status = 0;
        for (int j = 0; j < CALLS; ++j)
            status |= call(side);
        times[i] = (now() - started) / CALLS;
        must(status, name);
    }
    must(cu.wait(), "cuCtxSynchronize");
    qsort(times, BATCHES, sizeof *times, ascending);
    printf("%s|%.1f\n", name, times[BATCHES / 2]);
}

static void time_calls(void)
{
    must(blas.create(&handle), "cublasCreate");
    must(cu.allocate(&c, WHOLE), "cuMemAlloc");
    must(lt.create(&light), "cublasLtCreate");
    must(lt.product(&how, COMPUTE_TF32, REAL_32), "cublasLtMatmulDescCreate");
    must(lt.product(&narrow, COMPUTE_32, REAL_32), "cublasLtMatmulDescCreate");
    must(lt.layout(&matrix, REAL_32, 64, 64, SIDE), "cublasLtMatrixLayoutCreate");
    must(lt.layout(&narrow_matrix, REAL_16, 64, 64, SIDE), "cublasLtMatrixLayoutCreate");
    report("SGEMM 64 x 64 x 64, served", sgemm, 64);
    report("SGEMM 512 x 512 x 512, served", sgemm, 512);
    report("8 SGEMMs 64 x 64 x 64 in a batch, served", strided, 64);
    report("float16, 64 x 64 x 64, passed on", half, 64);
    report("float16, of nothing, passed on", half, 0);
    report("cublasLt, TF32, 64 x 64 x 64, passed on", tf32_lt, 64);
    report("cublasLt, float16, 64 x 64 x 64, passed on", half_lt, 64);
    must(blas.math(handle, TF32_MATH), "cublasSetMathMode");
    report("SGEMM in TF32, 64 x 64 x 64, passed on", sgemm, 64);
    report("SGEMM in TF32, of nothing, passed on", sgemm, 0);
}

/* ---- Threads ---------------------------------------------------------------------------- */

static const int sides[] = {16, 64, 100, 128, 257, 384, 512};
enum { SIDES = sizeof sides / sizeof *sides };
static atomic_llong calls, failures;
static atomic_int ends;

static void *work(void *number)
{
    float *known[SIDES] = {NULL};
    float *const found = malloc(WHOLE);
    void *mine, *stream;
    pointer to;
    if (found == NULL || cu.use(context) || cu.stream(&stream, 1) || cu.allocate(&to, WHOLE) ||
        blas.create(&mine) || blas.stream(mine, stream)) {
        atomic_fetch_add(&failures, 1);
        return NULL;
    }
    for (long i = (long)(uintptr_t)number; !atomic_load(&ends); ++i) {
        const int at = (int)(i % SIDES), side = sides[at];
        int status = 0;
        for (int j = 0; j < CALLS; ++j)
            status |= blas.gemm(mine, 0, 1, side, side, side, &one, (void *)(uintptr_t)a, SIDE,
                                (void *)(uintptr_t)b, SIDE, &zero, (void *)(uintptr_t)to, SIDE);
        status |= cu.wait_for(stream) | cu.download(found, to, WHOLE);
        /* Columns beyond the result are another size's. */
        if (known[at] == NULL && (known[at] = malloc(WHOLE)) != NULL)
            memcpy(known[at], found, WHOLE);
        for (int column = 0; column < side && known[at] != NULL; ++column)
            status |= memcmp(known[at] + column * SIDE, found + column * SIDE, (size_t)side * 4) != 0;
        atomic_fetch_add(&calls, CALLS);
        if (status)
            atomic_fetch_add(&failures, 1);
    }
    for (int i = 0; i < SIDES; ++i)
        free(known[i]);
    free(found);
    if (blas.destroy(mine))
        atomic_fetch_add(&failures, 1);
    return NULL;
}

/* Kilobytes of the host that are resident, and of the device that are taken. */
static void look(long *host, long *device)
{
    size_t left = 0, all = 0;
    long pages = 0, resident = 0;
    FILE *const from = fopen("/proc/self/statm", "r");
    if (from != NULL && fscanf(from, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (from != NULL)
        fclose(from);
    *host = resident * (sysconf(_SC_PAGESIZE) / 1024);
    must(cu.memory(&left, &all), "cuMemGetInfo");
    *device = (long)((all - left) / 1024);
}

static void sleep_for(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static void run_threads(double seconds)
{
    pthread_t threads[THREADS];
    long host[2], device[2];
    for (int i = 0; i < THREADS; ++i)
        must(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), "pthread_create");
    sleep_for(seconds / 5);
    look(&host[0], &device[0]);
    sleep_for(seconds * 4 / 5);
    look(&host[1], &device[1]);
    atomic_store(&ends, 1);
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    printf("%lld|%lld|%ld|%ld\n", (long long)atomic_load(&calls), (long long)atomic_load(&failures),
           host[1] - host[0], device[1] - device[0]);
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    begin(words[1], atoi(words[2]));
    if (strcmp(words[3], "times") == 0)
        time_calls();
    else
        run_threads(atof(words[3]));
    return 0;
}
