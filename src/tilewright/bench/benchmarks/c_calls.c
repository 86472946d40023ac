/* Products of an exported library and of cuBLAS, timed interleaved; see c_calls.py, which builds and
 * runs this.
 *
 *     c_calls CUBLAS DEVICE
 *
 * Reads a product a line, "PRECISION ORDER TRANSA TRANSB M N K", ORDER being F or C, and answers each
 * with a line: "ok", microseconds a call of ours, of cuBLAS with its own workspace and with one of
 * WORKSPACE bytes, a sum over the bits of our C, and the largest difference from cuBLAS's C over its
 * largest element; or "error" and what failed.
 *
 * Matrices have no gaps.  Their reals, uniform in [-1, 1), repeat after PERIOD; B begins with another
 * one than A. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tilewright_gemm.h"

enum { OURS, OWN, LARGE, CALLS }; /* who computes: we, cuBLAS with its workspace, with a large one */
enum { DEFAULT_MATH = 0 };        /* cublas_api.h: CUBLAS_DEFAULT_MATH */

typedef unsigned long long pointer;

/* ---- Libraries ------------------------------------------------------------------------ */

static struct {
    int (*init)(unsigned);
    int (*device)(int *, int);
    int (*retain)(void **, int);
    int (*use)(void *);
    int (*allocate)(pointer *, size_t);
    int (*free)(pointer);
    int (*upload)(pointer, const void *, size_t);
    int (*download)(void *, pointer, size_t);
    int (*copy)(pointer, pointer, size_t);
    int (*fill)(pointer, unsigned char, size_t);
    int (*wait)(void);
} cu;

typedef int gemm_64(void *, int, int, int64_t, int64_t, int64_t, const void *, const void *, int64_t,
                    const void *, int64_t, const void *, void *, int64_t);

static struct {
    int (*create)(void **);
    int (*math)(void *, int);
    int (*workspace)(void *, void *, size_t);
    gemm_64 *gemm[4];
} blas;

static const char letters[] = "sdcz";

