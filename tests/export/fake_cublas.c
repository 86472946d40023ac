/* What stands in for cuBLAS on a host: the plainest loop, alpha = 1 and beta = 0 as they are told.
 *
 * An operation is 0, 1 or 2: none, transposed, conjugated and transposed.  The handle that a program
 * makes is served by IEEE arithmetic, unless a mode says otherwise. */
#include <complex.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static int modes[2]; /* math, pointers */

int cublasCreate_v2(void **handle)
{
    *handle = modes;
    return 0;
}

int cublasSetMathMode(void *handle, int mode)
{
    modes[0] = mode;
    return handle == NULL;
}

int cublasGetMathMode(void *handle, int *mode)
{
    *mode = modes[0];
    return handle == NULL;
}

int cublasSetPointerMode_v2(void *handle, int mode)
{
    modes[1] = mode;
    return handle == NULL;
}

int cublasGetPointerMode_v2(void *handle, int *mode)
{
    *mode = modes[1];
    return handle == NULL;
}

int cublasGetStream_v2(void *handle, void **stream)
{
    *stream = NULL;
    return handle == NULL;
}

int cublasSetWorkspace_v2(void *handle, void *memory, size_t bytes)
{
    return handle == NULL || memory == NULL || bytes != WORKSPACE;
}

#define GEMM(name, integer, type, conjugate)                                                       \
    int name(void *handle, int ta, int tb, integer m, integer n, integer k, const type *alpha,     \
             const type *a, integer lda, const type *b, integer ldb, const type *beta, type *c,    \
             integer ldc)                                                                          \
    {                                                                                              \
        for (integer j = 0; j < n; ++j)                                                            \
            for (integer i = 0; i < m; ++i) {                                                      \
                type sum = 0;                                                                      \
                for (integer l = 0; l < k; ++l) {                                                  \
                    const type x = a[ta ? l + i * lda : i + l * lda];                              \
                    const type y = b[tb ? j + l * ldb : l + j * ldb];                              \
                    sum += (ta == 2 ? conjugate(x) : x) * (tb == 2 ? conjugate(y) : y);            \
                }                                                                                  \
                c[i + j * ldc] = *alpha * sum + *beta;                                             \
            }                                                                                      \
        return handle == NULL;                                                                     \
    }

#define ITSELF(x) (x)
GEMM(cublasSgemm_v2, int, float, ITSELF)
GEMM(cublasZgemm_v2, int, double complex, conj)
GEMM(cublasSgemm_v2_64, int64_t, float, ITSELF)
GEMM(cublasDgemm_v2_64, int64_t, double, ITSELF)
GEMM(cublasCgemm_v2_64, int64_t, float complex, conjf)
GEMM(cublasZgemm_v2_64, int64_t, double complex, conj)

#define STRIDED(name, single, integer, type)                                                       \
    int name(void *handle, int ta, int tb, integer m, integer n, integer k, const type *alpha,     \
             const type *a, integer lda, long long step_a, const type *b, integer ldb,             \
             long long step_b, const type *beta, type *c, integer ldc, long long step_c,           \
             integer batch)                                                                        \
    {                                                                                              \
        for (integer i = 0; i < batch; ++i)                                                        \
            single(handle, ta, tb, m, n, k, alpha, a + i * step_a, lda, b + i * step_b, ldb, beta, \
                   c + i * step_c, ldc);                                                           \
        return handle == NULL;                                                                     \
    }

STRIDED(cublasSgemmStridedBatched, cublasSgemm_v2, int, float)
STRIDED(cublasDgemmStridedBatched_64, cublasDgemm_v2_64, int64_t, double)
STRIDED(cublasCgemmStridedBatched_64, cublasCgemm_v2_64, int64_t, float complex)

/* Of float32 alone. */
int cublasGemmStridedBatchedEx(void *handle, int ta, int tb, int m, int n, int k,
                               const void *alpha, const void *a, int type_a, int lda,
                               long long step_a, const void *b, int type_b, int ldb,
                               long long step_b, const void *beta, void *c, int type_c, int ldc,
                               long long step_c, int batch, int compute, int algorithm)
{
    if (type_a || type_b || type_c || !compute || !algorithm)
        return 15;
    return cublasSgemmStridedBatched(handle, ta, tb, m, n, k, alpha, a, lda, step_a, b, ldb, step_b,
                                     beta, c, ldc, step_c, batch);
}

int cublasDgemmBatched_64(void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k,
                          const double *alpha, const double *const *a, int64_t lda,
                          const double *const *b, int64_t ldb, const double *beta,
                          double *const *c, int64_t ldc, int64_t batch)
{
    for (int64_t i = 0; i < batch; ++i)
        cublasDgemm_v2_64(handle, ta, tb, m, n, k, alpha, a[i], lda, b[i], ldb, beta, c[i], ldc);
    return handle == NULL;
}

/* Descriptors are 64-bit numbers by attribute: of a product, operations are 3 and 4; of a matrix,
 * rows, columns and ld are 2, 3 and 4. */
static int get(const int64_t *of, int which, void *value, size_t bytes)
{
    memcpy(value, &of[which], bytes);
    return 0;
}

int cublasLtMatmulDescGetAttribute(const int64_t *of, int which, void *value, size_t bytes,
                                   size_t *written)
{
    return get(of, which, value, bytes) || written != NULL;
}

int cublasLtMatrixLayoutGetAttribute(const int64_t *of, int which, void *value, size_t bytes,
                                     size_t *written)
{
    return get(of, which, value, bytes) || written != NULL;
}

int cublasLtMatmul(void *handle, const int64_t *how, const void *alpha, const void *a,
                   const int64_t *of_a, const void *b, const int64_t *of_b, const void *beta,
                   const void *c, const int64_t *of_c, void *d, const int64_t *of_d,
                   const void *algorithm, void *workspace, size_t bytes, void *stream)
{
    const int64_t k = how[3] ? of_a[2] : of_a[3];
    if (c != d || of_c[4] != of_d[4] || algorithm || workspace || bytes || stream)
        return 15;
    return cublasSgemm_v2_64(handle, (int)how[3], (int)how[4], of_d[2], of_d[3], k, alpha, a, of_a[4],
                             b, of_b[4], beta, d, of_d[4]);
}

/* Of float32 alone. */
int cublasGemmEx(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                 const void *beta, void *c, int type_c, int ldc, int compute, int algorithm)
{
    if (type_a || type_b || type_c || !compute || !algorithm)
        return 15;
    return cublasSgemm_v2(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
