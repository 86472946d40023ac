/* BLAS's names, for programs that are not changed: preloaded, they answer in BLAS's place.
 *
 *     program -> dgemm_ -> large:  tilewright_host.c, on the device
 *                       -> all else, and where there is no device: the dgemm_ that would have answered
 *
 * Fortran's and C's names, with integers of 32 and 64 bits, and those that the BLAS of NumPy's and
 * SciPy's wheels has.  What is wrong reaches the other BLAS, whose xerbla says so.
 *
 *     TILEWRIGHT_BLAS_LEAST       products of at least so many multiplications (m n k) are computed
 *                                 on the device, instead of those for which that is faster; 0: all
 */
#include "tilewright_host.h"
#include "tilewright_log.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* ---- The other BLAS ------------------------------------------------------------------------ */

static int64_t cores, least_work;

static int is_ours(void *function)
{
    Dl_info theirs, ours;
    return dladdr(function, &theirs) && dladdr(&cores, &ours) && theirs.dli_fbase == ours.dli_fbase;
}

/* Look in a library that is loaded, and those that it needs; null where they have no such name. */
static void *look(const char *path, const char *name)
{
    void *const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    void *const found = library == NULL ? NULL : dlsym(library, name);
    return found != NULL && !is_ours(found) ? found : NULL;
}

enum { MOST_LIBRARIES = 1024 };
typedef struct {
    char *paths[MOST_LIBRARIES];
    int count;
} loaded;

/* Their names alone: nothing else may be opened meanwhile. */
static int note_library(struct dl_phdr_info *library, size_t size, void *to)
{
    loaded *const all = to;
    (void)size;
    if (library->dlpi_name != NULL && *library->dlpi_name && all->count < MOST_LIBRARIES)
        all->paths[all->count++] = strdup(library->dlpi_name);
    return 0;
}

static void *look_everywhere(const char *name)
{
    loaded all = {.count = 0};
    void *found = NULL;
    dl_iterate_phdr(note_library, &all);
    for (int i = 0; i < all.count; ++i) {
        if (found == NULL && all.paths[i] != NULL)
            found = look(all.paths[i], name);
        free(all.paths[i]);
    }
    return found;
}

/* The function that would have answered a caller: the next that all see, that of the caller's own
 * libraries (Python's modules have theirs), or any that is loaded. */
static void *find(const char *name, void *caller)
{
    Dl_info by;
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL && dladdr(caller, &by) != 0)
        found = look(by.dli_fname, name);
    if (found == NULL)
        found = look_everywhere(name);
    if (found == NULL) {
        fprintf(stderr, "tilewright: no other BLAS here has %s\n", name);
        abort();
    }
    return found;
}

/* Found for a name's first caller, and kept for all: where libraries bring a BLAS each whose functions
 * have the same names, the first caller's answers the others, too. */
static void *other(_Atomic(void *) *known, const char *name, void *caller)
{
    void *found = atomic_load_explicit(known, memory_order_relaxed);
    if (found == NULL) {
        found = find(name, caller);
        atomic_store_explicit(known, found, memory_order_relaxed);
    }
    return found;
}

/* ---- Serving ------------------------------------------------------------------------------- */

/* What a core multiplies and adds in single and double precision, what a call takes that copies
 * nothing, and the rate of copies of pageable memory: `tilewright bench blas-calls`. */
static const double CORE_FLOPS[] = {80e9, 40e9}, BEGIN_S = 200e-6, BYTES_PER_S = 16e9;

__attribute__((constructor)) static void begin(void)
{
    const char *const least = getenv("TILEWRIGHT_BLAS_LEAST");
    cores = tilewright_host_cores();
    least_work = least != NULL && *least >= '0' && *least <= '9' ? strtoll(least, NULL, 10) : -1;
}

/* Whether the device is faster than all cores. */
static int pays(const tilewright_host_product *it)
{
    const double m = (double)it->m, n = (double)it->n, k = (double)it->k;
    if (least_work >= 0)
        return m * n * k >= (double)least_work;
    const double flops = 2 * m * n * k * (tilewright_is_complex(it->letter) ? 4 : 1);
    const double bytes =
        (m * k + k * n + m * n) * (double)tilewright_element_bytes(it->letter);
    return flops / ((double)cores * CORE_FLOPS[tilewright_is_double(it->letter)]) > BEGIN_S + bytes / BYTES_PER_S;
}

