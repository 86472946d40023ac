/* What there is to see of arrays: attributes, asked for by name. */
#include "seen.h"

#include <stdlib.h>
#include <string.h>

tilewright_arrays tilewright_libraries[KINDS];
int tilewright_enabled;

static PyObject *data, *ptr, *device_id, *shape, *strides, *dtype, *data_ptr, *stride, *get_device,
    *is_conj, *is_neg, *layout, *requires_grad;

void tilewright_name_attributes(void)
{
    static const struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&data, "data"},         {&ptr, "ptr"},         {&device_id, "device_id"},
        {&shape, "shape"},       {&strides, "strides"}, {&dtype, "dtype"},
        {&data_ptr, "data_ptr"}, {&stride, "stride"},   {&get_device, "get_device"},
        {&is_conj, "is_conj"},   {&is_neg, "is_neg"},   {&layout, "layout"},
        {&requires_grad, "requires_grad"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        *names[i].name = PyUnicode_InternFromString(names[i].text);
}

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

/* Read an integer and drop its object; sets an error where it is none. */
static int64_t number(PyObject *x)
{
    const int64_t found = x == NULL ? 0 : PyLong_AsLongLong(x);
    if (x != NULL)
        Py_DecRef(x);
    return found;
}

uint64_t tilewright_address(PyObject *x)
{
    const uint64_t found = x == NULL ? 0 : PyLong_AsUnsignedLongLong(x);
    if (x != NULL)
        Py_DecRef(x);
    return found;
}

int tilewright_truth(PyObject *x)
{
    const int found = x == NULL ? -1 : PyObject_IsTrue(x);
    if (x != NULL)
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

/* Read both tuples of an array. */
static int see_layout(PyObject *sizes, PyObject *along, tilewright_layout *it)
{
    it->dimensions = several(sizes, it->shape);
    return several(along, it->steps) == it->dimensions && it->dimensions > 0;
}

/* The type's object, which lives as long as the array that has it. */
static const void *type_of_elements(PyObject *x)
{
    PyObject *const found = PyObject_GetAttr(x, dtype);
    if (found != NULL)
        Py_DecRef(found);
    return found;
}

static int see_cupy(PyObject *x, tilewright_seen *it)
{
    PyObject *const memory = PyObject_GetAttr(x, data);
    if (memory == NULL)
        return NO;
    it->address = tilewright_address(PyObject_GetAttr(memory, ptr));
    if (tilewright_is_well())
        it->device = number(PyObject_GetAttr(memory, device_id));
    Py_DecRef(memory);
    return tilewright_is_well() &&
           see_layout(PyObject_GetAttr(x, shape), PyObject_GetAttr(x, strides), &it->layout);
}

static int see_torch(PyObject *x, int grad, tilewright_seen *it)
{
    PyObject *const how = PyObject_GetAttr(x, layout);
    if (how != NULL)
        Py_DecRef(how);
    if (how != tilewright_libraries[TORCH].strided ||
        tilewright_truth(PyObject_CallMethodObjArgs(x, is_neg, NULL)) != NO)
        return NO;
    if (grad && tilewright_truth(PyObject_GetAttr(x, requires_grad)) != NO)
        return NO;
    it->address = tilewright_address(PyObject_CallMethodObjArgs(x, data_ptr, NULL));
    if (tilewright_is_well())
        it->device = number(PyObject_CallMethodObjArgs(x, get_device, NULL));
    if (tilewright_is_well())
        it->conjugated = tilewright_truth(PyObject_CallMethodObjArgs(x, is_conj, NULL));
    return tilewright_is_well() &&
           see_layout(PyObject_GetAttr(x, shape), PyObject_CallMethodObjArgs(x, stride, NULL),
                      &it->layout);
}

int tilewright_see(int kind, int grad, PyObject *x, tilewright_seen *it)
{
    memset(it, 0, sizeof *it);
    PyObject *const type = PyObject_Type(x);
    Py_DecRef(type); /* the array keeps it */
    if (type != tilewright_libraries[kind].type)
        return NO;
    if (!(kind == CUPY ? see_cupy(x, it) : see_torch(x, grad, it)))
        return NO;
    it->layout.dtype = type_of_elements(x);
    it->layout.begins = it->address % 16;
    return it->layout.dtype != NULL;
}

int tilewright_kind_of(PyObject *x)
{
    PyObject *const type = PyObject_Type(x);
    Py_DecRef(type);
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

PyObject *tilewright_know(PyObject *self, PyObject *const *given, intptr_t count)
{
    (void)self;
    const int64_t kind = count == 7 ? PyLong_AsLongLong(given[0]) : KINDS;
    if (kind < 0 || kind >= KINDS || tilewright_libraries[kind].type != NULL)
        return tilewright_none();
    tilewright_libraries[kind].stream = tilewright_kept(given[2]);
    tilewright_libraries[kind].empty = tilewright_kept(given[3]);
    tilewright_libraries[kind].memory = tilewright_kept(given[4]);
    tilewright_libraries[kind].grad = tilewright_kept(given[5]);
    tilewright_libraries[kind].strided = tilewright_kept(given[6]);
    tilewright_libraries[kind].type = tilewright_kept(given[1]);
    return tilewright_none();
}

/* ---- Groups ------------------------------------------------------------------------------ */

/* What there is to know of a matrix besides its address; compared byte by byte. */
typedef struct {
    int64_t shape[2], steps[2];
    const void *dtype;
    uint64_t begins;
    int64_t device;
} matrix_row;

/* Look at matrices of one library and device; false where one takes a closer look. */
static int look_at(PyObject *const *given, intptr_t count, matrix_row *rows, uint64_t *addresses)
{
    const int kind = tilewright_kind_of(given[0]);
    if (kind == KINDS)
        return NO;
    const int grad = tilewright_grad(kind);
    for (intptr_t i = 0; i < count; ++i) {
        tilewright_seen seen;
        if (grad < 0 || !tilewright_see(kind, grad, given[i], &seen) || seen.conjugated ||
            seen.layout.dimensions != 2 || (i > 0 && seen.device != rows[0].device))
            return NO;
        const matrix_row made = {{seen.layout.shape[0], seen.layout.shape[1]},
                                 {seen.layout.steps[0], seen.layout.steps[1]},
                                 seen.layout.dtype,
                                 seen.layout.begins,
                                 seen.device};
        rows[i] = made;
        addresses[i] = seen.address;
    }
    return YES;
}

PyObject *tilewright_look(PyObject *self, PyObject *const *given, intptr_t count)
{
    (void)self;
    if (!tilewright_enabled || count <= 0)
        return tilewright_none();
    matrix_row *const rows = malloc((size_t)count * sizeof *rows);
    uint64_t *const addresses = malloc((size_t)count * sizeof *addresses);
    PyObject *made = NULL;
    if (rows != NULL && addresses != NULL && look_at(given, count, rows, addresses)) {
        PyObject *const seen =
            PyBytes_FromStringAndSize((const char *)rows, count * (intptr_t)sizeof *rows);
        PyObject *const at =
            PyBytes_FromStringAndSize((const char *)addresses, count * (intptr_t)sizeof *addresses);
        if (seen != NULL && at != NULL)
            made = PyTuple_Pack(2, seen, at);
        if (seen != NULL)
            Py_DecRef(seen);
        if (at != NULL)
            Py_DecRef(at);
    }
    free(rows);
    free(addresses);
    return made != NULL ? made : tilewright_none();
}
