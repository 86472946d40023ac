/* Groups of CuPy's matrices and PyTorch's: from lists of Python's objects to launches.
 *
 *     grouped_gemm(a, b, c, ...)  ->  rows, one a matrix  ->  entry  ->  addresses, scalars, stream
 *
 * As in arrays.c whatever is unusual is left to the caller's closer look.  Matrices are numbered: all
 * of a, all of b, all of c. */
#include "arrays.h"

#include <stdlib.h>
#include <string.h>

/* group's arguments, and those that remember_group has behind them. */
enum { A, B, C, ALPHA, BETA, TRANS_A, TRANS_B, OUT_DTYPE, ARGUMENTS };
enum {
    PLANS = ARGUMENTS,
    OWNER,
    MAKE,
    REFUSE,
    REST,
    PLACES,
    EXTENTS,
    SCALARS,
    REMEMBERED = SCALARS + 3
};

/* Entries, and of each distances between matrices that share no element though their spans meet. */
enum { MOST_ENTRIES = 64, MOST_APART = 8 };

/* What there is to know of a matrix besides its address; compared byte by byte, as keys are. */
typedef struct {
    int64_t shape[2], steps[2];
    uint64_t elements;
    int32_t begins, device;
} matrix_row;

typedef struct {
    const void *type, *out_dtype; /* Python's objects */
    int64_t count;                /* of products */
    tilewright_how how;
    char new_c, padding[3];
} group_key;

typedef struct {
    group_key key;
    matrix_row *rows; /* of c none if it is to be made */
    uint64_t *addresses;
    tilewright_scalar scalars[2]; /* alpha and beta */
    int kind;
} request;

typedef struct {
    const tilewright_plan *plan;
    int64_t first; /* of its products among those that are launched */
} group_launch; /* Python packs them */

typedef struct {
    group_key key;
    matrix_row *rows;
    group_launch *launches;
    int64_t launch_count, place_count;
    uint32_t *places;   /* where A, B and C of each product are that is launched */
    uint64_t *extents;  /* bytes from the first element to the last's end */
    uint32_t *order;    /* of matrices by their addresses in the last call */
    uint64_t *apart[MOST_APART];
    unsigned next_apart;
    PyObject *kept[PLACES - OWNER]; /* as remember_group is given them */
    tilewright_scalars scalars;
    unsigned users; /* the table, and calls that are being made */
} entry;

/* Under Python's lock; the newest first. */
static entry *entries[MOST_ENTRIES];

static size_t matrices(const group_key *key) { return 3 * (size_t)key->count; }

static size_t rows_bytes(const group_key *key)
{
    return (size_t)(key->new_c ? 2 : 3) * (size_t)key->count * sizeof(matrix_row);
}

/* ---- Reading ---------------------------------------------------------------------------- */

/* Look at a matrix; false where it takes a closer look. */
static int look_at(int kind, int grad, PyObject *x, matrix_row *row, uint64_t *address)
{
    tilewright_seen seen;
    if (!tilewright_see(kind, grad, x, &seen) || seen.conjugated || seen.layout.dimensions != 2)
        return NO;
    const tilewright_layout *const it = &seen.layout;
    *row = (matrix_row){{it->shape[0], it->shape[1]}, {it->steps[0], it->steps[1]},
                        it->elements, (int32_t)it->begins, (int32_t)seen.device};
    *address = seen.address;
    return YES;
}

/* Look at the matrices of a list, all on one device.  Python runs meanwhile: it might change it. */
static int look_at_all(request *call, int grad, PyObject *list, int64_t first)
{
    for (int64_t i = 0; i < call->key.count; ++i) {
        PyObject *const x = PyList_GetItem(list, i);
        if (x == NULL)
            return NO;
        matrix_row *const row = call->rows + first + i;
        Py_IncRef(x);
        const int is_seen = look_at(call->kind, grad, x, row, call->addresses + first + i);
        Py_DecRef(x);
        if (!is_seen || row->device != call->rows->device)
            return NO;
    }
    return PyList_Size(list) == call->key.count;
}

