/* What there is to see of CuPy's arrays, PyTorch's tensors, and double-double matrices of CuPy's words. */
#ifndef TILEWRIGHT_SEEN_H
#define TILEWRIGHT_SEEN_H

#include "python.h"

enum { NO = 0, YES = 1 };

/* Libraries of arrays; PAIRS: DoubleDouble, of CuPy's words. */
enum { CUPY, TORCH, PAIRS, KINDS };

/* An array as DLPack describes it (dlpack.h, DLTensor), and what fills that in without new objects:
 * it returns 0, or raises. */
typedef struct {
    void *data;
    int32_t device_type, device_id, dimensions;
    uint8_t code, bits; /* of the type of elements */
    uint16_t lanes;
    const int64_t *shape, *steps; /* the array's own */
    uint64_t byte_offset;
} tilewright_described;

typedef int tilewright_describe(PyObject *x, tilewright_described *it);

/* Of CuPy's arrays: bytes from where one begins to its pointer, its type of elements, vectors of shape
 * and strides, and from where a pointer begins to address and device. */
enum { IN_DATA, IN_DTYPE, IN_SHAPE, IN_STRIDES, IN_PTR, IN_DEVICE, MOST_INSIDE };

/* Of PyTorch's: bytes to the at::Tensor, and addresses of at::native::is_neg and is_conj, which take
 * that, and of c10::TensorImpl::requires_grad, which takes what that points to. */
enum { IN_TENSOR, IN_IS_NEG, IN_IS_CONJ, IN_REQUIRES_GRAD };

/* What a library's arrays are, and what is asked of it in Python. */
typedef struct {
    PyObject *type;   /* of exactly such arrays */
    PyObject *stream; /* stream(device) -> the current one's address */
    PyObject *empty;  /* empty(shape, dtype, device) -> a new C */
    PyObject *memory; /* memory(device, bytes) -> an address of the current stream's, its owner */
    PyObject *grad;   /* PyTorch's is_grad_enabled() */
    PyObject *part;   /* the type of CuPy's pointers; PyTorch's layout of dense tensors; or none */
    int has_inside;   /* whether it is known what lies where: attributes tell the same */
    int64_t inside[MOST_INSIDE];
    tilewright_describe *describe; /* DLPack's function, where PyTorch has one */
} tilewright_arrays;

extern tilewright_arrays tilewright_libraries[KINDS];

/* Whether calls like one made before are looked at at all. */
extern int tilewright_enabled;

/* Arrays of more dimensions take a closer look at every call. */
enum { MOST_DIMENSIONS = 4 };

/* What there is to know of an array besides its address.  Strides in the library's own unit. */
typedef struct {
    int64_t dimensions, shape[MOST_DIMENSIONS], steps[MOST_DIMENSIONS];
    uint64_t elements; /* Python's type of them, which the entry keeps, or DLPack's, which is odd */
    uint64_t begins;   /* its address modulo 16; 16 more of complex pairs, whose words are real ones' */
} tilewright_layout;

typedef struct {
    tilewright_layout layout;
    uint64_t address;
    int64_t device;
    int conjugated;
} tilewright_seen;

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

/* The type of an object, which keeps it. */
PyObject *tilewright_type_of(PyObject *x);

/* Read an address and drop its object, or a truth value: -1 is an error.  Null is an error raised
 * before. */
uint64_t tilewright_address(PyObject *x);
int tilewright_truth(PyObject *x);

/* ---- Python's functions ------------------------------------------------------------------ */

/* enable(yes) sets tilewright_enabled. */
PyObject *tilewright_enable(PyObject *self, PyObject *const *given, intptr_t count);

/* know(kind, type, stream, empty, memory, grad, part, inside): let calls with a library's arrays be
 * looked at. */
PyObject *tilewright_know(PyObject *self, PyObject *const *given, intptr_t count);

#endif
