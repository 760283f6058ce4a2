/* Reads the events of a line of an .xplane.pb into cells of int64, without a Python object for an event; messages by
   tables of fields; and numbers memory that is used again.

   What it does, Python does too: `event_cells.fill`, `wire.read` and `storages.number`, with the same results. At
   anything that is not whole, or has another type than its field, it returns -1 or None, and the caller reads the same
   bytes in Python, which says what is wrong. No byte outside of [at, end) is read.

   Built against the limited API of CPython 3.11, so that one build serves every later version. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef const unsigned char *Cursor; /* every function that moves one returns NULL where it is not read here */

#define INTERFACE 4 /* of this module and compiled.py: a build of another number is not used */
#ifndef SOURCE_SHA256
#define SOURCE_SHA256 "" /* hatch_build.py tells that of this file, so that a test sees a build that is out of date */
#endif

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 }; /* wire types */
enum { OWN = 3, EVENTS = 4, STATS = 4 };      /* fields of XEvent that are numbers; of XLine; of XEvent */
enum { SMALL = 1024, MOST_WANTED = 100 };
enum { STAT_NAME = 1, DOUBLE, UINT, INT, STR, RAW, REF }; /* fields of XStat */

typedef struct {
    const int64_t *wanted, *skipped;
    Py_ssize_t n_wanted, n_skipped;
    int64_t *cells;
    int8_t *kinds;
    Py_ssize_t room;
    int8_t place[SMALL]; /* of stats with small ids, as nearly all are, their row; -1: not wanted */
} Cells;

typedef struct {
    uint64_t number, value; /* of bytes: how many */
    int wire;
    Cursor begin; /* of bytes: their first */
    Cursor length; /* of bytes: where their length stands */
} Field;

static inline Cursor read_varint(Cursor p, Cursor end, uint64_t *value)
{
    uint64_t found = 0;
    for (int shift = 0; p < end && shift <= 63; shift += 7) {
        unsigned char byte = *p++;
        found |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = found;
            return p;
        }
    }
    return NULL;
}

static inline Cursor read_field(Cursor p, Cursor end, Field *field)
{
    uint64_t tag;
    if (!(p = read_varint(p, end, &tag)) || !(tag >> 3))
        return NULL;
    field->number = tag >> 3;
    field->wire = (int)(tag & 7);
    field->length = p;
    if (field->wire == VARINT)
        return read_varint(p, end, &field->value);
    if (field->wire == BYTES) {
        if (!(p = read_varint(p, end, &field->value)) || field->value > (uint64_t)(end - p))
            return NULL;
        field->begin = p;
        return p + field->value;
    }
    Py_ssize_t size = field->wire == FIXED64 ? 8 : field->wire == FIXED32 ? 4 : 0;
    if (!size || end - p < size)
        return NULL;
    field->value = 0;
    for (Py_ssize_t i = 0; i < size; i++)
        field->value |= (uint64_t)p[i] << (8 * i);
    return p + size;
}

static bool is_skipped(const Cells *to, int64_t name)
{
    Py_ssize_t low = 0, high = to->n_skipped;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (to->skipped[middle] < name)
            low = middle + 1;
        else
            high = middle;
    }
    return low < to->n_skipped && to->skipped[low] == name;
}

/* The row of a stat, -1 if it is not wanted; of two that are the same the last, as in Python. */
static Py_ssize_t searched(const Cells *to, int64_t number)
{
    Py_ssize_t i = to->n_wanted;
    while (i-- > 0 && (number < 0 || to->wanted[i] != number))
        ;
    return i;
}

static inline Py_ssize_t place_of(const Cells *to, int64_t number)
{
    return number >= 0 && number < SMALL ? to->place[number] : searched(to, number);
}

static const int WIRES[] = {-1, VARINT, FIXED64, VARINT, VARINT, BYTES, BYTES, VARINT};

