/* The calls: arguments are checked, and what is right is launched.
 *
 * Kernels are column-major.  A row-major result is the column-major result of the exchanged
 * product, C^T = op(B)^T op(A)^T, so that nothing is copied.
 */
#include "tilewright_internal.h"

enum { ORDER = 1, TRANSA, TRANSB, M, N, K, ALPHA, A, LDA, B, LDB, BETA, C, LDC };
enum { STEP_A = LDC + 2, STEP_B, STEP_C, BATCH }; /* behind the stream */

/* So many products, and elements from the matrices of one to those of the next. */
typedef struct {
    int64_t batch, step_a, step_b, step_c;
} many;

static const many one = {1, 0, 0, 0};

/* A product in column-major terms.  The positions are what its parts are in the caller's. */
typedef struct {
    int precision;
    int op_a, op_b;
    int64_t m, n, k;
    tilewright_matrix a, b, c;
    many of;
    int at_a, at_b;
} request;

/* ---- Checking ------------------------------------------------------------ */

/* Fill in what does not depend on memory. */
static tw_status describe(request *it, int precision, int order, char transa, char transb,
                          int64_t m, int64_t n, int64_t k)
{
    const int op_a = tilewright_operation_of(transa, precision);
    const int op_b = tilewright_operation_of(transb, precision);
    const int rows_first = order == TW_ROW_MAJOR;
    if (!rows_first && order != TW_COL_MAJOR)
        return -ORDER;
    if (op_a == TILEWRIGHT_UNKNOWN)
        return -TRANSA;
    if (op_b == TILEWRIGHT_UNKNOWN)
        return -TRANSB;
    if (m < 0)
        return -M;
    if (n < 0)
        return -N;
    if (k < 0)
        return -K;
    it->precision = precision;
    it->op_a = rows_first ? op_b : op_a;
    it->op_b = rows_first ? op_a : op_b;
    it->m = rows_first ? n : m;
    it->n = rows_first ? m : n;
    it->k = k;
    it->at_a = rows_first ? B : A;
    it->at_b = rows_first ? A : B;
    return TW_OK;
}

static tilewright_matrix stored(int64_t rows, int64_t columns, int op, const void *first,
                                int64_t ld)
{
    const tilewright_matrix made = {(uintptr_t)first, op ? columns : rows, op ? rows : columns, ld};
    return made;
}

/* Put the matrices in; a leading dimension's position is its matrix's plus one. */
static tw_status place(request *it, const void *a, int64_t lda, const void *b, int64_t ldb,
                       const void *c, int64_t ldc)
{
    const int exchanged = it->at_a == B;
    it->a = stored(it->m, it->k, it->op_a, exchanged ? b : a, exchanged ? ldb : lda);
    it->b = stored(it->k, it->n, it->op_b, exchanged ? a : b, exchanged ? lda : ldb);
    it->c = stored(it->m, it->n, 0, c, ldc);
    const int short_a = it->a.ld < 1 || it->a.ld < it->a.rows;
    const int short_b = it->b.ld < 1 || it->b.ld < it->b.rows;
    /* The caller's A first, as in BLAS. */
    if (short_a && (!exchanged || !short_b))
        return -(it->at_a + 1);
    if (short_b)
        return -(it->at_b + 1);
    return it->c.ld < 1 || it->c.ld < it->c.rows ? -LDC : TW_OK;
}

/* Look at one matrix that will be read or written. */
static tw_status usable(const tilewright_matrix *x, int at, int64_t element_bytes)
{
    if (x->first == 0 || x->first % (uintptr_t)element_bytes != 0)
        return -at;
    return tilewright_fits(x, element_bytes) ? TW_OK : TW_TOO_LARGE;
}

