/* cublasLt's product: what there is to see of its descriptors, and what is served of it.
 *
 *     D <- alpha op(A) op(B) + beta C            C is D, or is not read
 *     D <- alpha op(A) op(B) + bias              of long products, whose columns begin as the bias
 *
 * All else is passed on: other epilogues, storage orders and types, scalars on the device.
 */
#include "tilewright_bias.h"
#include "tilewright_cublas.h"

/* Of cublasLt.h: attributes of a product and of a matrix, and their values. */
enum { COMPUTE_TYPE = 0, SCALE_TYPE = 1, POINTER_MODE = 2, TRANS_A = 3, TRANS_B = 4, TRANS_C = 5 };
enum { FILL_MODE = 6, EPILOGUE = 7, BIAS_POINTER = 8, BIAS_TYPE = 26 };
enum { TYPE = 0, ORDER = 1, ROWS = 2, COLUMNS = 3, LD = 4, BATCH_COUNT = 5, BATCH_STEP = 6 };
enum { IN_COLUMNS = 0, ON_HOST = 0, FULL = 2, NO_EPILOGUE = 1, BIAS = 4, AS_RESULT = -1 };
enum { COMPUTE_32 = 68, COMPUTE_64_PEDANTIC = 71 };

typedef struct {
    int type, order, batch;
    uint64_t rows, columns;
    int64_t ld, step;
} matrix;

/* The arguments as they came. */
typedef struct {
    void *handle, *how;
    const void *alpha, *a;
    void *of_a;
    const void *b;
    void *of_b;
    const void *beta, *c;
    void *of_c, *d, *of_d;
    const void *algorithm;
    void *workspace;
    size_t bytes;
    void *stream;
} arguments;

static int pass_on(const arguments *x, const void *c, void *d)
{
    matmul *const real = tilewright_cublaslt()->multiply;
    return real == NULL ? NOT_SUPPORTED
                        : real(x->handle, x->how, x->alpha, x->a, x->of_a, x->b, x->of_b, x->beta, c,
                               x->of_c, d, x->of_d, x->algorithm, x->workspace, x->bytes, x->stream);
}

static int compute_by_lt(const product *it, void *c)
{
    const arguments *const x = it->more;
    return pass_on(x, c, c);
}

static int is(void *how, int which, int value)
{
    int32_t found = -2;
    return tilewright_cublaslt()->of_product(how, which, &found, sizeof found, NULL) == 0 &&
           found == value;
}

/* Look at a matrix; false where its columns do not lie side by side. */
static int look(void *of, matrix *it)
{
    attribute *const get = tilewright_cublaslt()->of_matrix;
    return of != NULL && get(of, TYPE, &it->type, sizeof it->type, NULL) == 0 &&
           get(of, ORDER, &it->order, sizeof it->order, NULL) == 0 && it->order == IN_COLUMNS &&
           get(of, ROWS, &it->rows, sizeof it->rows, NULL) == 0 &&
           get(of, COLUMNS, &it->columns, sizeof it->columns, NULL) == 0 &&
           get(of, LD, &it->ld, sizeof it->ld, NULL) == 0 &&
           get(of, BATCH_COUNT, &it->batch, sizeof it->batch, NULL) == 0 &&
           get(of, BATCH_STEP, &it->step, sizeof it->step, NULL) == 0;
}

static int is_zero(const void *scalar, int letter)
{
    const tilewright_scalar found = tilewright_read_scalar(scalar, letter);
    return tilewright_equals(&found, 0);
}

static int same(const matrix *x, const matrix *y)
{
    return x->type == y->type && x->rows == y->rows && x->columns == y->columns && x->ld == y->ld &&
           x->batch == y->batch && x->step == y->step;
}

/* ---- What is asked ------------------------------------------------------------------ */

