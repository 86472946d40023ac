/* cuBLAS's names, for programs that are not changed: preloaded, they answer in cuBLAS's place.
 *
 *     program -> cublasSgemm_v2 -> served:    tw_gemm_strided_batched on the handle's stream
 *                               -> passed on: the real cublasSgemm_v2
 *
 * Served are products of float32, float64, complex64 and complex128 for which cuBLAS is asked for
 * IEEE arithmetic and whose scalars lie in the host's memory: by IEEE arithmetic, or with the
 * accuracy that `tilewright run --accuracy` names (tilewright_plans.c).  Passed on unchanged are
 * all others: TF32, scalars on the device, wrong arguments, batches of which cuBLAS is faster,
 * what there is no kernel for, what a kernel's launch fails for.
 *
 * The environment says what is written down (tilewright_log.h), and
 *
 *     TILEWRIGHT_CUBLAS_COMPARE   not empty: cuBLAS computes each product that is served, too, into
 *                                 memory of its own, and the log has both times; calls then wait
 */
#include "tilewright_bias.h"
#include "tilewright_cublas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Of cublas_api.h and library_types.h. */
enum { POINTERS_ON_HOST = 0 };
enum { DEFAULT_MATH = 0, PEDANTIC_MATH = 2, MATH_MODES = 15 }; /* higher bits: 16-bit results only */
enum { REAL_32 = 0, REAL_64 = 1, COMPLEX_32 = 4, COMPLEX_64 = 5 };
enum { COMPUTE_32 = 68, COMPUTE_32_PEDANTIC = 69, COMPUTE_64 = 70, COMPUTE_64_PEDANTIC = 71 };

/* ---- The real library ------------------------------------------------------------ */

static const char *const names[] = {
    "cublasGetStream_v2", "cublasGetPointerMode_v2", "cublasGetMathMode",
    "cublasSgemm_v2", "cublasDgemm_v2", "cublasCgemm_v2", "cublasZgemm_v2",
    "cublasSgemm_v2_64", "cublasDgemm_v2_64", "cublasCgemm_v2_64", "cublasZgemm_v2_64",
    "cublasSgemmStridedBatched", "cublasDgemmStridedBatched", "cublasCgemmStridedBatched",
    "cublasZgemmStridedBatched", "cublasSgemmStridedBatched_64", "cublasDgemmStridedBatched_64",
    "cublasCgemmStridedBatched_64", "cublasZgemmStridedBatched_64",
    "cublasGemmEx", "cublasGemmEx_64", "cublasGemmStridedBatchedEx", "cublasGemmStridedBatchedEx_64",
    "cublasSgemmBatched", "cublasDgemmBatched", "cublasCgemmBatched", "cublasZgemmBatched",
    "cublasSgemmBatched_64", "cublasDgemmBatched_64", "cublasCgemmBatched_64",
    "cublasZgemmBatched_64", "cublasGemmBatchedEx", "cublasGemmBatchedEx_64"};
static const char *const names_of_lt[] = {
    "cublasLtMatmul", "cublasLtMatmulDescGetAttribute", "cublasLtMatrixLayoutGetAttribute"};
enum { NAMES = sizeof names / sizeof *names, NAMES_OF_LT = sizeof names_of_lt / sizeof *names_of_lt };

static cublas_functions real;
static cublaslt_functions real_lt;
static pthread_once_t found = PTHREAD_ONCE_INIT, found_lt = PTHREAD_ONCE_INIT;

/* The program has loaded the library, perhaps where only its file's name finds it. */
static void find_in(const char *const *files, const char *const *wanted, int count, void **pointers)
{
    void *library = NULL;
    for (; library == NULL && *files != NULL; ++files)
        library = dlopen(*files, RTLD_LAZY | RTLD_NOLOAD);
    for (int i = 0; i < count; ++i)
        pointers[i] = dlsym(library == NULL ? RTLD_NEXT : library, wanted[i]);
}

static void find(void)
{
    static const char *const files[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so", NULL};
    void *pointers[NAMES];
    _Static_assert(sizeof pointers == sizeof real, "a name for each function");
    find_in(files, names, NAMES, pointers);
    memcpy(&real, pointers, sizeof real);
}

static void find_lt(void)
{
    static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                        NULL};
    void *pointers[NAMES_OF_LT];
    _Static_assert(sizeof pointers == sizeof real_lt, "a name for each function");
    find_in(files, names_of_lt, NAMES_OF_LT, pointers);
    memcpy(&real_lt, pointers, sizeof real_lt);
}

const cublas_functions *tilewright_cublas(void)
{
    pthread_once(&found, find);
    return &real;
}

const cublaslt_functions *tilewright_cublaslt(void)
{
    pthread_once(&found_lt, find_lt);
    return &real_lt;
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
    const cublas_functions *const of = tilewright_cublas();
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
    const void *beta = it->beta;
    if (it->vector != NULL) {
        const tilewright_matrix c = {(uintptr_t)it->c, it->m, it->n, it->ldc};
        const tw_status status = tilewright_put_bias(it->letter, it->vector, &c, stream);
        if (status)
            return status;
        beta = tilewright_one(it->letter);
    }
    return tw_gemm_strided_batched(tilewright_letters[it->letter], TW_COL_MAJOR, tilewright_operations[it->ta],
                                   tilewright_operations[it->tb], it->m, it->n, it->k, it->alpha, it->a,
                                   it->lda, it->b, it->ldb, beta, it->c, it->ldc, stream,
                                   it->step_a, it->step_b, it->step_c, it->batch);
}

