/* What there is to see of arrays: attributes, asked for by name, or DLPack's description. */
#include "seen.h"

#include <stdlib.h>
#include <string.h>

tilewright_arrays tilewright_libraries[KINDS];
int tilewright_enabled;

/* dlpack.h: kDLCUDA, kDLUInt (kDLInt is less), kDLComplex, and the version that `exchange` is of. */
enum { DL_CUDA = 2, DL_UINT = 1, DL_COMPLEX = 5, DL_MAJOR = 1 };

/* DLPackExchangeAPI of dlpack.h up to what is called here. */
typedef struct {
    uint32_t major, minor;
    void *older, *others[3];
    tilewright_describe *describe;
} exchange;

int tilewright_is_well(void) { return PyErr_Occurred() == NULL; }

PyObject *tilewright_none(void)
{
    if (!tilewright_is_well()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return NULL;
        PyErr_Clear();
    }
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

PyObject *tilewright_kept(PyObject *x)
{
    Py_IncRef(x);
    return x;
}

PyObject *tilewright_type_of(PyObject *x)
{
    PyObject *const type = PyObject_Type(x);
    Py_DecRef(type);
    return type;
}

/* Attributes of CuPy's arrays, of their memory, of PyTorch's tensors, and of double-double matrices. */
typedef struct {
    const char *text;
    PyObject *name; /* null before it is asked for */
} attribute;

static attribute data = {.text = "data"}, shape = {.text = "shape"}, strides = {.text = "strides"},
                 dtype = {.text = "dtype"}, ptr = {.text = "ptr"}, device_id = {.text = "device_id"},
                 layout = {.text = "layout"}, requires_grad = {.text = "requires_grad"},
                 data_ptr = {.text = "data_ptr"}, stride = {.text = "stride"},
                 get_device = {.text = "get_device"}, is_conj = {.text = "is_conj"},
                 is_neg = {.text = "is_neg"}, words = {.text = "words"},
                 is_complex = {.text = "is_complex"};

static PyObject *name_of(attribute *it)
{
    if (it->name == NULL)
        it->name = PyUnicode_InternFromString(it->text);
    return it->name;
}

static PyObject *of(attribute *it, PyObject *x) { return PyObject_GetAttr(x, name_of(it)); }

static PyObject *call(attribute *it, PyObject *x)
{
    return PyObject_CallMethodObjArgs(x, name_of(it), NULL);
}

/* Read an integer and drop its object; sets an error where it is none. */
static int64_t number(PyObject *x)
{
    const int64_t found = x == NULL ? 0 : PyLong_AsLongLong(x);
    Py_DecRef(x);
    return found;
}

uint64_t tilewright_address(PyObject *x)
{
    const uint64_t found = x == NULL ? 0 : PyLong_AsUnsignedLongLong(x);
    Py_DecRef(x);
    return found;
}

int tilewright_truth(PyObject *x)
{
    const int found = x == NULL ? -1 : PyObject_IsTrue(x);
    Py_DecRef(x);
    return found;
}

/* Read a tuple of integers, one for each dimension, and drop it; returns how many, or 0. */
static int64_t several(PyObject *x, int64_t *to)
{
    if (x == NULL)
        return 0;
    int64_t count = PyTuple_Size(x);
    if (count < 2 || count > MOST_DIMENSIONS)
        count = 0;
    for (int64_t i = 0; i < count && tilewright_is_well(); ++i)
        to[i] = PyLong_AsLongLong(PyTuple_GetItem(x, i));
    Py_DecRef(x);
    return tilewright_is_well() ? count : 0;
}

/* The address of an object that an array keeps; 0 is an error. */
static uint64_t identity(PyObject *found)
{
    Py_DecRef(found);
    return (uint64_t)(uintptr_t)found;
}

/* The layout of an array, its strides by an attribute or a method; false after an error. */
static int see_layout(PyObject *x, PyObject *steps_of(attribute *, PyObject *), attribute *steps,
                      tilewright_seen *it)
{
    if (tilewright_is_well())
        it->layout.dimensions = several(of(&shape, x), it->layout.shape);
    if (it->layout.dimensions == 0 ||
        several(steps_of(steps, x), it->layout.steps) != it->layout.dimensions)
        return NO;
    it->layout.elements = identity(of(&dtype, x));
    return it->layout.elements != 0;
}

/* Something within an object, so many bytes from where it begins. */
static void *within(void *x, int64_t at)
{
    void *found;
    memcpy(&found, (char *)x + at, sizeof found);
    return found;
}

/* A C++ vector of sizes begins with where they begin and end; returns how many, or 0. */
static int64_t vector(PyObject *x, int64_t at, int64_t *to)
{
    const int64_t *const first = within(x, at), *const end = within(x, at + (int64_t)sizeof first);
    const int64_t count = end - first;
    if (count < 2 || count > MOST_DIMENSIONS)
        return 0;
    memcpy(to, first, (size_t)count * sizeof *to);
    return count;
}

/* The attributes where they lie, which makes no objects. */
static int see_fields(PyObject *x, tilewright_seen *it)
{
    const tilewright_arrays *const known = &tilewright_libraries[CUPY];
    const int64_t *const at = known->inside;
    PyObject *const memory = within(x, at[IN_DATA]);
    if (memory == NULL || tilewright_type_of(memory) != known->part)
        return NO;
    it->address = (uint64_t)(uintptr_t)within(memory, at[IN_PTR]);
    int32_t device;
    memcpy(&device, (char *)memory + at[IN_DEVICE], sizeof device);
    it->device = device;
    it->layout.elements = (uint64_t)(uintptr_t)within(x, at[IN_DTYPE]);
    it->layout.dimensions = vector(x, at[IN_SHAPE], it->layout.shape);
    return it->layout.dimensions > 0 &&
           vector(x, at[IN_STRIDES], it->layout.steps) == it->layout.dimensions;
}

static int see_cupy(PyObject *x, tilewright_seen *it)
{
    if (tilewright_libraries[CUPY].has_inside)
        return see_fields(x, it);
    PyObject *const memory = of(&data, x);
    if (memory == NULL)
        return NO;
    it->address = tilewright_address(of(&ptr, memory));
    if (tilewright_is_well())
        it->device = number(of(&device_id, memory));
    Py_DecRef(memory);
    return see_layout(x, of, &strides, it);
}

/* The answer of a function of PyTorch's in C++. */
static int asked(int64_t function, const void *of)
{
    return ((_Bool (*)(const void *))(uintptr_t)function)(of);
}

/* The same of one that takes a tensor, or of its method; -1 is an error. */
static int tells(PyObject *x, int which, attribute *method)
{
    const tilewright_arrays *const known = &tilewright_libraries[TORCH];
    return known->has_inside ? asked(known->inside[which], (char *)x + known->inside[IN_TENSOR])
                             : tilewright_truth(call(method, x));
}

/* What DLPack tells of a tensor.  Sparse ones and the like have no such description. */
static int see_described(PyObject *x, tilewright_seen *it)
{
    tilewright_described found;
    if (tilewright_libraries[TORCH].describe(x, &found) != 0 || found.device_type != DL_CUDA ||
        found.dimensions < 2 || found.dimensions > MOST_DIMENSIONS || found.steps == NULL)
        return NO;
    it->address = (uint64_t)(uintptr_t)found.data + found.byte_offset;
    it->device = found.device_id;
    it->layout.dimensions = found.dimensions;
    for (int32_t i = 0; i < found.dimensions; ++i) {
        it->layout.shape[i] = found.shape[i];
        it->layout.steps[i] = found.steps[i];
    }
    it->layout.elements =
        found.code <= DL_UINT /* PyTorch's int4 is described as int8 is, and so on */
            ? identity(of(&dtype, x))
            : (uint64_t)found.lanes << 17 | (uint64_t)found.bits << 9 | (uint64_t)found.code << 1 | 1;
    if (found.code == DL_COMPLEX) /* no others are lazily conjugated */
        it->conjugated = tells(x, IN_IS_CONJ, &is_conj);
    return tilewright_is_well();
}

/* The same by attributes, for an older PyTorch. */
static int see_attributes(PyObject *x, tilewright_seen *it)
{
    PyObject *const how = of(&layout, x);
    Py_DecRef(how);
    if (how != tilewright_libraries[TORCH].part)
        return NO;
    it->address = tilewright_address(call(&data_ptr, x));
    if (tilewright_is_well())
        it->device = number(call(&get_device, x));
    if (tilewright_is_well())
        it->conjugated = tells(x, IN_IS_CONJ, &is_conj);
    return see_layout(x, call, &stride, it);
}

/* Whether a tensor is the negative of what lies in memory, or its gradient is wanted; -1 is an error. */
static int is_unusual(PyObject *x, int grad)
{
    const tilewright_arrays *const known = &tilewright_libraries[TORCH];
    const int negative = tells(x, IN_IS_NEG, &is_neg);
    if (negative != NO || !grad)
        return negative;
    return known->has_inside ? asked(known->inside[IN_REQUIRES_GRAD], within(x, known->inside[IN_TENSOR]))
                             : tilewright_truth(of(&requires_grad, x));
}

static int see_torch(PyObject *x, int grad, tilewright_seen *it)
{
    return (tilewright_libraries[TORCH].describe != NULL ? see_described : see_attributes)(x, it) &&
           is_unusual(x, grad) == NO;
}

/* Double-double numbers by their words, which lie side by side behind the shape: a high and a low one, of
 * complex numbers twice. */
static int see_pairs(PyObject *x, tilewright_seen *it)
{
    const int twice = tilewright_truth(of(&is_complex, x));
    PyObject *const own = twice < 0 ? NULL : of(&words, x);
    if (own == NULL)
        return NO;
    int seen = tilewright_type_of(own) == tilewright_libraries[CUPY].type && see_cupy(own, it);
    Py_DecRef(own); /* x keeps them */
    for (int i = 0; seen && i <= twice; ++i) {
        const int64_t last = --it->layout.dimensions;
        seen = last >= 2 && it->layout.shape[last] == 2 && it->layout.steps[last] == (int64_t)8 << i;
        it->layout.shape[last] = it->layout.steps[last] = 0;
    }
    it->layout.begins = twice ? 16 : 0;
    return seen;
}

int tilewright_see(int kind, int grad, PyObject *x, tilewright_seen *it)
{
    memset(it, 0, sizeof *it);
    if (tilewright_type_of(x) != tilewright_libraries[kind].type)
        return NO;
    if (!(kind == CUPY ? see_cupy(x, it) : kind == TORCH ? see_torch(x, grad, it) : see_pairs(x, it)))
        return NO;
    it->layout.begins += it->address % 16;
    int found = it->address != 0; /* without elements no memory is needed */
    for (int64_t i = 0; i < it->layout.dimensions; ++i)
        found |= it->layout.shape[i] == 0;
    return found;
}

int tilewright_kind_of(PyObject *x)
{
    PyObject *const type = tilewright_type_of(x);
    int kind = 0;
    while (kind < KINDS && (tilewright_libraries[kind].type == NULL ||
                            tilewright_libraries[kind].type != type))
        ++kind;
    return kind;
}

int tilewright_grad(int kind)
{
    PyObject *const asks = tilewright_libraries[kind].grad;
    return kind == TORCH ? tilewright_truth(PyObject_CallFunctionObjArgs(asks, NULL)) : NO;
}

/* ---- Libraries ---------------------------------------------------------------------------- */

PyObject *tilewright_enable(PyObject *self, PyObject *const *given, intptr_t count)
{
    (void)self;
    tilewright_enabled = count == 1 && PyObject_IsTrue(given[0]) == YES;
    return tilewright_none();
}

/* DLPack's function of a type of arrays; null where it has none. */
static tilewright_describe *description_by(PyObject *type)
{
    PyObject *const capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    const exchange *const found =
        capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DecRef(capsule); /* the type keeps it */
    PyErr_Clear();
    return found != NULL && found->major == DL_MAJOR ? found->describe : NULL;
}

/* Read the numbers of a tuple; false where they are none, or too many. */
static int read_inside(PyObject *given, int64_t *to)
{
    const intptr_t count = given == &_Py_NoneStruct ? 0 : PyTuple_Size(given);
    if (count <= 0 || count > MOST_INSIDE)
        return NO;
    for (intptr_t i = 0; i < count && tilewright_is_well(); ++i)
        to[i] = PyLong_AsLongLong(PyTuple_GetItem(given, i));
    return tilewright_is_well();
}

PyObject *tilewright_know(PyObject *self, PyObject *const *given, intptr_t count)
{
    (void)self;
    const int64_t kind = count == 8 ? PyLong_AsLongLong(given[0]) : KINDS;
    if (kind < 0 || kind >= KINDS || tilewright_libraries[kind].type != NULL)
        return tilewright_none();
    tilewright_arrays *const it = &tilewright_libraries[kind];
    it->stream = tilewright_kept(given[2]);
    it->empty = tilewright_kept(given[3]);
    it->memory = tilewright_kept(given[4]);
    it->grad = tilewright_kept(given[5]);
    it->part = tilewright_kept(given[6]);
    it->has_inside = read_inside(given[7], it->inside);
    if (kind == TORCH)
        it->describe = description_by(given[1]);
    it->type = tilewright_kept(given[1]);
    return tilewright_none();
}