/* The same for a batch: what its matrices reach over, and not whether they lie between each other's. */
static tw_status check_batch(const request *it, int reads)
{
    const int64_t size = tilewright_element_bytes(it->precision);
    const many *const of = &it->of;
    const tilewright_matrix *const all[] = {&it->c, &it->a, &it->b};
    const int64_t steps[] = {of->step_c, of->step_a, of->step_b};
    const int at[] = {C, it->at_a, it->at_b};
    if (tilewright_fits(&it->c, size) && tilewright_meets_itself(&it->c, of->step_c, of->batch))
        return -STEP_C;
    for (int i = 0; i < (reads ? 3 : 1); ++i) {
        const tw_status status = usable(all[i], at[i], size);
        if (status)
            return status;
        if (!tilewright_batch_fits(all[i], steps[i], of->batch, size))
            return TW_TOO_LARGE;
    }
    for (int i = 1; reads && i < 3; ++i)
        if (tilewright_batches_meet(all[i], steps[i], &it->c, of->step_c, of->batch, size))
            return -C;
    return TW_OK;
}

static tw_status check_memory(const request *it, int reads)
{
    if (it->of.batch > 1)
        return check_batch(it, reads);
    const int64_t size = tilewright_element_bytes(it->precision);
    tw_status status = usable(&it->c, C, size);
    if (status == TW_OK && reads)
        status = usable(&it->a, it->at_a, size);
    if (status == TW_OK && reads)
        status = usable(&it->b, it->at_b, size);
    if (status == TW_OK && reads &&
        (tilewright_overlap(&it->a, &it->c, size) || tilewright_overlap(&it->b, &it->c, size)))
        status = -C;
    return status;
}

/* ---- The calls ----------------------------------------------------------- */

/* Let a matrix be as long as the batch, along its columns or across them; false where it cannot. */
static int grow(tilewright_matrix *x, int64_t step, int64_t batch, int across)
{
    if (!across) {
        if (step != x->rows || x->rows * batch > x->ld)
            return 0;
        x->rows *= batch;
        return 1;
    }
    const int64_t ld = x->columns == 1 ? step : x->ld;
    if (ld < x->rows || (ld == 0 ? step != 0 : step % ld != 0 || step / ld != x->columns))
        return 0;
    x->ld = ld;
    x->columns *= batch;
    return 1;
}

/* A batch is one product where an operand is the same in all of it, and the other one's matrices and
 * the results continue each other: as tilewright.serve.arrange has it. */
static void fold(request *it)
{
    const many of = it->of;
    request whole = *it;
    whole.of = one;
    if (of.batch < 2 || it->m > INT64_MAX / of.batch || it->n > INT64_MAX / of.batch)
        return;
    if (of.step_b == 0 && grow(&whole.a, of.step_a, of.batch, it->op_a != 0) &&
        grow(&whole.c, of.step_c, of.batch, 0)) {
        whole.m *= of.batch;
        *it = whole;
        return;
    }
    whole = *it;
    whole.of = one;
    if (of.step_a == 0 && grow(&whole.b, of.step_b, of.batch, it->op_b == 0) &&
        grow(&whole.c, of.step_c, of.batch, 1)) {
        whole.n *= of.batch;
        *it = whole;
    }
}

/* How an operand begins, beyond what is aligned: where later ones begin otherwise, none is. */
static uint32_t begin(const tilewright_matrix *x, int64_t step, int64_t element_bytes)
{
    const uint32_t found = x->first % 16;
    return found || step * element_bytes % 16 == 0 ? found : (uint32_t)element_bytes;
}

/* What a product's plan depends on, but for its context; columns where they are. */
static tilewright_product product_of(const request *it, int reads)
{
    const int64_t size = tilewright_element_bytes(it->precision);
    const tilewright_product made = {
        .m = it->m,
        .n = it->n,
        .k = it->k,
        .lda = it->a.ld,
        .ldb = it->b.ld,
        .ldc = it->c.ld,
        .batch = it->of.batch,
        .step_a = reads ? it->of.step_a : 0, /* nobody has looked at others */
        .step_b = reads ? it->of.step_b : 0,
        .step_c = it->of.step_c,
        .precision = it->precision,
        .op_a = (uint32_t)it->op_a,
        .op_b = (uint32_t)it->op_b,
        .begins_a = reads ? begin(&it->a, it->of.step_a, size) : 0,
        .begins_b = reads ? begin(&it->b, it->of.step_b, size) : 0,
        .reads = reads != 0,
    };
    return made;
}