static bool read_stat(Cells *to, Py_ssize_t row, Cursor p, Cursor end, Cursor file)
{
    int64_t number = 0, value = 0;
    int8_t kind = 0;
    Field field = {0};
    while (p < end) {
        if (!(p = read_field(p, end, &field)))
            return false;
        if (field.number > REF)
            continue;
        if (field.wire != WIRES[field.number])
            return false;
        if (field.number == STAT_NAME) {
            number = (int64_t)field.value;
        } else {
            kind = (int8_t)field.number;
            value = field.wire == BYTES ? (int64_t)(field.length - file) : (int64_t)field.value;
        }
    }
    Py_ssize_t place = place_of(to, number);
    if (place >= 0) {
        to->cells[(OWN + place) * to->room + row] = value;
        to->kinds[place * to->room + row] = kind;
    }
    return true;
}

/* Whether the event was read; `kept`: whether it has a row. Its name stands in front, or it is not read here; by that
   alone it is stepped over. */
static bool read_event(Cells *to, Py_ssize_t row, Cursor p, Cursor end, Cursor file, bool *kept)
{
    int64_t own[OWN] = {0};
    bool named = false, skipped = false;
    Field field = {0};
    Cursor begin = p;
    while (p < end) {
        Cursor at = p;
        if (!(p = read_field(p, end, &field)))
            return false;
        if (field.number <= OWN) {
            if (field.wire != VARINT || (field.number == 1 && named))
                return false;
            own[field.number - 1] = (int64_t)field.value;
            if (field.number == 1) {
                named = true;
                skipped = is_skipped(to, own[0]);
                if (skipped && at == begin)
                    return true;
            }
        } else if (field.number == STATS) {
            if (!named || field.wire != BYTES)
                return false;
            if (!skipped && !read_stat(to, row, field.begin, field.begin + field.value, file))
                return false;
        }
    }
    *kept = named && !skipped;
    for (int i = 0; *kept && i < OWN; i++)
        to->cells[i * to->room + row] = own[i];
    return named;
}

/* Where the next event is, -1 if something is not read here; and how many rows there are. */
static Py_ssize_t read_line(Cells *to, Cursor file, Py_ssize_t at, Py_ssize_t size, Py_ssize_t *rows)
{
    Cursor p = file + at, end = file + size;
    Field field = {0};
    while (p < end) {
        Cursor next = read_field(p, end, &field);
        if (!next)
            return -1;
        if (field.number == EVENTS) {
            bool kept = false;
            if (*rows == to->room)
                break;
            if (field.wire != BYTES || !read_event(to, *rows, field.begin, next, file, &kept))
                return -1;
            *rows += kept;
        }
        p = next;
    }
    return p - file;
}

static PyObject *fill(PyObject *module, PyObject *arguments)
{
    Py_buffer data, wanted, skipped, cells, kinds;
    Py_ssize_t at, end, rows = 0;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nny*y*w*w*", &data, &at, &end, &wanted, &skipped, &cells, &kinds))
        return NULL;
    Cells to = {.wanted = wanted.buf,
                .skipped = skipped.buf,
                .n_wanted = wanted.len / (Py_ssize_t)sizeof(int64_t),
                .n_skipped = skipped.len / (Py_ssize_t)sizeof(int64_t),
                .cells = cells.buf,
                .kinds = kinds.buf};
    to.room = cells.len / (Py_ssize_t)sizeof(int64_t) / (OWN + to.n_wanted);
    Py_ssize_t next = -1;
    bool fits = at >= 0 && at <= end && end <= data.len && kinds.len >= to.n_wanted * to.room && to.room > 0;
    fits = fits && to.n_wanted <= MOST_WANTED;
    for (int i = 0; fits && i < SMALL; i++)
        to.place[i] = (int8_t)searched(&to, i);
    if (fits)
        next = read_line(&to, data.buf, at, end, &rows);
    PyBuffer_Release(&data);
    PyBuffer_Release(&wanted);
    PyBuffer_Release(&skipped);
    PyBuffer_Release(&cells);
    PyBuffer_Release(&kinds);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "cells or bounds that do not fit");
        return NULL;
    }
    return Py_BuildValue("nn", next, rows);
}

