/* cuBLAS's names, for programs that are not changed: preloaded, they answer in cuBLAS's place.
 *
 *     program -> cublasSgemm_v2 -> served:    tw_sgemm on the handle's stream
 *                               -> passed on: the real cublasSgemm_v2
 *
 * Served are products of float32, float64, complex64 and complex128 by IEEE arithmetic, whose
 * scalars lie in the host's memory.  Passed on unchanged are all others: TF32, scalars on the
 * device, wrong arguments, what there is no kernel for, what a kernel's launch fails for.
 *
 * The environment says what is written down (tilewright_log.h), and
 *
 *     TILEWRIGHT_CUBLAS_COMPARE   not empty: cuBLAS computes each product that is served, too, into
 *                                 memory of its own, and the log has both times; calls then wait
 */
#include "tilewright_log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* Of cublas_api.h and library_types.h. */
enum { POINTERS_ON_HOST = 0, NOT_SUPPORTED = 15, TRANSPOSES = 3 };
enum { DEFAULT_MATH = 0, PEDANTIC_MATH = 2, MATH_MODES = 15 }; /* higher bits: 16-bit results only */
enum { REAL_32 = 0, REAL_64 = 1, COMPLEX_32 = 4, COMPLEX_64 = 5 };
enum { COMPUTE_32 = 68, COMPUTE_32_PEDANTIC = 69, COMPUTE_64 = 70, COMPUTE_64_PEDANTIC = 71 };

typedef int gemm_32(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                    const void *a, int lda, const void *b, int ldb, const void *beta, void *c,
                    int ldc);
typedef int gemm_64(void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k,
                    const void *alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                    const void *beta, void *c, int64_t ldc);
typedef int typed_32(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                     const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                     const void *beta, void *c, int type_c, int ldc, int compute, int algorithm);
typedef int typed_64(void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k,
                     const void *alpha, const void *a, int type_a, int64_t lda, const void *b,
                     int type_b, int64_t ldb, const void *beta, void *c, int type_c, int64_t ldc,
                     int compute, int algorithm);

/* A product as cuBLAS is told it. */
typedef struct {
    int letter; /* of s d c z; -1: none of them */
    void *handle;
    int ta, tb;
    int64_t m, n, k;
    const void *alpha, *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    const void *beta;
    void *c;
    int64_t ldc;
} product;

/* ---- The real library ------------------------------------------------------------ */

/* In the order of their names; null where the library has none. */
typedef struct {
    int (*stream)(void *handle, void **stream);
    int (*pointers)(void *handle, int *mode);
    int (*math)(void *handle, int *mode);
    gemm_32 *gemm[TILEWRIGHT_PRECISIONS];
    gemm_64 *long_gemm[TILEWRIGHT_PRECISIONS];
    typed_32 *typed;
    typed_64 *long_typed;
} cublas_functions;

static const char *const names[] = {
    "cublasGetStream_v2", "cublasGetPointerMode_v2", "cublasGetMathMode",
    "cublasSgemm_v2", "cublasDgemm_v2", "cublasCgemm_v2", "cublasZgemm_v2",
    "cublasSgemm_v2_64", "cublasDgemm_v2_64", "cublasCgemm_v2_64", "cublasZgemm_v2_64",
    "cublasGemmEx", "cublasGemmEx_64"};
enum { NAMES = sizeof names / sizeof *names };

static cublas_functions real;
static pthread_once_t found = PTHREAD_ONCE_INIT;

/* The program has loaded cuBLAS, perhaps where only its file's name finds it. */
static void find(void)
{
    static const char *const files[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *pointers[NAMES], *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof files / sizeof *files; ++i)
        library = dlopen(files[i], RTLD_LAZY | RTLD_NOLOAD);
    for (int i = 0; i < NAMES; ++i)
        pointers[i] = dlsym(library == NULL ? RTLD_NEXT : library, names[i]);
    _Static_assert(sizeof pointers == sizeof real, "a name for each function");
    memcpy(&real, pointers, sizeof real);
}

static const cublas_functions *cublas(void)
{
    pthread_once(&found, find);
    return &real;
}