static int read_key(PyObject *const *given, request *it)
{
    PyObject *const first = PyList_GetItem(given[A], 0);
    it->kind = first == NULL ? KINDS : tilewright_kind_of(first);
    if (it->kind == KINDS)
        return NO;
    group_key *const key = &it->key;
    key->type = tilewright_libraries[it->kind].type;
    key->out_dtype = given[OUT_DTYPE];
    key->count = PyList_Size(given[A]);
    key->new_c = given[C] == &_Py_NoneStruct;
    return tilewright_read_how(given + ALPHA, key->new_c, &key->how, it->scalars);
}

/* Read a call's arguments; false where they take a closer look.  Its memory is the caller's. */
static int read_call(PyObject *const *given, request *it)
{
    memset(it, 0, sizeof *it);
    if (!read_key(given, it))
        return NO;
    it->rows = malloc(matrices(&it->key) * (sizeof *it->rows + sizeof *it->addresses));
    if (it->rows == NULL)
        return NO;
    it->addresses = (uint64_t *)(void *)(it->rows + matrices(&it->key));
    const int grad = tilewright_grad(it->kind);
    for (int which = A; which <= (it->key.new_c ? B : C); ++which)
        if (grad < 0 || !look_at_all(it, grad, given[which], which * it->key.count))
            return NO;
    return YES;
}

/* ---- Entries ------------------------------------------------------------------------------ */

static void drop(entry *it)
{
    if (--it->users > 0)
        return;
    const entry gone = *it;
    for (unsigned i = 0; i < MOST_APART; ++i)
        free(it->apart[i]);
    free(it->rows);
    free(it->launches);
    free(it->places);
    free(it->extents);
    free(it->order);
    free(it);
    for (int i = OWNER; i < PLACES; ++i)
        Py_DecRef(gone.kept[i - OWNER]);
}

/* Put an entry first; the last one makes room for one that is new. */
static void make_newest(entry *it)
{
    entry *moved = it;
    for (unsigned i = 0; i < MOST_ENTRIES && moved != NULL; ++i) {
        entry *const before = entries[i];
        entries[i] = moved;
        moved = before == it ? NULL : before;
    }
    if (moved != NULL)
        drop(moved);
}

static entry *find(const request *call)
{
    for (unsigned i = 0; i < MOST_ENTRIES && entries[i] != NULL; ++i) {
        entry *const it = entries[i];
        if (memcmp(&it->key, &call->key, sizeof it->key) == 0 &&
            memcmp(it->rows, call->rows, rows_bytes(&it->key)) == 0) {
            make_newest(it);
            return it;
        }
    }
    return NULL;
}

void tilewright_forget_groups(void)
{
    while (entries[0] != NULL) {
        entry *const it = entries[0];
        memmove(entries, entries + 1, sizeof entries - sizeof *entries);
        entries[MOST_ENTRIES - 1] = NULL;
        drop(it);
    }
}

/* ---- Overlap ------------------------------------------------------------------------------ */

typedef struct {
    uint64_t first, end;
    uint32_t number;
} place;

static int are_in_order(const place *x, size_t count)
{
    size_t i = 1;
    while (i < count && x[i - 1].first <= x[i].first)
        ++i;
    return i >= count;
}

/* Sort by addresses, a byte of them after the other; few of the eight differ.  In `room` there is
 * place for as many. */
static void sort(place *x, size_t count, place *room)
{
    place *from = x, *to = room;
    for (unsigned shift = 0; shift < 64 && !are_in_order(from, count); shift += 8) {
        size_t ends[256] = {0}, end = 0;
        for (size_t i = 0; i < count; ++i)
            ++ends[from[i].first >> shift & 255];
        if (ends[from[0].first >> shift & 255] == count)
            continue;
        for (size_t byte = 0; byte < 256; ++byte)
            ends[byte] = end += ends[byte];
        for (size_t i = count; i-- > 0;)
            to[--ends[from[i].first >> shift & 255]] = from[i];
        place *const other = from;
        from = to;
        to = other;
    }
    if (from != x)
        memcpy(x, from, count * sizeof *x);
}

