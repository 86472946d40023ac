/* What stands in for cuBLAS on a host: the plainest loop, alpha = 1 and beta = 0 as they are told.
 *
 * An operation is 0, 1 or 2: none, transposed, conjugated and transposed.  The handle that a program
 * makes is served by IEEE arithmetic, unless a mode says otherwise. */
#include <complex.h>
#include <stddef.h>
#include <stdint.h>

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

/* Of float32 alone. */
int cublasGemmEx(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                 const void *beta, void *c, int type_c, int ldc, int compute, int algorithm)
{
    if (type_a || type_b || type_c || !compute || !algorithm)
        return 15;
    return cublasSgemm_v2(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
