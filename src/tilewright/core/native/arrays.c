/* Calls with CuPy's arrays, PyTorch's tensors and double-double matrices: from Python's objects to a launch.
 *
 *     gemm(a, b, c, ...)  ->  layouts of the arrays  ->  key  ->  plan  ->  addresses, scalars, stream
 *
 * `again` does all of gemm() for a call like one made before, and returns None for any other: a
 * closer look at its arguments is the caller's, who then lets `remember` keep its plan.  Whatever is
 * unusual (other types, scalars, devices, memory that overlaps) is left to that closer look. */
#include "arrays.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static PyObject *failed; /* failed(device, status): raises the error of a CUresult */

/* Types of numbers; real ones: Python's, and NumPy's of 64 and of 32 bits. */
enum { REALS = 3 };
static PyObject *an_int, *a_complex, *reals[REALS];

/* ---- Entries -------------------------------------------------------------------------- */

/* Compared byte by byte: has no padding, and is made zero before it is filled in. */
typedef struct {
    const void *type, *out_dtype; /* Python's objects */
    tilewright_layout a, b, c;
    int64_t device;
    char accuracy[16];
    tilewright_how how;
    char conjugated_a, conjugated_b, new_c, padding;
} call_key;

_Static_assert(sizeof(call_key) % sizeof(uint64_t) == 0, "the key is whole words");

/* Python's objects that an entry keeps: the plan's owner, shape, dtype and device of a new C, and
 * types of the key. */
enum { OF_PLAN, OF_SHAPE, OF_DTYPE, OF_DEVICE, OF_KEY, KEPT = OF_KEY + 4 };

typedef struct {
    tilewright_node node;
    call_key key;
    const tilewright_plan *plan;
    PyObject *kept[KEPT]; /* or null */
    int exchanged;                             /* whether the kernel's A is the caller's b */
    tilewright_scalars scalars;
    uint64_t extent_a, extent_b, extent_c;     /* bytes from the first element to the last's end */
    struct {
        int64_t a, b; /* from them to C: distances at which no element is shared */
    } apart[8];
    unsigned apart_count, next_apart;
} entry;

/* Under Python's lock. */
static tilewright_table plans = {.key_bytes = sizeof(call_key), .entry_bytes = sizeof(entry)};

/* ---- Calls ---------------------------------------------------------------------------- */

/* gemm's arguments, in the order in which `again` and `remember` take them. */
enum { A, B, C, ALPHA, BETA, TRANS_A, TRANS_B, ACCURACY, OUT_DTYPE, DEVICE, ARGUMENTS };

typedef struct {
    call_key key;
    tilewright_seen a, b, c;
    tilewright_scalar scalars[2]; /* alpha and beta */
    int kind;
} request;

static int is_none(const PyObject *x) { return x == &_Py_NoneStruct; }

/* One of N, T and C in either case; 0 where it is spelled otherwise. */
static char operation(PyObject *x)
{
    intptr_t size = 0;
    const char *const text = PyUnicode_AsUTF8AndSize(x, &size);
    const char letter = text != NULL && size == 1 ? (char)(*text & ~0x20) : '\0'; /* ASCII's case */
    return letter == 'N' || letter == 'T' || letter == 'C' ? letter : '\0';
}

static int is_real(const PyObject *type)
{
    int found = type == an_int;
    for (int i = 0; i < REALS; ++i)
        found |= type == reals[i];
    return found;
}

/* A Python number as it is, or one of NumPy's; others may change their value, or be none: false. */
static int read_scalar(PyObject *x, tilewright_scalar *it)
{
    const PyObject *const type = tilewright_type_of(x);
    *it = (tilewright_scalar){0, 0, 0, 0};
    if (is_real(type)) {
        it->re = PyFloat_AsDouble(x);
    } else if (type == a_complex) {
        it->re = PyComplex_RealAsDouble(x);
        it->im = PyComplex_ImagAsDouble(x);
    } else {
        return NO;
    }
    return tilewright_is_well();
}

int tilewright_read_how(PyObject *const *given, int new_c, tilewright_how *how,
                        tilewright_scalar *scalars)
{
    how->trans_a = operation(given[2]);
    how->trans_b = how->trans_a ? operation(given[3]) : '\0';
    if (!how->trans_b || !read_scalar(given[0], &scalars[0]) || !read_scalar(given[1], &scalars[1]))
        return NO;
    how->no_alpha = scalars[0].re == 0 && scalars[0].im == 0;
    how->imaginary = scalars[0].im != 0 || scalars[1].im != 0;
    return !new_c || (scalars[1].re == 0 && scalars[1].im == 0);
}