/* Put a batch in; nothing of one is left without any. */
static tw_status repeat(request *it, const many *of)
{
    const int exchanged = it->at_a == B;
    if (of->step_a < 0)
        return -STEP_A;
    if (of->step_b < 0)
        return -STEP_B;
    if (of->step_c < 0)
        return -STEP_C;
    if (of->batch < 0)
        return -BATCH;
    it->of = one;
    if (of->batch > 1) {
        it->of = (many){of->batch, exchanged ? of->step_b : of->step_a,
                        exchanged ? of->step_a : of->step_b, of->step_c};
        fold(it);
    }
    return TW_OK;
}

/* Compute what is right: of a batch as many products at once as a plan has. */
static tw_status multiply(request *it, int reads, tilewright_call *call)
{
    const int64_t batch = it->of.batch;
    const int64_t bytes = TILEWRIGHT_PLANNED * tilewright_element_bytes(it->precision);
    for (int64_t first = 0;; first += TILEWRIGHT_PLANNED) {
        it->of.batch = tilewright_least(batch - first, TILEWRIGHT_PLANNED);
        tilewright_product product = product_of(it, reads);
        const tw_status status = tilewright_multiply(&product, call);
        if (status || first + it->of.batch == batch)
            return status;
        call->a += (uint64_t)(bytes * product.step_a);
        call->b += (uint64_t)(bytes * product.step_b);
        call->c += (uint64_t)(bytes * product.step_c);
    }
}

static tw_status gemm(int precision, int order, char transa, char transb, int64_t m, int64_t n,
                      int64_t k, const void *alpha, const void *a, int64_t lda, const void *b,
                      int64_t ldb, const void *beta, void *c, int64_t ldc, tw_stream stream,
                      const many *of)
{
    request it;
    tw_status status = describe(&it, precision, order, transa, transb, m, n, k);
    if (status)
        return status;
    if (alpha == NULL)
        return -ALPHA;
    if (beta == NULL)
        return -BETA;
    status = place(&it, a, lda, b, ldb, c, ldc);
    if (status == TW_OK)
        status = repeat(&it, of);
    if (status || m == 0 || n == 0 || of->batch == 0)
        return status;
    tilewright_call call = {.alpha = tilewright_read_scalar(alpha, precision),
                            .beta = tilewright_read_scalar(beta, precision),
                            .stream = stream};
    const int reads = k != 0 && !tilewright_equals(&call.alpha, 0);
    if (!reads && tilewright_equals(&call.beta, 1))
        return TW_OK;
    status = check_memory(&it, reads);
    if (status)
        return status;
    call.a = it.a.first;
    call.b = it.b.first;
    call.c = it.c.first;
    return multiply(&it, reads, &call);
}

tw_status tw_sgemm(tw_order order, char transa, char transb, int64_t m, int64_t n, int64_t k,
                   const float *alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                   const float *beta, float *c, int64_t ldc, tw_stream stream)
{
    return gemm(0, order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream,
                &one);
}

tw_status tw_dgemm(tw_order order, char transa, char transb, int64_t m, int64_t n, int64_t k,
                   const double *alpha, const double *a, int64_t lda, const double *b, int64_t ldb,
                   const double *beta, double *c, int64_t ldc, tw_stream stream)
{
    return gemm(1, order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream,
                &one);
}

tw_status tw_cgemm(tw_order order, char transa, char transb, int64_t m, int64_t n, int64_t k,
                   const void *alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                   const void *beta, void *c, int64_t ldc, tw_stream stream)
{
    return gemm(2, order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream,
                &one);
}

tw_status tw_zgemm(tw_order order, char transa, char transb, int64_t m, int64_t n, int64_t k,
                   const void *alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                   const void *beta, void *c, int64_t ldc, tw_stream stream)
{
    return gemm(3, order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream,
                &one);
}

tw_status tw_gemm(char precision, tw_order order, char transa, char transb, int64_t m, int64_t n,
                  int64_t k, const void *alpha, const void *a, int64_t lda, const void *b,
                  int64_t ldb, const void *beta, void *c, int64_t ldc, tw_stream stream)
{
    return tw_gemm_strided_batched(precision, order, transa, transb, m, n, k, alpha, a, lda, b, ldb,
                                   beta, c, ldc, stream, 0, 0, 0, 1);
}

