/* What this library takes from Python: a part of its stable ABI (PEP 384), which is the same in
 * every version from 3.11 on.  Declared here, so that Python's headers need not be installed. */
#ifndef TILEWRIGHT_PYTHON_H
#define TILEWRIGHT_PYTHON_H

#include <stddef.h>
#include <stdint.h>

typedef struct tilewright_object PyObject; /* never looked into */

typedef struct {
    const char *name;
    PyObject *(*call)(PyObject *self, PyObject *const *arguments, intptr_t count);
    int flags;
    const char *text;
} PyMethodDef;

enum { METH_FASTCALL = 0x0080 };

extern PyObject _Py_NoneStruct;
extern PyObject *PyExc_Exception;

PyObject *PyCFunction_NewEx(PyMethodDef *method, PyObject *self, PyObject *module);
void Py_IncRef(PyObject *x); /* of null these two do nothing */
void Py_DecRef(PyObject *x);
PyObject *PyObject_Type(PyObject *x);
PyObject *PyObject_GetAttr(PyObject *x, PyObject *name);
PyObject *PyObject_GetAttrString(PyObject *x, const char *name);
PyObject *PyObject_CallFunctionObjArgs(PyObject *called, ...);
PyObject *PyObject_CallFunction(PyObject *called, const char *format, ...);
PyObject *PyObject_CallMethodObjArgs(PyObject *x, PyObject *name, ...);
int PyObject_IsTrue(PyObject *x);
PyObject *PyUnicode_InternFromString(const char *text);
const char *PyUnicode_AsUTF8AndSize(PyObject *text, intptr_t *size);
intptr_t PyTuple_Size(PyObject *tuple);
PyObject *PyTuple_GetItem(PyObject *tuple, intptr_t at); /* borrowed */
PyObject *PyTuple_Pack(intptr_t count, ...);
intptr_t PyList_Size(PyObject *list);
PyObject *PyList_GetItem(PyObject *list, intptr_t at); /* borrowed */
intptr_t PyBytes_Size(PyObject *bytes);
char *PyBytes_AsString(PyObject *bytes);
void *PyCapsule_GetPointer(PyObject *capsule, const char *name);
long long PyLong_AsLongLong(PyObject *number);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *number);
double PyFloat_AsDouble(PyObject *number);
double PyComplex_RealAsDouble(PyObject *number);
double PyComplex_ImagAsDouble(PyObject *number);
PyObject *PyErr_Occurred(void);
int PyErr_ExceptionMatches(PyObject *kind);
void PyErr_Clear(void);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *thread);

#endif
