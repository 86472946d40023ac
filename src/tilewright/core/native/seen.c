/* What there is to see of arrays: attributes, asked for by name. */
#include "seen.h"

#include <string.h>

tilewright_arrays tilewright_libraries[KINDS];

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
