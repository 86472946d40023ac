/* What answers in cuBLAS's place shares.
 *
 *     tilewright_cublas.c         cuBLAS found, products served or not, what is written down
 *     tilewright_cublas_names.c   cuBLAS's names
 *     tilewright_cublas_lt.c      cublasLt's
 *     tilewright_bias.c           results whose columns begin with a vector
 *     tilewright_plans.c          plans of another accuracy, laid out by `tilewright run`
 */
#ifndef TILEWRIGHT_CUBLAS_H
#define TILEWRIGHT_CUBLAS_H

#include "tilewright_internal.h"
#include "tilewright_log.h"

#define API __attribute__((visibility("default")))

/* Of cublas_api.h and library_types.h. */
enum { EXECUTION_FAILED = 13, NOT_SUPPORTED = 15, TRANSPOSES = 3 };

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
typedef int strided_32(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                       const void *a, int lda, long long step_a, const void *b, int ldb,
                       long long step_b, const void *beta, void *c, int ldc, long long step_c,
                       int batch);
typedef int strided_64(void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k,
                       const void *alpha, const void *a, int64_t lda, long long step_a,
                       const void *b, int64_t ldb, long long step_b, const void *beta, void *c,
                       int64_t ldc, long long step_c, int64_t batch);
typedef int typed_strided_32(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                             const void *a, int type_a, int lda, long long step_a, const void *b,
                             int type_b, int ldb, long long step_b, const void *beta, void *c,
                             int type_c, int ldc, long long step_c, int batch, int compute,
                             int algorithm);
typedef int typed_strided_64(void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k,
                             const void *alpha, const void *a, int type_a, int64_t lda,
                             long long step_a, const void *b, int type_b, int64_t ldb,
                             long long step_b, const void *beta, void *c, int type_c, int64_t ldc,
                             long long step_c, int64_t batch, int compute, int algorithm);
typedef int pointers_32(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                        const void *a, int lda, const void *b, int ldb, const void *beta, void *c,
                        int ldc, int batch);
typedef int pointers_64(void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k,
                        const void *alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                        const void *beta, void *c, int64_t ldc, int64_t batch);
typedef int typed_pointers_32(void *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                              const void *a, int type_a, int lda, const void *b, int type_b,
                              int ldb, const void *beta, void *c, int type_c, int ldc, int batch,
                              int compute, int algorithm);
typedef int typed_pointers_64(void *handle, int ta, int tb, int64_t m, int64_t n, int64_t k,
                              const void *alpha, const void *a, int type_a, int64_t lda,
                              const void *b, int type_b, int64_t ldb, const void *beta, void *c,
                              int type_c, int64_t ldc, int64_t batch, int compute, int algorithm);
typedef int matmul(void *handle, void *how, const void *alpha, const void *a, void *of_a,
                   const void *b, void *of_b, const void *beta, const void *c, void *of_c, void *d,
                   void *of_d, const void *algorithm, void *workspace, size_t bytes, void *stream);
typedef int attribute(void *of, int which, void *value, size_t bytes, size_t *written);

/* In the order of their names; null where the library has none. */
typedef struct {
    int (*stream)(void *handle, void **stream);
    int (*pointers)(void *handle, int *mode);
    int (*math)(void *handle, int *mode);
    gemm_32 *gemm[TILEWRIGHT_PRECISIONS];
    gemm_64 *long_gemm[TILEWRIGHT_PRECISIONS];
    strided_32 *strided[TILEWRIGHT_PRECISIONS];
    strided_64 *long_strided[TILEWRIGHT_PRECISIONS];
    typed_32 *typed;
    typed_64 *long_typed;
    typed_strided_32 *typed_strided;
    typed_strided_64 *long_typed_strided;
    pointers_32 *pointers_of[TILEWRIGHT_PRECISIONS];
    pointers_64 *long_pointers_of[TILEWRIGHT_PRECISIONS];
    typed_pointers_32 *typed_pointers;
    typed_pointers_64 *long_typed_pointers;
} cublas_functions;

typedef struct {
    matmul *multiply;
    attribute *of_product, *of_matrix;
} cublaslt_functions;

/* The real libraries, found once. */
const cublas_functions *tilewright_cublas(void);
const cublaslt_functions *tilewright_cublaslt(void);

/* A product as cuBLAS is told it. */
typedef struct product {
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
    int64_t batch, step_a, step_b, step_c;
    /* Let cuBLAS compute it, the result elsewhere; null: where it is told by handle and letter. */
    int (*by_cublas)(const struct product *it, void *c);
    const void *more;   /* that `by_cublas` needs */
    const void *vector; /* what each column of the result begins with, in place of beta C; or null */
} product;

/* Of s d c z, where all matrices have its type and sums are of it; else -1. */
int tilewright_letter(int type_a, int type_b, int type_c, int compute_type);

/* What became of a product.  Spoiled: a launch failed behind others, and cuBLAS would add beta times
 * what these left of C. */
typedef enum { TILEWRIGHT_PASSED, TILEWRIGHT_SERVED, TILEWRIGHT_SPOILED } tilewright_answer;

/* Compute a product of a cuBLAS handle, where it is one that is served. */
tilewright_answer tilewright_serve(const product *it);

/* The same of one that is computed by IEEE arithmetic, from scalars on the host, on a stream. */
tilewright_answer tilewright_serve_on(const product *it, void *stream);

/* Write down that one is passed on. */
tilewright_answer tilewright_passed(const product *it);

/* Write a call into the trace that began at a time of tilewright_begin's; returns its status. */
int tilewright_ended(const product *it, const char *name, tilewright_answer answer, int64_t begun,
                     int status);

#endif