static int accuracy_of(PyObject *x, call_key *key)
{
    intptr_t size = 0;
    const char *const text = PyUnicode_AsUTF8AndSize(x, &size);
    if (text == NULL || size <= 0 || (size_t)size > sizeof key->accuracy ||
        memchr(text, '\0', (size_t)size) != NULL) /* which the key is filled up with */
        return NO;
    memcpy(key->accuracy, text, (size_t)size);
    return YES;
}

/* Read a call's arguments; false where they take a closer look. */
static int read_call(PyObject *const *given, request *it)
{
    memset(it, 0, sizeof *it);
    it->kind = tilewright_kind_of(given[A]);
    if (it->kind == KINDS || !is_none(given[DEVICE]))
        return NO;
    const int grad = tilewright_grad(it->kind);
    if (grad < 0 || !tilewright_see(it->kind, grad, given[A], &it->a) ||
        !tilewright_see(it->kind, grad, given[B], &it->b))
        return NO;
    call_key *const key = &it->key;
    key->new_c = (char)is_none(given[C]);
    if (!key->new_c && (!tilewright_see(it->kind, grad, given[C], &it->c) || it->c.conjugated ||
                        it->c.device != it->a.device || !is_none(given[OUT_DTYPE])))
        return NO;
    if (!tilewright_read_how(given + ALPHA, key->new_c, &key->how, it->scalars) ||
        !accuracy_of(given[ACCURACY], key) || it->a.device != it->b.device)
        return NO;
    key->type = tilewright_libraries[it->kind].type;
    key->out_dtype = given[OUT_DTYPE];
    key->a = it->a.layout;
    key->b = it->b.layout;
    key->c = it->c.layout;
    key->device = it->a.device;
    key->conjugated_a = (char)it->a.conjugated;
    key->conjugated_b = (char)it->b.conjugated;
    return YES;
}

static int is_within(double x, const tilewright_scalars *it)
{
    return it->whole ? x == floor(x) && x >= -it->most - 1 && x <= it->most
                     : !(fabs(x) > it->most) || isinf(x);
}

int tilewright_takes_scalars(const tilewright_scalars *it, PyObject *const *given,
                             const tilewright_scalar *scalars)
{
    for (int i = 0; i < 2; ++i)
        if (!is_within(scalars[i].re, it) || !is_within(scalars[i].im, it) ||
            (scalars[i].im != 0 && !it->is_complex) ||
            (it->whole && tilewright_type_of(given[i]) == a_complex))
            return NO;
    return YES;
}

/* Whether C may share an element with an operand. */
static int may_overlap(const request *call, const entry *it)
{
    const uint64_t a = call->a.address, b = call->b.address, c = call->c.address;
    const uint64_t end = c + it->extent_c;
    if (!((a < end && c < a + it->extent_a) || (b < end && c < b + it->extent_b)))
        return NO;
    for (unsigned i = 0; i < it->apart_count; ++i)
        if (it->apart[i].a == (int64_t)(c - a) && it->apart[i].b == (int64_t)(c - b))
            return NO;
    return YES;
}

/* ---- Starting --------------------------------------------------------------------------- */

/* A new C for a call, looked at; null where it takes a closer look. */
static PyObject *new_result(request *call, const entry *it)
{
    PyObject *const made = PyObject_CallFunctionObjArgs(
        tilewright_libraries[call->kind].empty, it->kept[OF_SHAPE], it->kept[OF_DTYPE],
        it->kept[OF_DEVICE], NULL);
    if (made == NULL)
        return NULL;
    if (tilewright_see(call->kind, NO, made, &call->c) && call->c.device == call->a.device)
        return made;
    Py_DecRef(made);
    return NULL;
}

/* Start a plan in the stream's arena, or in memory of its own. */
static int started(const tilewright_plan *plan, const tilewright_call *call, uint64_t memory)
{
    /* A full queue waits for the device, which may wait for Python. */
    void *const thread = PyEval_SaveThread();
    const int status = memory ? tilewright_start_in(plan, call, memory) : tilewright_start(plan, call);
    PyEval_RestoreThread(thread);
    return status;
}