/* Whether the span of a result meets another one's; the order of addresses is kept. */
static int spans_meet(const request *call, entry *it, place *spans)
{
    const size_t count = matrices(&it->key), results = count / 3 * 2;
    uint64_t every = 0, written = 0; /* furthest ends of those that begin before */
    int meet = NO;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t number = it->order[i];
        const uint64_t first = call->addresses[number];
        spans[i] = (place){first, first + it->extents[number], number};
    }
    sort(spans, count, spans + count);
    for (size_t i = 0; i < count; ++i) {
        const place *const one = &spans[i];
        const int writes = one->number >= results;
        it->order[i] = one->number;
        meet |= (writes ? every : written) > one->first && one->end > one->first;
        every = one->end > every ? one->end : every;
        written = writes && one->end > written ? one->end : written;
    }
    return meet;
}

/* Whether distances between matrices are those of `apart`. */
static int are_apart(const request *call, const uint64_t *apart)
{
    size_t i = 0;
    while (i < matrices(&call->key) && call->addresses[i] - call->addresses[0] == apart[i])
        ++i;
    return i == matrices(&call->key);
}

/* Refuse results that share memory with other matrices; false where that raised. */
static int refuse_overlaps(const request *call, entry *it, PyObject *const *given)
{
    for (unsigned i = 0; i < MOST_APART; ++i)
        if (it->apart[i] != NULL && are_apart(call, it->apart[i]))
            return YES;
    PyObject *const answer =
        PyObject_CallFunctionObjArgs(it->kept[REFUSE - OWNER], given[A], given[B], given[C], NULL);
    if (answer == NULL)
        return NO;
    Py_DecRef(answer);
    uint64_t *const apart = malloc(matrices(&it->key) * sizeof *apart);
    for (size_t i = 0; apart != NULL && i < matrices(&it->key); ++i)
        apart[i] = call->addresses[i] - call->addresses[0];
    const unsigned at = it->next_apart++ % MOST_APART;
    free(it->apart[at]);
    it->apart[at] = apart;
    return YES;
}

/* ---- Starting ------------------------------------------------------------------------------ */

/* New results, looked at; null where they take a closer look. */
static PyObject *new_results(request *call, const entry *it, PyObject *list)
{
    PyObject *const like = PyList_GetItem(list, 0);
    PyObject *const made =
        like == NULL ? NULL : PyObject_CallFunctionObjArgs(it->kept[MAKE - OWNER], like, NULL);
    if (made == NULL || look_at_all(call, NO, made, 2 * call->key.count))
        return made;
    Py_DecRef(made);
    return NULL;
}

/* Start all launches; `members` has room for the addresses of their products. */
static int started(const request *call, const entry *it, uint64_t stream, uint64_t *members)
{
    tilewright_call about = {.alpha = call->scalars[0], .beta = call->scalars[1],
                             .stream = (void *)(uintptr_t)stream};
    int status = 0;
    for (int64_t i = 0; i < it->place_count; ++i)
        members[i] = call->addresses[it->places[i]];
    /* A full queue waits for the device, which may wait for Python. */
    void *const thread = PyEval_SaveThread();
    for (int64_t i = 0; i < it->launch_count && status == 0; ++i) {
        about.members = members + 3 * it->launches[i].first;
        status = tilewright_start(it->launches[i].plan, &about);
    }
    PyEval_RestoreThread(thread);
    return status;
}