/* Kinds of fields, as wire.py numbers them. */
enum { K_INT, K_SIGNED, K_INTS, K_SIGNEDS, K_DOUBLE, K_FLOAT, K_TEXT, K_TEXTS, K_SPAN, K_SPANS };
enum { NUMBERS = 64, NO_PLACE = 255, MOST_FIELDS = 32 }; /* fields of these numbers have places, of so many a value */

typedef struct {
    const unsigned char *place, *kind; /* of a field's number its place; of a place its kind */
    Py_ssize_t count;
    PyObject *values[MOST_FIELDS];
} Message;

static PyObject *of_number(int kind, uint64_t value)
{
    if (kind == K_SIGNED || kind == K_SIGNEDS)
        return PyLong_FromLongLong((int64_t)value);
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *of_nothing(int kind)
{
    switch (kind) {
    case K_INT:
    case K_SIGNED:
        return PyLong_FromLong(0);
    case K_DOUBLE:
    case K_FLOAT:
        return PyFloat_FromDouble(0.0);
    case K_TEXT:
        return PyUnicode_FromStringAndSize("", 0);
    case K_SPAN:
        Py_INCREF(Py_None);
        return Py_None;
    default:
        return PyList_New(0);
    }
}

static PyObject *of_field(int kind, const Field *field, Cursor file)
{
    double number = 0;
    float narrow = 0;
    uint32_t bits = (uint32_t)field->value;
    switch (kind) {
    case K_DOUBLE:
        memcpy(&number, &field->value, sizeof number);
        return PyFloat_FromDouble(number);
    case K_FLOAT:
        memcpy(&narrow, &bits, sizeof narrow);
        return PyFloat_FromDouble(narrow);
    case K_TEXT:
    case K_TEXTS:
        return PyUnicode_DecodeUTF8((const char *)field->begin, (Py_ssize_t)field->value, "replace");
    case K_SPAN:
    case K_SPANS:
        return Py_BuildValue("nn", (Py_ssize_t)(field->begin - file), (Py_ssize_t)(field->begin - file + field->value));
    default:
        return of_number(kind, field->value);
    }
}

static const int KIND_WIRES[] = {VARINT, VARINT, VARINT, VARINT, FIXED64, FIXED32, BYTES, BYTES, BYTES, BYTES};

/* 1: read; 0: not read here; -1: Python has an error. A reference to `item` is taken. */
static int append(PyObject *list, PyObject *item)
{
    int failed = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return failed ? -1 : 1;
}

static int add_field(Message *to, const Field *field, Cursor file)
{
    int place = field->number < NUMBERS ? to->place[field->number] : NO_PLACE;
    if (place == NO_PLACE)
        return 1;
    int kind = to->kind[place], done = 1;
    PyObject **value = &to->values[place];
    bool is_list = kind == K_INTS || kind == K_SIGNEDS || kind == K_TEXTS || kind == K_SPANS;
    bool packed = (kind == K_INTS || kind == K_SIGNEDS) && field->wire == BYTES;
    if (field->wire != KIND_WIRES[kind] && !packed)
        return 0;
    if (!is_list) {
        PyObject *found = of_field(kind, field, file);
        Py_XDECREF(*value);
        *value = found;
        return found ? 1 : -1;
    }
    if (!*value && !(*value = PyList_New(0)))
        return -1;
    if (!packed)
        return append(*value, of_field(kind, field, file));
    Cursor p = field->begin, end = field->begin + field->value;
    while (done > 0 && p < end) {
        uint64_t number;
        if (!(p = read_varint(p, end, &number)))
            return 0;
        done = append(*value, of_number(kind, number));
    }
    return done;
}

static PyObject *message(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    Py_ssize_t at, end, n_layout;
    const char *layout;
    PyObject *names, *found = NULL;
    Message to = {0};
    Field field = {0};
    int done = 1;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nnOy#", &data, &at, &end, &names, &layout, &n_layout))
        return NULL;
    to.place = (const unsigned char *)layout;
    to.kind = to.place + NUMBERS;
    to.count = n_layout - NUMBERS;
    if (at < 0 || at > end || end > data.len || to.count < 0 || to.count > MOST_FIELDS ||
        PyTuple_Size(names) != to.count)
        done = 0;
    Cursor file = data.buf, p = file + at;
    while (done > 0 && p < file + end) {
        p = read_field(p, file + end, &field);
        done = p ? add_field(&to, &field, file) : 0;
    }
    if (done > 0 && (found = PyDict_New()))
        for (Py_ssize_t i = 0; found && i < to.count; i++) {
            if (!to.values[i])
                to.values[i] = of_nothing(to.kind[i]);
            if (!to.values[i] || PyDict_SetItem(found, PyTuple_GetItem(names, i), to.values[i]))
                Py_CLEAR(found);
        }
    for (Py_ssize_t i = 0; i < MOST_FIELDS; i++)
        Py_XDECREF(to.values[i]);
    PyBuffer_Release(&data);
    if (done || PyErr_Occurred())
        return found;
    Py_INCREF(Py_None);
    return Py_None;
}

typedef struct {
    int32_t last, number;
} End;

static inline bool is_before(End one, End other)
{
    return one.last < other.last || (one.last == other.last && one.number < other.number);
}

static void push(End *heap, Py_ssize_t size, End end)
{
    Py_ssize_t at = size;
    while (at > 0 && is_before(end, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = end;
}

/* The first of a heap, which then has one less. */
static End popped(End *heap, Py_ssize_t size)
{
    End first = heap[0], end = heap[size - 1];
    Py_ssize_t at = 0;
    for (Py_ssize_t child = 1; child < size - 1; child = 2 * at + 1) {
        child += child + 1 < size - 1 && is_before(heap[child + 1], heap[child]);
        if (!is_before(heap[child], end))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = end;
    return first;
}

static PyObject *number(PyObject *module, PyObject *arguments)
{
    Py_buffer run, given, last, numbers;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*", &run, &given, &last, &numbers))
        return NULL;
    Py_ssize_t count = run.len / (Py_ssize_t)sizeof(int32_t), ended = 0, free = 0;
    const int32_t *runs = run.buf, *gives = given.buf, *lasts = last.buf;
    int32_t *found = numbers.buf, fresh = 0;
    bool fits = given.len == run.len && last.len == run.len && numbers.len == run.len;
    End *ends = PyMem_Malloc((size_t)count * sizeof(End) + 1);
    int32_t *freed = PyMem_Malloc((size_t)count * sizeof(int32_t) + 1);
    for (Py_ssize_t i = 0; fits && ends && freed && i < count; i++) {
        while (ended && ends[0].last < runs[i])
            freed[free++] = popped(ends, ended--).number;
        found[i] = free && gives[i] ? freed[--free] : fresh++;
        if (lasts[i] != INT32_MAX)
            push(ends, ended++, (End){lasts[i], found[i]});
    }
    fits = fits && ends && freed;
    PyMem_Free(ends);
    PyMem_Free(freed);
    PyBuffer_Release(&run);
    PyBuffer_Release(&given);
    PyBuffer_Release(&last);
    PyBuffer_Release(&numbers);
    if (!fits)
        return PyErr_NoMemory();
    Py_INCREF(Py_None);
    return Py_None;
}

static PyMethodDef methods[] = {
    {"fill", fill, METH_VARARGS, "Fill cells with a line's events; see event_cells.py, which alone calls it."},
    {"message", message, METH_VARARGS, "Return the fields of a message; see wire.py, which alone calls it."},
    {"number", number, METH_VARARGS, "Number memory that is used again; see storages.py, which alone calls it."},
    {NULL, NULL, 0, NULL},
};

static int add_facts(PyObject *module)
{
    int failed = PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
    return failed ? failed : PyModule_AddStringConstant(module, "SOURCE_SHA256", SOURCE_SHA256);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_facts},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_event_cells",
    .m_doc = "Events of an .xplane.pb as cells of int64.",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__event_cells(void)
{
    return PyModuleDef_Init(&definition);
}
