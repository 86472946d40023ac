/* What stands in for cuBLAS on a host: the plainest loop, alpha = 1 and beta = 0 as they are told.
 *
 * An operation is 0, 1 or 2: none, transposed, conjugated and transposed. */
#include <complex.h>
#include <stddef.h>
#include <stdint.h>

int cublasCreate_v2(void **handle)
{
    static int made;
    *handle = &made;
    return 0;
}

int cublasSetMathMode(void *handle, int mode) { return handle == NULL || mode != 0; }

int cublasSetWorkspace_v2(void *handle, void *memory, size_t bytes)
{
    return handle == NULL || memory == NULL || bytes != WORKSPACE;
}

#define GEMM(name, type, conjugate)                                                                \
    int name(void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k, const type *alpha,     \
             const type *a, int64_t lda, const type *b, int64_t ldb, const type *beta, type *c,    \
             int64_t ldc)                                                                          \
    {                                                                                              \
        for (int64_t j = 0; j < n; ++j)                                                            \
            for (int64_t i = 0; i < m; ++i) {                                                      \
                type sum = 0;                                                                      \
                for (int64_t l = 0; l < k; ++l) {                                                  \
                    const type x = a[ta ? l + i * lda : i + l * lda];                              \
                    const type y = b[tb ? j + l * ldb : l + j * ldb];                              \
                    sum += (ta == 2 ? conjugate(x) : x) * (tb == 2 ? conjugate(y) : y);            \
                }                                                                                  \
                c[i + j * ldc] = *alpha * sum + *beta;                                             \
            }                                                                                      \
        return handle == NULL;                                                                     \
    }

#define ITSELF(x) (x)
GEMM(cublasSgemm_v2_64, float, ITSELF)
GEMM(cublasDgemm_v2_64, double, ITSELF)
GEMM(cublasCgemm_v2_64, float complex, conjf)
GEMM(cublasZgemm_v2_64, double complex, conj)