static int is_right(const tilewright_host_product *it)
{
    const int64_t rows_a = it->op_a ? it->k : it->m, rows_b = it->op_b ? it->n : it->k;
    return it->op_a >= 0 && it->op_b >= 0 && it->m >= 0 && it->n >= 0 && it->k >= 0 &&
           it->lda >= 1 && it->lda >= rows_a && it->ldb >= 1 && it->ldb >= rows_b &&
           it->ldc >= 1 && it->ldc >= it->m;
}

/* Whether C shares memory with A or B, or one has no place in memory: nobody's business here. */
static int is_odd(const tilewright_host_product *it)
{
    const int64_t size = tilewright_element_bytes(it->letter);
    const tilewright_matrix a = {(uintptr_t)it->a, it->op_a ? it->k : it->m,
                                 it->op_a ? it->m : it->k, it->lda};
    const tilewright_matrix b = {(uintptr_t)it->b, it->op_b ? it->n : it->k,
                                 it->op_b ? it->k : it->n, it->ldb};
    const tilewright_matrix c = {(uintptr_t)it->c, it->m, it->n, it->ldc};
    return !tilewright_fits(&a, size) || !tilewright_fits(&b, size) ||
           !tilewright_fits(&c, size) || tilewright_overlap(&a, &c, size) ||
           tilewright_overlap(&b, &c, size);
}

/* Whether the product was computed here. */
static int compute(const tilewright_host_product *it)
{
    int written;
    if (!tilewright_host_serves() || !pays(it) || is_odd(it))
        return 0;
    tilewright_was_emulated = 0;
    const tw_status status = tilewright_host_gemm(it, &written);
    if (status && written) {
        /* C is neither what it was nor the result. */
        fprintf(stderr, "tilewright: a product failed midway: %s\n", tw_strerror(status));
        abort();
    }
    return status == TW_OK;
}

/* A call that is passed on may come again by another name: cblas_dgemm calls dgemm_. */
static _Thread_local int passing;

static tilewright_kind kind_of(const tilewright_host_product *it, int served)
{
    return (tilewright_kind){TILEWRIGHT_BLAS, it->letter, it->op_a, it->op_b, it->m, it->n, it->k, 1,
                             served ? 1 + tilewright_was_emulated : 0};
}

static int serve(const tilewright_host_product *it)
{
    if (passing || !is_right(it))
        return 0;
    const int served = compute(it);
    const tilewright_kind kind = kind_of(it, served);
    passing = !served;
    if (tilewright_logs())
        tilewright_note(&kind, 0, 0);
    return served;
}

static void ended(const tilewright_host_product *it, const char *name, int served, int64_t begun)
{
    const tilewright_kind kind = kind_of(it, served);
    tilewright_trace(name, &kind, begun);
}

/* ---- Names ---------------------------------------------------------------------------------- */

/* Of CBLAS's numbers. */
static int operation_of(int number, int letter)
{
    enum { NO_TRANS = 111, CONJ_TRANS = 113 };
    return number < NO_TRANS || number > CONJ_TRANS
               ? TILEWRIGHT_UNKNOWN
               : tilewright_operation_of(tilewright_operations[number - NO_TRANS], letter);
}

/* A row-major result is the column-major one of the exchanged product. */
static tilewright_host_product ordered(int order, int ta, int tb, tilewright_host_product it)
{
    it.op_a = operation_of(ta, it.letter);
    it.op_b = operation_of(tb, it.letter);
    if (order == TW_COL_MAJOR)
        return it;
    if (order != TW_ROW_MAJOR)
        it.op_b = TILEWRIGHT_UNKNOWN;
    return (tilewright_host_product){it.letter, it.op_b, it.op_a, it.n, it.m, it.k, it.alpha, it.b,
                                     it.ldb, it.a, it.lda, it.beta, it.c, it.ldc};
}