static void *opened(const char *name)
{
    void *const found = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

/* POSIX lets a function's address be read as an object's. */
static void find(void *library, const char *name, void *function)
{
    void *const found = dlsym(library, name);
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

static void begin(const char *cublas, int ordinal, void *handles[CALLS])
{
    void *const driver = opened("libcuda.so.1"), *const library = opened(cublas);
    find(driver, "cuInit", &cu.init);
    find(driver, "cuDeviceGet", &cu.device);
    find(driver, "cuDevicePrimaryCtxRetain", &cu.retain);
    find(driver, "cuCtxSetCurrent", &cu.use);
    find(driver, "cuMemAlloc_v2", &cu.allocate);
    find(driver, "cuMemFree_v2", &cu.free);
    find(driver, "cuMemcpyHtoD_v2", &cu.upload);
    find(driver, "cuMemcpyDtoH_v2", &cu.download);
    find(driver, "cuMemcpyDtoD_v2", &cu.copy);
    find(driver, "cuMemsetD8_v2", &cu.fill);
    find(driver, "cuCtxSynchronize", &cu.wait);
    find(library, "cublasCreate_v2", &blas.create);
    find(library, "cublasSetMathMode", &blas.math);
    find(library, "cublasSetWorkspace_v2", &blas.workspace);
    find(library, "cublasSgemm_v2_64", &blas.gemm[0]);
    find(library, "cublasDgemm_v2_64", &blas.gemm[1]);
    find(library, "cublasCgemm_v2_64", &blas.gemm[2]);
    find(library, "cublasZgemm_v2_64", &blas.gemm[3]);

    void *context;
    int device;
    must(cu.init(0), "cuInit");
    must(cu.device(&device, ordinal), "cuDeviceGet");
    must(cu.retain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cu.use(context), "cuCtxSetCurrent");
    for (int who = OWN; who < CALLS; ++who) {
        must(blas.create(&handles[who]), "cublasCreate");
        must(blas.math(handles[who], DEFAULT_MATH), "cublasSetMathMode");
    }
    pointer workspace;
    must(cu.allocate(&workspace, WORKSPACE), "cuMemAlloc");
    must(blas.workspace(handles[LARGE], (void *)(uintptr_t)workspace, WORKSPACE),
         "cublasSetWorkspace");
}

/* ---- Products ------------------------------------------------------------------------- */

typedef struct {
    char letter, order, trans_a, trans_b;
    int64_t m, n, k;
    pointer a, b, ours, theirs;
    void **handles;
} product;

static int at_of(char letter) { return (int)(strchr(letters, letter) - letters); }
static size_t real_bytes(char letter) { return letter == 's' || letter == 'c' ? 4 : 8; }
static int64_t words_of(char letter) { return letter == 's' || letter == 'd' ? 1 : 2; }
static int operation(char trans) { return trans == 'N' ? 0 : trans == 'T' ? 1 : 2; }
static int64_t at_least_one(int64_t x) { return x > 1 ? x : 1; }

static const float single[4] = {1, 0, 0, 0};
static const double twice[4] = {1, 0, 0, 0};

static int call(const product *p, int who)
{
    const void *const one = real_bytes(p->letter) == 4 ? (const void *)single : (const void *)twice;
    const void *const zero = real_bytes(p->letter) == 4 ? (const void *)(single + 2)
                                                        : (const void *)(twice + 2);
    const void *const a = (const void *)(uintptr_t)p->a, *const b = (const void *)(uintptr_t)p->b;
    const int rows = p->order == 'C';
    const int64_t a_rows = p->trans_a == 'N' ? p->m : p->k, a_columns = p->trans_a == 'N' ? p->k : p->m;
    const int64_t b_rows = p->trans_b == 'N' ? p->k : p->n, b_columns = p->trans_b == 'N' ? p->n : p->k;
    const int64_t lda = at_least_one(rows ? a_columns : a_rows);
    const int64_t ldb = at_least_one(rows ? b_columns : b_rows);
    const int64_t ldc = at_least_one(rows ? p->n : p->m);
    if (who == OURS)
        return tw_gemm(p->letter, rows ? TW_ROW_MAJOR : TW_COL_MAJOR, p->trans_a, p->trans_b, p->m,
                       p->n, p->k, one, a, lda, b, ldb, zero, (void *)(uintptr_t)p->ours, ldc, NULL);
    gemm_64 *const gemm = blas.gemm[at_of(p->letter)];
    void *const c = (void *)(uintptr_t)p->theirs;
    if (rows) /* C^T = op(B)^T op(A)^T */
        return gemm(p->handles[who], operation(p->trans_b), operation(p->trans_a), p->n, p->m, p->k,
                    one, b, ldb, a, lda, zero, c, ldc);
    return gemm(p->handles[who], operation(p->trans_a), operation(p->trans_b), p->m, p->n, p->k, one,
                a, lda, b, ldb, zero, c, ldc);
}

/* ---- Time ------------------------------------------------------------------------------ */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Nanoseconds a call; below 0 where one failed. */
static double batch(const product *p, int who, int count)
{
    int status = cu.wait();
    const double started = now();
    for (int i = 0; i < count; ++i)
        status |= call(p, who);
    status |= cu.wait();
    return status ? -1 : (now() - started) / count;
}

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Median nanoseconds a call of each; who failed, or CALLS. */
static int interleaved(const product *p, double median[CALLS])
{
    double times[CALLS][ROUNDS], shortest = BATCH_NS;
    for (int who = 0; who < CALLS; ++who) { /* chosen and loaded */
        if (batch(p, who, 1) < 0)
            return who;
        const double taken = batch(p, who, 2);
        shortest = taken < shortest ? taken : shortest;
    }
    const double fitting = BATCH_NS / shortest;
    const int count = fitting > MOST_CALLS ? MOST_CALLS : (int)(fitting + 0.5);
    const int rounds = count > 1 ? ROUNDS : 3;
    for (int round = 0; round < rounds; ++round)
        for (int who = 0; who < CALLS; ++who)
            if ((times[who][round] = batch(p, who, count)) < 0)
                return who;
    for (int who = 0; who < CALLS; ++who) {
        qsort(times[who], (size_t)rounds, sizeof *times[who], ascending);
        median[who] = times[who][rounds / 2];
    }
    return CALLS;
}

/* ---- Numbers --------------------------------------------------------------------------- */

/* Steele, Lea & Flood (2014), SplitMix64: the i-th number of the sequence from 0 on. */
static uint64_t drawn(uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* All numbers on the device, of floats or doubles; once for each. */
static pointer period(size_t bytes)
{
    static pointer made[2];
    pointer *const it = &made[bytes == 8];
    if (*it != 0)
        return *it;
    char *const host = malloc(PERIOD * bytes);
    if (host == NULL)
        return 0;
    for (uint64_t i = 0; i < PERIOD; ++i)
        if (bytes == 8)
            ((double *)(void *)host)[i] = (double)(drawn(i) >> 11) * 0x1p-52 - 1;
        else
            ((float *)(void *)host)[i] = (float)(drawn(i) >> 40) * 0x1p-23f - 1;
    must(cu.allocate(it, PERIOD * bytes), "cuMemAlloc");
    must(cu.upload(*it, host, PERIOD * bytes), "cuMemcpyHtoD");
    free(host);
    return *it;
}

/* Device memory with numbers from the `first` one on; 0 where there is too little. */
static pointer operand(int64_t elements, char letter, uint64_t first)
{
    const size_t bytes = real_bytes(letter);
    const uint64_t count = (uint64_t)(elements * words_of(letter));
    const pointer from = period(bytes);
    pointer made;
    if (from == 0 || cu.allocate(&made, count * bytes))
        return 0;
    uint64_t at = first % PERIOD;
    for (uint64_t done = 0; done < count; at = 0) {
        const uint64_t left = PERIOD - at, part = left < count - done ? left : count - done;
        must(cu.copy(made + done * bytes, from + at * bytes, part * bytes), "cuMemcpyDtoD");
        done += part;
    }
    return made;
}

/* ---- Results --------------------------------------------------------------------------- */

static double number(const void *from, uint64_t i, size_t bytes)
{
    return bytes == 8 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

/* Largest difference over the largest number; not a number where one is none. */
static double difference(const void *ours, const void *theirs, uint64_t count, size_t bytes)
{
    double most = 0, scale = 0;
    for (uint64_t i = 0; i < count; ++i) {
        const double x = number(ours, i, bytes), y = number(theirs, i, bytes);
        if (!(fabs(x - y) <= most))
            most = fabs(x - y);
        if (isnan(most))
            return most;
        scale = fabs(y) > scale ? fabs(y) : scale;
    }
    return scale > 0 ? most / scale : most;
}

static uint64_t sum_of(const void *of, size_t bytes)
{
    const uint32_t *const words = of;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < bytes / sizeof *words; ++i)
        sum += words[i] * (2 * i + 1);
    return sum;
}

static const char *compared(const product *p, const double times[CALLS])
{
    const uint64_t count = (uint64_t)(p->m * p->n * words_of(p->letter));
    const size_t bytes = real_bytes(p->letter);
    void *const ours = malloc(count * bytes), *const theirs = malloc(count * bytes);
    const char *failed = ours == NULL || theirs == NULL ? "the host's memory" : NULL;
    if (failed == NULL && (cu.download(ours, p->ours, count * bytes) ||
                           cu.download(theirs, p->theirs, count * bytes)))
        failed = "a download";
    if (failed == NULL)
        printf("ok %.9g %.9g %.9g %" PRIu64 " %.9g\n", times[OURS] / 1e3, times[OWN] / 1e3,
               times[LARGE] / 1e3, sum_of(ours, count * bytes),
               difference(ours, theirs, count, bytes));
    free(ours);
    free(theirs);
    return failed;
}

/* Answer a product whose memory is there; what failed, or null. */
static const char *timed(const product *p)
{
    static const char *const names[CALLS] = {"our call", "cuBLAS", "cuBLAS with a workspace"};
    const size_t bytes = (size_t)(p->m * p->n * words_of(p->letter)) * real_bytes(p->letter);
    double times[CALLS];
    /* Bytes of not-a-numbers: what nobody writes shows. */
    if (cu.fill(p->ours, 0xff, bytes) || cu.fill(p->theirs, 0xff, bytes))
        return "filling C";
    const int who = interleaved(p, times);
    return who < CALLS ? names[who] : compared(p, times);
}

static const char *answered(product *p)
{
    p->a = operand(p->m * p->k, p->letter, 0);
    p->b = operand(p->k * p->n, p->letter, SECOND);
    p->ours = operand(p->m * p->n, p->letter, 0);
    p->theirs = operand(p->m * p->n, p->letter, 0);
    const pointer all[] = {p->a, p->b, p->ours, p->theirs};
    const char *failed = all[0] && all[1] && all[2] && all[3] ? timed(p) : "the device's memory";
    for (int i = 0; i < 4; ++i)
        if (all[i] && cu.free(all[i]))
            failed = "freeing memory";
    return failed;
}

int main(int count, char **words)
{
    void *handles[CALLS] = {NULL};
    char line[256];
    if (count != 3) {
        fprintf(stderr, "usage: %s CUBLAS DEVICE\n", words[0]);
        return 2;
    }
    begin(words[1], atoi(words[2]), handles);
    while (fgets(line, sizeof line, stdin) != NULL) {
        product p = {.handles = handles};
        const int read = sscanf(line, "%c %c %c %c %" SCNd64 " %" SCNd64 " %" SCNd64, &p.letter,
                                &p.order, &p.trans_a, &p.trans_b, &p.m, &p.n, &p.k);
        const int known = read == 7 && p.letter && strchr(letters, p.letter) != NULL;
        const char *const failed = known ? answered(&p) : "reading the product";
        if (failed != NULL)
            printf("error %s failed\n", failed);
        fflush(stdout);
    }
    return 0;
}
