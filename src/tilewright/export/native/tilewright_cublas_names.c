/* cuBLAS's names.  What is not served reaches the function of that name with its arguments. */
#include "tilewright_cublas.h"

/* Serve a product, if it is one that is, or let cuBLAS's function compute it. */
#define ANSWER(name, it, serve, function, ...)                                                     \
    const int64_t begun = tilewright_begin();                                                      \
    const tilewright_answer answer = serve(&it);                                                   \
    const int status = answer == TILEWRIGHT_SERVED    ? 0                                          \
                       : answer == TILEWRIGHT_SPOILED ? EXECUTION_FAILED                           \
                       : function == NULL             ? NOT_SUPPORTED                              \
                                                      : function(__VA_ARGS__);                     \
    return tilewright_ended(&it, #name, answer, begun, status);

#define DEFINE(name, integer, member, letter)                                                      \
    API int name(void *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha, \
                 const void *a, integer lda, const void *b, integer ldb, const void *beta,         \
                 void *c, integer ldc)                                                             \
    {                                                                                              \
        const product it = {letter, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,  \
                            1, 0, 0, 0, NULL, NULL, NULL};                                         \
        ANSWER(name, it, tilewright_serve, tilewright_cublas()->member[letter], handle, ta, tb, m, \
               n, k, alpha, a, lda, b, ldb, beta, c, ldc)                                          \
    }

DEFINE(cublasSgemm_v2, int, gemm, 0)
DEFINE(cublasDgemm_v2, int, gemm, 1)
DEFINE(cublasCgemm_v2, int, gemm, 2)
DEFINE(cublasZgemm_v2, int, gemm, 3)
DEFINE(cublasSgemm_v2_64, int64_t, long_gemm, 0)
DEFINE(cublasDgemm_v2_64, int64_t, long_gemm, 1)
DEFINE(cublasCgemm_v2_64, int64_t, long_gemm, 2)
DEFINE(cublasZgemm_v2_64, int64_t, long_gemm, 3)

#define DEFINE_STRIDED(name, integer, member, letter)                                              \
    API int name(void *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha, \
                 const void *a, integer lda, long long step_a, const void *b, integer ldb,         \
                 long long step_b, const void *beta, void *c, integer ldc, long long step_c,       \
                 integer batch)                                                                    \
    {                                                                                              \
        const product it = {letter, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,  \
                            batch, step_a, step_b, step_c, NULL, NULL, NULL};                      \
        ANSWER(name, it, tilewright_serve, tilewright_cublas()->member[letter], handle, ta, tb, m, \
               n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, c, ldc, step_c, batch)           \
    }

DEFINE_STRIDED(cublasSgemmStridedBatched, int, strided, 0)
DEFINE_STRIDED(cublasDgemmStridedBatched, int, strided, 1)
DEFINE_STRIDED(cublasCgemmStridedBatched, int, strided, 2)
DEFINE_STRIDED(cublasZgemmStridedBatched, int, strided, 3)
DEFINE_STRIDED(cublasSgemmStridedBatched_64, int64_t, long_strided, 0)
DEFINE_STRIDED(cublasDgemmStridedBatched_64, int64_t, long_strided, 1)
DEFINE_STRIDED(cublasCgemmStridedBatched_64, int64_t, long_strided, 2)
DEFINE_STRIDED(cublasZgemmStridedBatched_64, int64_t, long_strided, 3)

#define DEFINE_TYPED(name, integer, member)                                                        \
    API int name(void *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha, \
                 const void *a, int type_a, integer lda, const void *b, int type_b, integer ldb,   \
                 const void *beta, void *c, int type_c, integer ldc, int compute_type,             \
                 int algorithm)                                                                    \
    {                                                                                              \
        const int letter = tilewright_letter(type_a, type_b, type_c, compute_type);                \
        const product it = {letter, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,  \
                            1, 0, 0, 0, NULL, NULL, NULL};                                         \
        ANSWER(name, it, tilewright_serve, tilewright_cublas()->member, handle, ta, tb, m, n, k,   \
               alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute_type,          \
               algorithm)                                                                          \
    }

DEFINE_TYPED(cublasGemmEx, int, typed)
DEFINE_TYPED(cublasGemmEx_64, int64_t, long_typed)

#define DEFINE_TYPED_STRIDED(name, integer, member)                                                \
    API int name(void *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha, \
                 const void *a, int type_a, integer lda, long long step_a, const void *b,          \
                 int type_b, integer ldb, long long step_b, const void *beta, void *c, int type_c, \
                 integer ldc, long long step_c, integer batch, int compute_type, int algorithm)    \
    {                                                                                              \
        const int letter = tilewright_letter(type_a, type_b, type_c, compute_type);                \
        const product it = {letter, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,  \
                            batch, step_a, step_b, step_c, NULL, NULL, NULL};                      \
        ANSWER(name, it, tilewright_serve, tilewright_cublas()->member, handle, ta, tb, m, n, k,   \
               alpha, a, type_a, lda, step_a, b, type_b, ldb, step_b, beta, c, type_c, ldc,        \
               step_c, batch, compute_type, algorithm)                                             \
    }

DEFINE_TYPED_STRIDED(cublasGemmStridedBatchedEx, int, typed_strided)
DEFINE_TYPED_STRIDED(cublasGemmStridedBatchedEx_64, int64_t, long_typed_strided)

/* Arrays of pointers lie in device memory, where the host does not look: these are passed on. */
#define DEFINE_POINTERS(name, integer, member, letter)                                             \
    API int name(void *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha, \
                 const void *a, integer lda, const void *b, integer ldb, const void *beta,         \
                 void *c, integer ldc, integer batch)                                              \
    {                                                                                              \
        const product it = {letter, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,  \
                            batch, 0, 0, 0, NULL, NULL, NULL};                                     \
        ANSWER(name, it, tilewright_passed, tilewright_cublas()->member[letter], handle, ta, tb,   \
               m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, batch)                                \
    }

DEFINE_POINTERS(cublasSgemmBatched, int, pointers_of, 0)
DEFINE_POINTERS(cublasDgemmBatched, int, pointers_of, 1)
DEFINE_POINTERS(cublasCgemmBatched, int, pointers_of, 2)
DEFINE_POINTERS(cublasZgemmBatched, int, pointers_of, 3)
DEFINE_POINTERS(cublasSgemmBatched_64, int64_t, long_pointers_of, 0)
DEFINE_POINTERS(cublasDgemmBatched_64, int64_t, long_pointers_of, 1)
DEFINE_POINTERS(cublasCgemmBatched_64, int64_t, long_pointers_of, 2)
DEFINE_POINTERS(cublasZgemmBatched_64, int64_t, long_pointers_of, 3)

#define DEFINE_TYPED_POINTERS(name, integer, member)                                               \
    API int name(void *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha, \
                 const void *a, int type_a, integer lda, const void *b, int type_b, integer ldb,   \
                 const void *beta, void *c, int type_c, integer ldc, integer batch,                \
                 int compute_type, int algorithm)                                                  \
    {                                                                                              \
        const int letter = tilewright_letter(type_a, type_b, type_c, compute_type);                \
        const product it = {letter, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,  \
                            batch, 0, 0, 0, NULL, NULL, NULL};                                     \
        ANSWER(name, it, tilewright_passed, tilewright_cublas()->member, handle, ta, tb, m, n, k,  \
               alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, batch, compute_type,   \
               algorithm)                                                                          \
    }

DEFINE_TYPED_POINTERS(cublasGemmBatchedEx, int, typed_pointers)
DEFINE_TYPED_POINTERS(cublasGemmBatchedEx_64, int64_t, long_typed_pointers)