/* ---- Serving ------------------------------------------------------------------------ */

static int compares(void)
{
    const char *const wanted = getenv("TILEWRIGHT_CUBLAS_COMPARE");
    return tilewright_logs() && wanted != NULL && *wanted;
}

/* Whether cuBLAS would compute by IEEE arithmetic, from scalars on the host; finds the stream. */
static int may_serve(const product *it, void **stream)
{
    const cublas_functions *const of = cublas();
    int pointers, mode;
    if (of->stream == NULL || of->pointers == NULL || of->math == NULL)
        return 0;
    if (of->pointers(it->handle, &pointers) || pointers != POINTERS_ON_HOST)
        return 0;
    if (of->math(it->handle, &mode) || of->stream(it->handle, stream))
        return 0;
    mode &= MATH_MODES;
    return mode == DEFAULT_MATH || mode == PEDANTIC_MATH;
}

static tw_status compute(const product *it, void *stream)
{
    return tw_gemm(tilewright_letters[it->letter], TW_COL_MAJOR, tilewright_operations[it->ta],
                   tilewright_operations[it->tb], it->m, it->n, it->k, it->alpha, it->a, it->lda,
                   it->b, it->ldb, it->beta, it->c, it->ldc, stream);
}

/* Of the driver, for what is compared alone. */
typedef struct {
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int (*wait)(void *event);
    int (*elapsed)(float *ms, void *from, void *to);
    int (*destroy)(void *event);
} timing;

static int find_timing(timing *it)
{
    static const char *const wanted[] = {"cuMemcpyDtoDAsync_v2", "cuEventSynchronize",
                                         "cuEventElapsedTime", "cuEventDestroy_v2"};
    void *pointers[4], *const library = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < 4; ++i) {
        pointers[i] = library == NULL ? NULL : dlsym(library, wanted[i]);
        if (pointers[i] == NULL)
            return 0;
    }
    memcpy(it, pointers, sizeof *it);
    return tilewright_find_driver();
}

/* Let both compute, cuBLAS into memory of its own; times stay 0 where that cannot be. */
static tw_status compare(const product *it, void *stream, double *ours_ms, double *cublas_ms)
{
    gemm_64 *const other_gemm = cublas()->long_gemm[it->letter];
    const tilewright_cu *const cu = &tilewright_driver;
    timing of;
    void *events[3] = {NULL, NULL, NULL};
    uint64_t other = 0;
    int capturing = 1, made = 0;
    float first = 0, second = 0;
    if (other_gemm == NULL || it->m < 1 || it->n < 1 || it->ldc < it->m || !find_timing(&of) ||
        cu->capturing(stream, &capturing) || capturing)
        return compute(it, stream);
    const size_t bytes = (size_t)(((it->n - 1) * it->ldc + it->m) *
                                  tilewright_element_bytes((uint32_t)it->letter));
    while (made < 3 && cu->new_event(&events[made], 0) == 0)
        ++made;
    int fails = made < 3 || cu->allocate(&other, bytes, stream) != 0 ||
                of.copy(other, (uintptr_t)it->c, bytes, stream) != 0 ||
                cu->record(events[0], stream) != 0 ||
                other_gemm(it->handle, it->ta, it->tb, it->m, it->n, it->k, it->alpha, it->a,
                           it->lda, it->b, it->ldb, it->beta, (void *)(uintptr_t)other,
                           it->ldc) != 0 ||
                cu->record(events[1], stream) != 0;
    const tw_status status = compute(it, stream);
    fails = fails || status || cu->record(events[2], stream) || of.wait(events[2]) ||
            of.elapsed(&first, events[0], events[1]) || of.elapsed(&second, events[1], events[2]);
    if (!fails) {
        *cublas_ms = (double)first;
        *ours_ms = (double)second;
    }
    if (other != 0)
        cu->free(other, stream);
    while (made > 0)
        of.destroy(events[--made]);
    return status;
}

static int is_operation(int value) { return value >= 0 && value < TRANSPOSES; }

