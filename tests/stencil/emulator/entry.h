/* The door for ctypes: one launch, with the kernel's own arguments. */
#if STREAM_K
#define ITS_WORKSPACE , workspace
#else
#define ITS_WORKSPACE
#endif

extern "C" const char *emulate(const emulated::launch *l, isize m, isize n, isize k, REAL alpha_re,
                               REAL alpha_im, const elem *a, isize offset_a, isize lda,
                               const elem *b, isize offset_b, isize ldb, REAL beta_re,
                               REAL beta_im, elem *c, isize offset_c, isize ldc,
                               unsigned char *workspace)
{
    return emulated::run(*l, [&] {
        gemm(m, n, k, alpha_re, alpha_im, a, offset_a, lda, b, offset_b, ldb, beta_re, beta_im, c,
             offset_c, ldc ITS_WORKSPACE);
    });
}
