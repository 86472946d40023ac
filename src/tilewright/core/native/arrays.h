/* What single products and groups of them take from Python besides arrays (arrays.c). */
#ifndef TILEWRIGHT_ARRAYS_H
#define TILEWRIGHT_ARRAYS_H

#include "core.h"
#include "seen.h"

/* What a plan depends on of alpha, beta and the transposes: a part of keys. */
typedef struct {
    char trans_a, trans_b, no_alpha, imaginary;
} tilewright_how;

/* Read alpha, beta and the transposes, given in this order, and the scalars as they are; false where
 * they take a closer look, as a beta does that is not 0 where C is new. */
int tilewright_read_how(PyObject *const *given, int new_c, tilewright_how *how,
                        tilewright_scalar *scalars);

/* Which scalars a precision takes. */
typedef struct {
    int is_complex;
    int whole;   /* integers of 32 bits */
    double most; /* finite ones beyond it are refused */
} tilewright_scalars;

/* Whether it takes alpha and beta, given, and as they were read. */
int tilewright_takes_scalars(const tilewright_scalars *it, PyObject *const *given,
                             const tilewright_scalar *scalars);

/* Read complex, whole and most. */
tilewright_scalars tilewright_read_scalars(PyObject *const *given);

/* The address of the stream that is current on a device; may raise. */
uint64_t tilewright_stream_of(int kind, int64_t device);

/* Raise what a CUresult stands for: null. */
PyObject *tilewright_raise(int64_t device, int status);

/* group(a, b, c, alpha, beta, trans_a, trans_b, out_dtype): grouped_gemm() of lists of matrices for a
 * call like one made before: the list of results, and the numbers of products that are still to be
 * computed.  None for any other call. */
PyObject *tilewright_group(PyObject *self, PyObject *const *given, intptr_t count);

/* remember_group(those, plans, owner, make, refuse, rest, places, extents, complex, whole, most): keep
 * how a call was computed that had its closer look.  Plans are packed pairs of an address and the
 * number of the first of its products among those that are launched, `places` where among all matrices
 * each such product's A, B and C are, as 32-bit numbers; make(a[0]) returns new results, and
 * refuse(a, b, c) raises where results share memory with other matrices. */
PyObject *tilewright_remember_group(PyObject *self, PyObject *const *given, intptr_t count);

void tilewright_forget_groups(void);

#endif