/* The address of some memory of the arrays' library, and what keeps it: null where there is none. */
static PyObject *borrowed(const request *call, uint64_t bytes, uint64_t *address)
{
    PyObject *const pair = PyObject_CallFunction(tilewright_libraries[call->kind].memory, "LK",
                                                 (long long)call->a.device,
                                                 (unsigned long long)bytes);
    PyObject *const first = pair == NULL ? NULL : PyTuple_GetItem(pair, 0);
    *address = first == NULL ? 0 : PyLong_AsUnsignedLongLong(first);
    if (tilewright_is_well() && *address != 0)
        return pair;
    Py_DecRef(pair);
    return NULL;
}

/* What is enqueued on the library's current stream later may have the memory that was borrowed. */
static int start_borrowing(const request *call, const tilewright_plan *plan,
                           const tilewright_call *about)
{
    uint64_t address = 0;
    PyObject *const pair = borrowed(call, tilewright_plan_bytes(plan), &address);
    if (pair == NULL)
        return TILEWRIGHT_NO_WORKSPACE;
    const int status = started(plan, about, address);
    Py_DecRef(pair);
    return status;
}

uint64_t tilewright_stream_of(int kind, int64_t device)
{
    PyObject *const ask = tilewright_libraries[kind].stream;
    return tilewright_address(PyObject_CallFunction(ask, "L", (long long)device));
}

static int enqueue(const request *call, const entry *it)
{
    const uint64_t stream = tilewright_stream_of(call->kind, call->a.device);
    if (!tilewright_is_well())
        return TILEWRIGHT_NO_WORKSPACE;
    const uint64_t a = call->a.address, b = call->b.address;
    const tilewright_call about = {it->exchanged ? b : a, it->exchanged ? a : b,
                                   call->c.address, 0, call->scalars[0], call->scalars[1],
                                   (void *)(uintptr_t)stream, {0}, NULL};
    const int status = started(it->plan, &about, 0);
    return status == TILEWRIGHT_NO_WORKSPACE && !tilewright_plan_shares(it->plan)
               ? start_borrowing(call, it->plan, &about)
               : status;
}

PyObject *tilewright_raise(int64_t device, int status)
{
    return PyObject_CallFunction(failed, "Li", (long long)device, status); /* null: it raises */
}

/* Do what an entry says, whose objects the caller keeps. */
static PyObject *repeated(request *call, const entry *it, PyObject *c)
{
    if (!call->key.new_c)
        Py_IncRef(c);
    else if ((c = new_result(call, it)) == NULL)
        return tilewright_none();
    const int status = may_overlap(call, it) ? TILEWRIGHT_NO_WORKSPACE : enqueue(call, it);
    if (status == 0)
        return c;
    Py_DecRef(c);
    return status < 0 ? tilewright_none() : tilewright_raise(call->a.device, status);
}

static PyObject *again(PyObject *self, PyObject *const *given, intptr_t count)
{
    request call;
    (void)self;
    if (!tilewright_enabled || count != ARGUMENTS || !read_call(given, &call))
        return tilewright_none();
    const entry *const found = tilewright_table_find(&plans, &call.key);
    if (found == NULL || !tilewright_takes_scalars(&found->scalars, given + ALPHA, call.scalars))
        return tilewright_none();
    /* Once Python runs, other threads may let the table forget the entry. */
    const entry it = *found;
    for (int i = 0; i < OF_KEY; ++i)
        Py_IncRef(it.kept[i]);
    PyObject *const made = repeated(&call, &it, given[C]);
    for (int i = 0; i < OF_KEY; ++i)
        Py_DecRef(it.kept[i]);
    return made;
}

/* ---- Remembering ---------------------------------------------------------------------------- */

static void forget_entry(entry *it)
{
    const entry gone = *it;
    free(it);
    for (int i = 0; i < KEPT; ++i)
        Py_DecRef(gone.kept[i]);
}

/* What `remember` takes behind gemm's arguments. */
enum {
    USED = ARGUMENTS, /* C, given or new */
    PLAN,             /* the address of a plan */
    OWNER,            /* what keeps it */
    SHAPE,            /* and the other two: of a new C */
    ELEMENTS,
    WHERE,
    EXCHANGED,
    COMPLEX, /* as tilewright_read_scalars takes them */
    WHOLE,
    MOST,
    EXTENT_A,
    EXTENT_B,
    EXTENT_C,
    REMEMBERED
};

tilewright_scalars tilewright_read_scalars(PyObject *const *given)
{
    tilewright_scalars found = {0, 0, 0};
    found.is_complex = PyObject_IsTrue(given[0]) == YES;
    found.whole = tilewright_is_well() && PyObject_IsTrue(given[1]) == YES;
    if (tilewright_is_well())
        found.most = PyFloat_AsDouble(given[2]);
    return found;
}

