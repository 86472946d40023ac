/* What there is to see of CuPy's arrays and PyTorch's tensors. */
#ifndef TILEWRIGHT_SEEN_H
#define TILEWRIGHT_SEEN_H

#include "python.h"

enum { NO = 0, YES = 1 };

/* Libraries of arrays. */
enum { CUPY, TORCH, KINDS };

/* What a library's arrays are, and what is asked of it in Python. */
typedef struct {
    PyObject *type;   /* of exactly such arrays */
    PyObject *stream; /* stream(device) -> the current one's address */
    PyObject *empty;  /* empty(shape, dtype, device) -> a new C */
    PyObject *memory; /* memory(device, bytes) -> an address of the current stream's, its owner */
    PyObject *grad;   /* PyTorch's is_grad_enabled() */
    PyObject *strided;
} tilewright_arrays;

extern tilewright_arrays tilewright_libraries[KINDS];

/* Whether calls like one made before are looked at at all. */
extern int tilewright_enabled;

/* Arrays of more dimensions take a closer look at every call. */
enum { MOST_DIMENSIONS = 4 };

/* What there is to know of an array besides its address.  Strides in the library's own unit. */
typedef struct {
    int64_t dimensions, shape[MOST_DIMENSIONS], steps[MOST_DIMENSIONS];
    const void *dtype; /* Python's object; the entry keeps it */
    uint64_t begins;   /* its address modulo 16 */
} tilewright_layout;

typedef struct {
    tilewright_layout layout;
    uint64_t address;
    int64_t device;
    int conjugated;
} tilewright_seen;

/* Make the names of attributes. */
void tilewright_name_attributes(void);

/* The library of an array; KINDS for none. */
int tilewright_kind_of(PyObject *x);

/* Whether a library records gradients now; -1 is an error. */
int tilewright_grad(int kind);

/* Look at an array of a library; false where it is none, or one that takes a closer look.  With
 * `grad` that is one whose gradient is wanted. */
int tilewright_see(int kind, int grad, PyObject *x, tilewright_seen *it);

/* Whether nothing was raised: Python runs no more while an error waits. */
int tilewright_is_well(void);

/* None, for what takes a closer look, which meets an error again; but nobody is to lose an
 * interruption from the keyboard: null. */
PyObject *tilewright_none(void);

/* An object that is kept from now on. */
PyObject *tilewright_kept(PyObject *x);

/* Read an address and drop its object, or a truth value: -1 is an error.  Null is an error raised
 * before. */
uint64_t tilewright_address(PyObject *x);
int tilewright_truth(PyObject *x);

/* ---- Python's functions ------------------------------------------------------------------ */

/* enable(yes) sets tilewright_enabled. */
PyObject *tilewright_enable(PyObject *self, PyObject *const *given, intptr_t count);

/* know(kind, type, stream, empty, memory, grad, strided): let calls with a library's arrays be
 * looked at. */
PyObject *tilewright_know(PyObject *self, PyObject *const *given, intptr_t count);

/* look(matrix, ...): what there is to know of matrices, as bytes, and their addresses, as bytes;
 * None where one takes a closer look. */
PyObject *tilewright_look(PyObject *self, PyObject *const *given, intptr_t count);

#endif