tw_status tw_gemm_strided_batched(char precision, tw_order order, char transa, char transb, int64_t m,
                                  int64_t n, int64_t k, const void *alpha, const void *a,
                                  int64_t lda, const void *b, int64_t ldb, const void *beta, void *c,
                                  int64_t ldc, tw_stream stream, int64_t step_a, int64_t step_b,
                                  int64_t step_c, int64_t batch)
{
    const int found = tilewright_precision_of(precision);
    const many of = {batch, step_a, step_b, step_c};
    if (found == TILEWRIGHT_UNKNOWN)
        return TW_NO_KERNEL;
    return gemm(found, order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream,
                &of);
}

const char *tw_choose(char precision, tw_order order, char transa, char transb, int64_t m,
                      int64_t n, int64_t k)
{
    request it;
    tilewright_way way;
    tilewright_choice found;
    const tilewright_rows *from;
    const int letter = tilewright_precision_of(precision);
    if (letter == TILEWRIGHT_UNKNOWN || describe(&it, letter, order, transa, transb, m, n, k))
        return NULL;
    /* Matrices without gaps, aligned. */
    it.a = stored(it.m, it.k, it.op_a, NULL, tilewright_most(1, it.op_a ? it.k : it.m));
    it.b = stored(it.k, it.n, it.op_b, NULL, tilewright_most(1, it.op_b ? it.n : it.k));
    it.c = stored(it.m, it.n, 0, NULL, tilewright_most(1, it.m));
    it.of = one;
    const tilewright_product product = product_of(&it, k != 0);
    const tilewright_place here = tilewright_here();
    if (!tilewright_way_of(&product, &here, &way, &from, &found))
        return NULL;
    return tilewright_codes[found.code].name;
}

tw_status tw_load(void)
{
    tilewright_context *here;
    const tw_status status = tilewright_current(&here);
    return status ? status : tilewright_load_all(here);
}

tw_status tw_unload(void)
{
    tilewright_context *here;
    const tw_status status = tilewright_current(&here);
    if (status)
        return status;
    tilewright_forget_plans();
    const tw_status released = tilewright_status_of(tilewright_arena_release(here->handle));
    const tw_status unloaded = tilewright_unload_all(here);
    return released ? released : unloaded;
}

const char *tw_strerror(tw_status status)
{
    static const char *const wrong[] = {
        "argument 1 (order) is neither TW_ROW_MAJOR nor TW_COL_MAJOR",
        "argument 2 (transa) is none of N, T and C",
        "argument 3 (transb) is none of N, T and C",
        "argument 4 (m) is negative",
        "argument 5 (n) is negative",
        "argument 6 (k) is negative",
        "argument 7 (alpha) is null; it points at a number in the host's memory",
        "argument 8 (a) is null or not aligned to an element",
        "argument 9 (lda) is less than 1 or than what lies side by side in A",
        "argument 10 (b) is null or not aligned to an element",
        "argument 11 (ldb) is less than 1 or than what lies side by side in B",
        "argument 12 (beta) is null; it points at a number in the host's memory",
        "argument 13 (c) is null, not aligned to an element, or shares memory with A or B",
        "argument 14 (ldc) is less than 1 or than what lies side by side in C",
        "argument 15 (stream) is no stream of the current context",
        "argument 16 (step_a) is negative",
        "argument 17 (step_b) is negative",
        "argument 18 (step_c) is negative, or results share an element",
        "argument 19 (batch) is negative",
    };
    static const char *const others[] = {
        "no error",
        "NVIDIA's driver (libcuda.so.1, of CUDA 12 or later) is not here",
        "no CUDA context is current in this thread; call cudaSetDevice or cuCtxSetCurrent first",
        "this library has no kernel for that precision and these transposes; export it again",
        "the current device cannot run this library's kernels, which are for " TW_GEMM_ARCHITECTURE,
        "a matrix is beyond the address space, or C takes more blocks than a grid has",
        "the host has no memory left",
    };
    const char *said = NULL;
    if (status < 0 && status >= -BATCH)
        return wrong[-status - 1];
    if (status >= 0 && status <= TW_NO_MEMORY)
        return others[status];
    if (status > TW_CUDA)
        said = tilewright_driver_says(status - TW_CUDA);
    return said ? said : "not a status of this library";
}