/* Read what there is to know besides the key; false where something is not what it should be. */
static int read_entry(PyObject *const *given, entry *it)
{
    memset(it, 0, sizeof *it);
    uint64_t *const numbers[] = {&it->extent_a, &it->extent_b, &it->extent_c};
    it->plan = (const tilewright_plan *)(uintptr_t)PyLong_AsUnsignedLongLong(given[PLAN]);
    for (int i = 0; i < 3 && tilewright_is_well(); ++i)
        *numbers[i] = PyLong_AsUnsignedLongLong(given[EXTENT_A + i]);
    it->exchanged = tilewright_is_well() && PyObject_IsTrue(given[EXCHANGED]) == YES;
    if (tilewright_is_well())
        it->scalars = tilewright_read_scalars(given + COMPLEX);
    return tilewright_is_well();
}

/* Fill in a new entry, which keeps Python's objects from now on. */
static void fill_in(entry *it, entry made, PyObject *const *given)
{
    const call_key *const key = &it->key;
    const uint64_t elements[] = {key->a.elements, key->b.elements, key->c.elements};
    made.node = it->node;
    made.key = *key;
    memcpy(made.kept, given + OWNER, OF_KEY * sizeof *given);
    for (int i = 0; i < 3; ++i)
        if (elements[i] % 2 == 0) /* DLPack's are odd */
            made.kept[OF_KEY + i] = (PyObject *)(uintptr_t)elements[i];
    made.kept[KEPT - 1] = given[OUT_DTYPE];
    for (int i = 0; i < KEPT; ++i)
        Py_IncRef(made.kept[i]);
    *it = made;
}

/* Keep the plan of a call whose arguments had their closer look, C's memory included. */
static PyObject *remember(PyObject *self, PyObject *const *given, intptr_t count)
{
    request call;
    entry about;
    void *removed = NULL;
    (void)self;
    if (count != REMEMBERED || !read_call(given, &call))
        return tilewright_none();
    if (call.key.new_c && !tilewright_see(call.kind, NO, given[USED], &call.c))
        return tilewright_none();
    if (!read_entry(given, &about))
        return tilewright_none();
    entry *it = tilewright_table_find(&plans, &call.key);
    if (it == NULL && (it = tilewright_table_add(&plans, &call.key, &removed)) != NULL)
        fill_in(it, about, given);
    if (it != NULL) {
        const unsigned most = sizeof it->apart / sizeof *it->apart;
        const unsigned at = it->next_apart++ % most;
        it->apart[at].a = (int64_t)(call.c.address - call.a.address);
        it->apart[at].b = (int64_t)(call.c.address - call.b.address);
        it->apart_count += it->apart_count < most;
    }
    if (removed != NULL)
        forget_entry(removed);
    return tilewright_none();
}

static PyObject *forget(PyObject *self, PyObject *const *given, intptr_t count)
{
    entry *it;
    (void)self, (void)given, (void)count;
    while ((it = tilewright_table_take(&plans)) != NULL)
        forget_entry(it);
    tilewright_forget_groups();
    return tilewright_none();
}

/* begin(int, complex, failed, float, numpy.float64, numpy.float32) */
static PyObject *begin(PyObject *self, PyObject *const *given, intptr_t count)
{
    (void)self;
    if (count != 3 + REALS)
        return tilewright_none();
    an_int = tilewright_kept(given[0]);
    a_complex = tilewright_kept(given[1]);
    failed = tilewright_kept(given[2]);
    for (int i = 0; i < REALS; ++i)
        reals[i] = tilewright_kept(given[3 + i]);
    return tilewright_none();
}

/* Python's function of a name; None for any other. */
TILEWRIGHT_API PyObject *tilewright_function(const char *name)
{
    static PyMethodDef methods[] = {
        {"again", again, METH_FASTCALL, NULL},   {"remember", remember, METH_FASTCALL, NULL},
        {"forget", forget, METH_FASTCALL, NULL}, {"enable", tilewright_enable, METH_FASTCALL, NULL},
        {"know", tilewright_know, METH_FASTCALL, NULL},     {"begin", begin, METH_FASTCALL, NULL},
        {"group", tilewright_group, METH_FASTCALL, NULL},
        {"remember_group", tilewright_remember_group, METH_FASTCALL, NULL}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; ++i)
        if (strcmp(methods[i].name, name) == 0)
            return PyCFunction_NewEx(&methods[i], NULL, NULL);
    return tilewright_none();
}
