/* Reads the events of a line of an .xplane.pb into cells of int64, without a Python object for an event.

   What it reads, `event_cells.fill` reads too, into the same cells. At anything that is not whole, or has another type
   than its field, it returns -1, and the caller reads the same events in Python, which says what is wrong. No byte
   outside of [at, end) is read.

   Built against the limited API of CPython 3.11, so that one build serves every later version. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef const unsigned char *Cursor; /* every function that moves one returns NULL where it is not read here */

#define INTERFACE 1 /* of this module and event_cells.py: a build of another number is not used */
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

/* Whether the event was read; `kept`: whether it has a row. Its name stands in front, or it is not read here. */
static bool read_event(Cells *to, Py_ssize_t row, Cursor p, Cursor end, Cursor file, bool *kept)
{
    int64_t own[OWN] = {0};
    bool named = false, skipped = false;
    Field field = {0};
    while (p < end) {
        if (!(p = read_field(p, end, &field)))
            return false;
        if (field.number <= OWN) {
            if (field.wire != VARINT || (field.number == 1 && named))
                return false;
            own[field.number - 1] = (int64_t)field.value;
            if (field.number == 1) {
                named = true;
                skipped = is_skipped(to, own[0]);
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

static PyMethodDef methods[] = {
    {"fill", fill, METH_VARARGS, "Fill cells with a line's events; see event_cells.py, which alone calls it."},
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