/* The results that an entry makes of its matrices, and what is still to be computed. */
static PyObject *repeated(request *call, entry *it, PyObject *const *given, void *room)
{
    PyObject *const c =
        call->key.new_c ? new_results(call, it, given[A]) : tilewright_kept(given[C]);
    PyObject *made = NULL;
    if (c == NULL)
        return tilewright_none();
    const uint64_t stream = tilewright_stream_of(call->kind, call->rows->device);
    if (!tilewright_is_well()) {
        made = tilewright_none();
    } else if (call->key.new_c || !spans_meet(call, it, room) || refuse_overlaps(call, it, given)) {
        const int status = started(call, it, stream, room);
        made = status ? tilewright_raise(call->rows->device, status)
                      : PyTuple_Pack(2, c, it->kept[REST - OWNER]);
    }
    Py_DecRef(c);
    return made;
}

PyObject *tilewright_group(PyObject *self, PyObject *const *given, intptr_t count)
{
    request call;
    PyObject *made = NULL;
    (void)self;
    if (!tilewright_enabled || count != ARGUMENTS)
        return tilewright_none();
    entry *const it = read_call(given, &call) ? find(&call) : NULL;
    if (it != NULL && tilewright_takes_scalars(&it->scalars, given + ALPHA, call.scalars)) {
        const size_t spans = 2 * matrices(&it->key) * sizeof(place);
        const size_t members = (size_t)it->place_count * sizeof(uint64_t);
        void *const room = malloc(spans > members ? spans : members);
        ++it->users;
        made = room == NULL ? tilewright_none() : repeated(&call, it, given, room);
        drop(it);
        free(room);
    } else {
        made = tilewright_none();
    }
    free(call.rows);
    return made;
}

/* ---- Remembering ---------------------------------------------------------------------------- */

/* A copy of a bytes object of so many bytes; null where it has others, or memory is short. */
static void *copied(PyObject *bytes, size_t size)
{
    const char *const from = PyBytes_AsString(bytes);
    void *const made = from != NULL && (size_t)PyBytes_Size(bytes) == size ? malloc(size + 1) : NULL;
    return made == NULL ? NULL : memcpy(made, from, size);
}

/* Fill in an entry, which keeps Python's objects from now on; false where something is not what it
 * should be. */
static int fill_in(entry *it, const request *call, PyObject *const *given)
{
    const size_t count = matrices(&call->key);
    it->key = call->key;
    for (int i = OWNER; i < PLACES; ++i)
        it->kept[i - OWNER] = tilewright_kept(given[i]);
    it->scalars = tilewright_read_scalars(given + SCALARS);
    if (!tilewright_is_well())
        return NO;
    it->launch_count = PyBytes_Size(given[PLANS]) / (intptr_t)sizeof *it->launches;
    it->place_count = PyBytes_Size(given[PLACES]) / (intptr_t)sizeof *it->places;
    it->launches = copied(given[PLANS], (size_t)it->launch_count * sizeof *it->launches);
    it->places = copied(given[PLACES], (size_t)it->place_count * sizeof *it->places);
    it->extents = copied(given[EXTENTS], count * sizeof *it->extents);
    it->rows = malloc(rows_bytes(&it->key));
    it->order = malloc(count * sizeof *it->order);
    if (!it->launches || !it->places || !it->extents || !it->rows || !it->order)
        return NO;
    for (int64_t i = 0; i < it->launch_count; ++i)
        if (tilewright_plan_bytes(it->launches[i].plan) != 0)
            return NO;
    memcpy(it->rows, call->rows, rows_bytes(&it->key));
    for (size_t i = 0; i < count; ++i)
        it->order[i] = (uint32_t)i;
    return YES;
}

PyObject *tilewright_remember_group(PyObject *self, PyObject *const *given, intptr_t count)
{
    request call;
    (void)self;
    if (count != REMEMBERED || !tilewright_enabled)
        return tilewright_none();
    if (read_call(given, &call) && find(&call) == NULL) {
        entry *const made = calloc(1, sizeof *made);
        if (made != NULL) {
            made->users = 1;
            if (fill_in(made, &call, given))
                make_newest(made);
            else
                drop(made);
        }
    }
    free(call.rows);
    return tilewright_none();
}