/* Whether the product was computed here. */
static int serve(const product *it)
{
    double ours_ms = 0, cublas_ms = 0;
    void *stream;
    if (it->letter < 0 || !is_operation(it->ta) || !is_operation(it->tb))
        return 0;
    const int served =
        may_serve(it, &stream) &&
        (compares() ? compare(it, stream, &ours_ms, &cublas_ms) : compute(it, stream)) == TW_OK;
    if (tilewright_logs()) {
        const tilewright_kind key = {
            TILEWRIGHT_CUBLAS, it->letter, it->ta, it->tb, it->m, it->n, it->k, 1, served};
        tilewright_note(&key, ours_ms, cublas_ms);
    }
    return served;
}

/* ---- cuBLAS's names ------------------------------------------------------------------- */

#define DEFINE(name, integer, member, letter)                                                      \
    API int name(void *handle, int ta, int tb, integer m, integer n, integer k,                    \
                 const void *alpha, const void *a, integer lda, const void *b, integer ldb,        \
                 const void *beta, void *c, integer ldc);                                          \
    int name(void *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha,     \
             const void *a, integer lda, const void *b, integer ldb, const void *beta, void *c,    \
             integer ldc)                                                                          \
    {                                                                                              \
        const product it = {letter, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc}; \
        if (serve(&it))                                                                            \
            return 0;                                                                              \
        return cublas()->member[letter] == NULL                                                    \
                   ? NOT_SUPPORTED                                                                 \
                   : cublas()->member[letter](handle, ta, tb, m, n, k, alpha, a, lda, b, ldb,      \
                                              beta, c, ldc);                                       \
    }

DEFINE(cublasSgemm_v2, int, gemm, 0)
DEFINE(cublasDgemm_v2, int, gemm, 1)
DEFINE(cublasCgemm_v2, int, gemm, 2)
DEFINE(cublasZgemm_v2, int, gemm, 3)
DEFINE(cublasSgemm_v2_64, int64_t, long_gemm, 0)
DEFINE(cublasDgemm_v2_64, int64_t, long_gemm, 1)
DEFINE(cublasCgemm_v2_64, int64_t, long_gemm, 2)
DEFINE(cublasZgemm_v2_64, int64_t, long_gemm, 3)

/* Of s d c z, where all matrices have its type and sums are of it; else -1. */
static int letter_of(int type_a, int type_b, int type_c, int compute_type)
{
    const int is_double = compute_type == COMPUTE_64 || compute_type == COMPUTE_64_PEDANTIC;
    if (!is_double && compute_type != COMPUTE_32 && compute_type != COMPUTE_32_PEDANTIC)
        return -1;
    if (type_a != type_b || type_a != type_c)
        return -1;
    if (type_a == (is_double ? REAL_64 : REAL_32))
        return is_double;
    return type_a == (is_double ? COMPLEX_64 : COMPLEX_32) ? 2 + is_double : -1;
}

#define DEFINE_TYPED(name, integer, member)                                                        \
    API int name(void *handle, int ta, int tb, integer m, integer n, integer k,                    \
                 const void *alpha, const void *a, int type_a, integer lda, const void *b,         \
                 int type_b, integer ldb, const void *beta, void *c, int type_c, integer ldc,      \
                 int compute_type, int algorithm);                                                 \
    int name(void *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha,     \
             const void *a, int type_a, integer lda, const void *b, int type_b, integer ldb,       \
             const void *beta, void *c, int type_c, integer ldc, int compute_type, int algorithm)  \
    {                                                                                              \
        const int letter = letter_of(type_a, type_b, type_c, compute_type);                        \
        const product it = {letter, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc}; \
        if (serve(&it))                                                                            \
            return 0;                                                                              \
        return cublas()->member == NULL                                                            \
                   ? NOT_SUPPORTED                                                                 \
                   : cublas()->member(handle, ta, tb, m, n, k, alpha, a, type_a, lda, b, type_b,   \
                                      ldb, beta, c, type_c, ldc, compute_type, algorithm);         \
    }

DEFINE_TYPED(cublasGemmEx, int, typed)
DEFINE_TYPED(cublasGemmEx_64, int64_t, long_typed)