/* Let cuBLAS compute a product, the result elsewhere. */
static int compute_by_cublas(const product *it, void *c)
{
    const cublas_functions *const of = tilewright_cublas();
    if (it->by_cublas != NULL)
        return it->by_cublas(it, c);
    if (it->batch == 1)
        return of->long_gemm[it->letter] == NULL ||
               of->long_gemm[it->letter](it->handle, it->ta, it->tb, it->m, it->n, it->k, it->alpha,
                                         it->a, it->lda, it->b, it->ldb, it->beta, c, it->ldc);
    return of->long_strided[it->letter] == NULL ||
           of->long_strided[it->letter](it->handle, it->ta, it->tb, it->m, it->n, it->k, it->alpha,
                                        it->a, it->lda, it->step_a, it->b, it->ldb, it->step_b,
                                        it->beta, c, it->ldc, it->step_c, it->batch);
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
    const tilewright_cu *const cu = &tilewright_driver;
    timing of;
    void *events[3] = {NULL, NULL, NULL};
    uint64_t other = 0;
    int capturing = 1, made = 0;
    float first = 0, second = 0;
    if (it->m < 1 || it->n < 1 || it->ldc < it->m || it->batch < 1 || !find_timing(&of) ||
        cu->capturing(stream, &capturing) || capturing)
        return compute(it, stream);
    const size_t bytes =
        (size_t)(((it->batch - 1) * it->step_c + (it->n - 1) * it->ldc + it->m) *
                 tilewright_element_bytes(it->letter));
    while (made < 3 && cu->new_event(&events[made], 0) == 0)
        ++made;
    int fails = made < 3 || cu->allocate(&other, bytes, stream) != 0 ||
                of.copy(other, (uintptr_t)it->c, bytes, stream) != 0 ||
                cu->record(events[0], stream) != 0 ||
                compute_by_cublas(it, (void *)(uintptr_t)other) != 0 ||
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

/* Multiply-adds of a batch up to which it takes less time than by cuBLAS, which takes longer to begin,
 * and of one product; and how many times as long as the result's shorter side k is at most: cuBLAS
 * divides k.  An H100's, of squares (benchmarks/results/h100/batched.json) and of 90 random batches;
 * 0: all. */
static const struct {
    double all, one;
    int64_t deep;
} shorter[TILEWRIGHT_PRECISIONS] = {
    {0x1p29, 0x1p22, 0}, {0x1p29, 0x1p13, 20}, {0x1p29, 0x1p13, 0}, {0, 0, 0}};

/* Whether cuBLAS would take longer than IEEE arithmetic here: it does for single products, but for a
 * few in a hundred. */
static int is_faster(const product *it)
{
    const double one = (double)it->m * (double)it->n * (double)it->k;
    if (it->batch < 2 || it->step_a == 0 || it->step_b == 0 || shorter[it->letter].all == 0)
        return 1;
    if (shorter[it->letter].deep &&
        it->k / shorter[it->letter].deep > tilewright_least(it->m, it->n))
        return 0;
    return one <= shorter[it->letter].one || one * (double)it->batch <= shorter[it->letter].all;
}

static int is_operation(int value) { return value >= 0 && value < TRANSPOSES; }

static int is_known(const product *it)
{
    return it->letter >= 0 && is_operation(it->ta) && is_operation(it->tb);
}

static tilewright_kind kind_of(const product *it, int served)
{
    return (tilewright_kind){TILEWRIGHT_CUBLAS, it->letter, it->ta, it->tb, it->m, it->n, it->k,
                             it->batch, served ? 1 + tilewright_was_emulated : 0};
}

static void note(const product *it, int served, double ours_ms, double cublas_ms)
{
    const tilewright_kind key = kind_of(it, served);
    if (tilewright_logs())
        tilewright_note(&key, ours_ms, cublas_ms);
}

int tilewright_ended(const product *it, const char *name, tilewright_answer answer, int64_t begun,
                     int status)
{
    const tilewright_kind key = kind_of(it, answer == TILEWRIGHT_SERVED);
    tilewright_trace(name, &key, begun);
    return status;
}

/* Whether the result depends on what C was. */
static int reads_c(const product *it)
{
    static const char zero[2 * sizeof(double)];
    return it->vector == NULL &&
           memcmp(it->beta, zero, (size_t)tilewright_element_bytes(it->letter)) != 0;
}

tilewright_answer tilewright_serve_on(const product *it, void *stream)
{
    double ours_ms = 0, cublas_ms = 0;
    tw_status status = TW_NO_KERNEL;
    if (!is_known(it))
        return TILEWRIGHT_PASSED;
    tilewright_was_emulated = 0; /* nothing is laid out for a product of nothing */
    tilewright_has_launched = 0;
    tilewright_only_emulated = !is_faster(it);
    /* Of several plans a later one may fail when others have written C. */
    if (it->batch <= TILEWRIGHT_PLANNED &&
        (!tilewright_only_emulated || tilewright_emulation[it->letter] != NULL))
        status = compares() ? compare(it, stream, &ours_ms, &cublas_ms) : compute(it, stream);
    tilewright_only_emulated = 0;
    note(it, status == TW_OK, ours_ms, cublas_ms);
    if (status == TW_OK)
        return TILEWRIGHT_SERVED;
    return tilewright_has_launched && reads_c(it) ? TILEWRIGHT_SPOILED : TILEWRIGHT_PASSED;
}

tilewright_answer tilewright_passed(const product *it)
{
    if (is_known(it))
        note(it, 0, 0, 0);
    return TILEWRIGHT_PASSED;
}

tilewright_answer tilewright_serve(const product *it)
{
    void *stream;
    if (!is_known(it))
        return TILEWRIGHT_PASSED;
    if (may_serve(it, &stream))
        return tilewright_serve_on(it, stream);
    return tilewright_passed(it);
}

int tilewright_letter(int type_a, int type_b, int type_c, int compute_type)
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