typedef int integer_32;
typedef int64_t integer_64;

/* The lengths of strings are behind all arguments, as Fortran's compilers pass them. */
#define FORTRAN_TAKES(integer)                                                                     \
    const char *ta, const char *tb, const integer *m, const integer *n, const integer *k,          \
        const void *alpha, const void *a, const integer *lda, const void *b, const integer *ldb,   \
        const void *beta, void *c, const integer *ldc, size_t length_a, size_t length_b
/* A register, and a place on the stack, has 64 bits: all are passed on, for MKL has these names with
 * integers of 64 bits, too. */
#define C_TAKES(scalar)                                                                            \
    int order, int ta, int tb, int64_t m, int64_t n, int64_t k, scalar alpha, const void *a,       \
        int64_t lda, const void *b, int64_t ldb, scalar beta, void *c, int64_t ldc

#define FORTRAN(name, integer, precision)                                                          \
    API void name(FORTRAN_TAKES(integer))                                                          \
    {                                                                                              \
        static _Atomic(void *) known;                                                              \
        const int before = passing;                                                                \
        const int64_t begun = before ? 0 : tilewright_begin();                                     \
        const tilewright_host_product it = {                                                       \
            precision, tilewright_operation_of(*ta, precision),                                    \
            tilewright_operation_of(*tb, precision), *m, *n, *k,                                   \
            alpha, a, *lda, b, *ldb, beta, c, *ldc};                                               \
        const int served = serve(&it);                                                             \
        if (!served) {                                                                             \
            void *const found = other(&known, #name, __builtin_return_address(0));                 \
            void (*call)(FORTRAN_TAKES(integer));                                                  \
            memcpy(&call, &found, sizeof call);                                                    \
            call(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, length_a, length_b);        \
            passing = before;                                                                      \
        }                                                                                          \
        ended(&it, #name, served, begun);                                                          \
    }

/* Real scalars are passed by value, and `at` is &; of complex ones the address, and it is nothing. */
#define C(name, integer, precision, scalar, at)                                                    \
    API void name(C_TAKES(scalar))                                                                 \
    {                                                                                              \
        static _Atomic(void *) known;                                                              \
        const int before = passing;                                                                \
        const int64_t begun = before ? 0 : tilewright_begin();                                     \
        const tilewright_host_product it =                                                         \
            ordered(order, ta, tb,                                                                 \
                    (tilewright_host_product){precision, 0, 0, (integer)m, (integer)n, (integer)k, \
                                              at alpha, a, (integer)lda, b, (integer)ldb, at beta, \
                                              c, (integer)ldc});                                   \
        const int served = serve(&it);                                                             \
        if (!served) {                                                                             \
            void *const found = other(&known, #name, __builtin_return_address(0));                 \
            void (*call)(C_TAKES(scalar));                                                         \
            memcpy(&call, &found, sizeof call);                                                    \
            call(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                     \
            passing = before;                                                                      \
        }                                                                                          \
        ended(&it, #name, served, begun);                                                          \
    }

#define ALL(letter, precision, scalar, at)                                                         \
    FORTRAN(letter##gemm_, integer_32, precision)                                                  \
    FORTRAN(letter##gemm_64_, integer_64, precision)                                               \
    FORTRAN(letter##gemm64_, integer_64, precision)                                                \
    FORTRAN(scipy_##letter##gemm_, integer_32, precision)                                          \
    FORTRAN(scipy_##letter##gemm_64_, integer_64, precision)                                       \
    C(cblas_##letter##gemm, integer_32, precision, scalar, at)                                     \
    C(cblas_##letter##gemm64_, integer_64, precision, scalar, at)                                  \
    C(cblas_##letter##gemm_64, integer_64, precision, scalar, at)                                  \
    C(scipy_cblas_##letter##gemm, integer_32, precision, scalar, at)                               \
    C(scipy_cblas_##letter##gemm64_, integer_64, precision, scalar, at)

ALL(s, 0, float, &)
ALL(d, 1, double, &)
ALL(c, 2, const void *, )
ALL(z, 3, const void *, )