/* Whether a bias is added whose pass is short beside the product; looks where it is. */
static int sees_bias(const arguments *x, product *it, int type)
{
    attribute *const get = tilewright_cublaslt()->of_product;
    if (!is(x->how, EPILOGUE, BIAS) || it->batch != 1 || it->letter > 1)
        return 0;
    if (!is(x->how, BIAS_TYPE, AS_RESULT) && !is(x->how, BIAS_TYPE, type))
        return 0;
    if (!is_zero(x->beta, it->letter) || is_zero(x->alpha, it->letter) || it->k == 0)
        return 0;
    if (get(x->how, BIAS_POINTER, &it->vector, sizeof it->vector, NULL) || it->vector == NULL)
        return 0;
    return tilewright_bias_pays(it->letter, it->m, it->n, it->k);
}

/* Make a product of the arguments; false where it is none that is served. */
static int understand(const arguments *x, product *it)
{
    attribute *const get = tilewright_cublaslt()->of_product;
    matrix a, b, c, d;
    int compute = -1, scale = -1;
    if (get == NULL || tilewright_cublaslt()->of_matrix == NULL || x->how == NULL ||
        x->alpha == NULL || x->beta == NULL)
        return 0;
    if (get(x->how, COMPUTE_TYPE, &compute, sizeof compute, NULL) || compute < COMPUTE_32 ||
        compute > COMPUTE_64_PEDANTIC)
        return 0;
    if (!look(x->of_a, &a) || !look(x->of_b, &b) || !look(x->of_c, &c) || !look(x->of_d, &d))
        return 0;
    if (get(x->how, TRANS_A, &it->ta, sizeof it->ta, NULL) ||
        get(x->how, TRANS_B, &it->tb, sizeof it->tb, NULL))
        return 0;
    it->m = (int64_t)d.rows;
    it->n = (int64_t)d.columns;
    it->k = (int64_t)(it->ta ? a.rows : a.columns);
    it->batch = d.batch;
    /* From here on it is known, and written down where it is passed on. */
    it->letter = tilewright_letter(a.type, b.type, d.type, compute);
    if (it->letter < 0 || get(x->how, SCALE_TYPE, &scale, sizeof scale, NULL) || scale != a.type ||
        !is(x->how, POINTER_MODE, ON_HOST) || !is(x->how, TRANS_C, 0) || !is(x->how, FILL_MODE, FULL))
        return 0;
    if (!is_zero(x->beta, it->letter) && (x->c != x->d || !same(&c, &d)))
        return 0;
    if ((it->ta ? a.columns : a.rows) != d.rows || (it->tb ? b.rows : b.columns) != d.columns ||
        (int64_t)(it->tb ? b.columns : b.rows) != it->k || a.batch != d.batch || b.batch != d.batch)
        return 0;
    it->lda = a.ld;
    it->ldb = b.ld;
    it->ldc = d.ld;
    if (d.batch > 1) {
        it->step_a = a.step;
        it->step_b = b.step;
        it->step_c = d.step;
    }
    return is(x->how, EPILOGUE, NO_EPILOGUE) || sees_bias(x, it, d.type);
}

API int cublasLtMatmul(void *handle, void *how, const void *alpha, const void *a, void *of_a,
                       const void *b, void *of_b, const void *beta, const void *c, void *of_c,
                       void *d, void *of_d, const void *algorithm, void *workspace, size_t bytes,
                       void *stream);
int cublasLtMatmul(void *handle, void *how, const void *alpha, const void *a, void *of_a,
                   const void *b, void *of_b, const void *beta, const void *c, void *of_c, void *d,
                   void *of_d, const void *algorithm, void *workspace, size_t bytes, void *stream)
{
    const arguments x = {handle, how,  alpha, a,    of_a,      b,         of_b,  beta,
                         c,      of_c, d,     of_d, algorithm, workspace, bytes, stream};
    product it = {.letter = -1, .handle = handle, .alpha = alpha, .a = a, .b = b, .beta = beta,
                  .c = d, .by_cublas = compute_by_lt, .more = &x};
    const int64_t begun = tilewright_begin();
    const tilewright_answer answer =
        understand(&x, &it) ? tilewright_serve_on(&it, stream) : tilewright_passed(&it);
    const int status = answer == TILEWRIGHT_SERVED    ? 0
                       : answer == TILEWRIGHT_SPOILED ? EXECUTION_FAILED
                                                      : pass_on(&x, c, d);
    return tilewright_ended(&it, "cublasLtMatmul", answer, begun, status);
}
