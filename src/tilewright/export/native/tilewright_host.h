/* Products of matrices in the host's memory, computed by the device. */
#ifndef TILEWRIGHT_HOST_H
#define TILEWRIGHT_HOST_H

#include "tilewright_internal.h"

/* Column-major; sizes and leading dimensions are right, C shares nothing with A and B. */
typedef struct {
    int letter, op_a, op_b; /* of s d c z, of N T C */
    int64_t m, n, k;
    const void *alpha, *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    const void *beta;
    void *c;
    int64_t ldc;
} tilewright_host_product;

/* Whether there is a device, as far as is known: false where CUDA could not begin, and in a process
 * that was forked from one that uses it. */
int tilewright_host_serves(void);

/* The host's cores that this process may use. */
int64_t tilewright_host_cores(void);

/* Compute a product; C has been written when it returns.  Where it fails, `*written` says whether
 * some of C may have been. */
tw_status tilewright_host_gemm(const tilewright_host_product *it, int *written);

#endif
