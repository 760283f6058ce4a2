/* Reads the events of a line of an .xplane.pb into cells of int64, without a Python object for an event; and messages by
   tables of fields.

   What it does, Python does too: `event_cells.fill` and `wire._read`, with the same results. At anything that is not
   whole, or has another type than its field, it returns -1 or None, and the caller reads the same bytes in Python, which
   says what is wrong. No byte outside of [at, end) is read.

   Built against the limited API of CPython 3.11, so that one build serves every later version. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef const unsigned char *Cursor; /* every function that moves one returns NULL where it is not read here */

#define INTERFACE 5 /* of this module and wire.py: a build of another number is not used */
#ifndef SOURCE_SHA256
#define SOURCE_SHA256 "" /* hatch_build.py tells that of this file, so that a test sees a build that is out of date */
#endif

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 }; /* wire types */
enum { OWN = 3, EVENTS = 4, STATS = 4 };      /* fields of XEvent that are numbers; of XLine; of XEvent */
enum { STAT_NAME = 1, DOUBLE, UINT, INT, STR, RAW, REF }; /* fields of XStat */

typedef struct {
    const int8_t *of;
    uint64_t count;
} ById; /* -1: none */

typedef struct {
    ById place, skipped; /* of a stat its row, and whether an event of a name is left out */
    int64_t *cells;
    int8_t *kinds;
    Py_ssize_t room;
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

static inline int found(ById values, uint64_t id)
{
    return id < values.count ? values.of[id] : -1;
}

static const int WIRES[] = {-1, VARINT, FIXED64, VARINT, VARINT, BYTES, BYTES, VARINT};

static bool read_stat(Cells *to, Py_ssize_t row, Cursor p, Cursor end, Cursor file)
{
    uint64_t number = 0;
    int64_t value = 0;
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
            number = field.value;
        } else {
            kind = (int8_t)field.number;
            value = field.wire == BYTES ? (int64_t)(field.length - file) : (int64_t)field.value;
        }
    }
    int place = found(to->place, number);
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
    Field field = {0};
    if (!(p = read_field(p, end, &field)) || field.number != 1 || field.wire != VARINT)
        return false;
    own[0] = (int64_t)field.value;
    *kept = found(to->skipped, field.value) < 0;
    while (*kept && p < end) {
        if (!(p = read_field(p, end, &field)) || field.number == 1)
            return false;
        if (field.number <= OWN) {
            if (field.wire != VARINT)
                return false;
            own[field.number - 1] = (int64_t)field.value;
        } else if (field.number == STATS) {
            if (field.wire != BYTES || !read_stat(to, row, field.begin, p, file))
                return false;
        }
    }
    for (int i = 0; *kept && i < OWN; i++)
        to->cells[i * to->room + row] = own[i];
    return true;
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
    Py_buffer data, place, skipped, cells, kinds;
    Py_ssize_t at, end, rows = 0, next = -1;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nny*y*w*w*", &data, &at, &end, &place, &skipped, &cells, &kinds))
        return NULL;
    Cells to = {.place = {place.buf, (uint64_t)place.len},
                .skipped = {skipped.buf, (uint64_t)skipped.len},
                .cells = cells.buf,
                .kinds = kinds.buf,
                .room = (cells.len / (Py_ssize_t)sizeof(int64_t) - kinds.len) / OWN}; /* a kind for each cell of a stat */
    bool fits = at >= 0 && at <= end && end <= data.len && to.room > 0;
    for (Py_ssize_t i = 0; fits && i < place.len; i++)
        fits = (to.place.of[i] + 1) * to.room <= kinds.len;
    if (fits)
        next = read_line(&to, data.buf, at, end, &rows);
    PyBuffer_Release(&data);
    PyBuffer_Release(&place);
    PyBuffer_Release(&skipped);
    PyBuffer_Release(&cells);
    PyBuffer_Release(&kinds);
    return Py_BuildValue("nn", next, rows);
}

/* Kinds of fields, as wire.py numbers them, MANY more where one repeats. */
enum { NUMBER, TEXT, SPAN, MESSAGE, MANY };
enum { NUMBERS = 64, NO_PLACE = 255, MOST_FIELDS = 32 }; /* fields of these numbers have places, of so many a value */

/* All that follows returns NULL or false where something is not read here, or Python has an error. */
static PyObject *decoded(Cursor p, Cursor end, Cursor file, PyObject *table);

static PyObject *item_of(int kind, const Field *field, Cursor file, PyObject *inner)
{
    Py_ssize_t begin = kind == NUMBER ? 0 : field->begin - file;
    switch (kind) {
    case NUMBER:
        return PyLong_FromLongLong((int64_t)field->value);
    case TEXT:
        return PyUnicode_DecodeUTF8((const char *)field->begin, (Py_ssize_t)field->value, "replace");
    case SPAN:
        return Py_BuildValue("nn", begin, begin + (Py_ssize_t)field->value);
    default:
        return decoded(field->begin, field->begin + field->value, file, inner);
    }
}

/* A reference to `item` is taken. */
static bool put(PyObject **value, PyObject *item, bool many)
{
    if (!many) {
        Py_XDECREF(*value);
        *value = item;
        return item;
    }
    if (item && !*value)
        *value = PyList_New(0);
    bool done = item && *value && !PyList_Append(*value, item);
    Py_XDECREF(item);
    return done;
}

static bool add_field(PyObject **value, int kind, Field *field, Cursor file, PyObject *inner)
{
    bool many = kind >= MANY, done = true;
    kind %= MANY;
    if (many && kind == NUMBER && field->wire == BYTES) { /* packed */
        Cursor p = field->begin, end = p + field->value;
        while (done && p < end) {
            p = read_varint(p, end, &field->value);
            done = p && put(value, item_of(kind, field, file, inner), many);
        }
        return done;
    }
    return field->wire == (kind == NUMBER ? VARINT : BYTES) && put(value, item_of(kind, field, file, inner), many);
}

static PyObject *decoded(Cursor p, Cursor end, Cursor file, PyObject *table)
{
    const unsigned char *place = (const unsigned char *)PyBytes_AsString(PyTuple_GetItem(table, 0));
    PyObject *nothing = PyTuple_GetItem(table, 1), *inner = PyTuple_GetItem(table, 2), *values[MOST_FIELDS] = {0};
    Py_ssize_t count = place ? PyTuple_Size(nothing) : -1;
    bool done = count >= 0 && count <= MOST_FIELDS;
    Field field = {0};
    while (done && p < end) {
        p = read_field(p, end, &field);
        int at = p && field.number < NUMBERS ? place[field.number] : NO_PLACE;
        done = p && (at == NO_PLACE ||
                     add_field(&values[at], place[NUMBERS + at], &field, file, PyTuple_GetItem(inner, at)));
    }
    PyObject *found = done ? PyTuple_New(count) : NULL;
    for (Py_ssize_t i = 0; i < count && i < MOST_FIELDS; i++) {
        PyObject *value = values[i] ? values[i] : PyTuple_GetItem(nothing, i);
        if (found && !values[i])
            Py_INCREF(value);
        if (found)
            PyTuple_SetItem(found, i, value); /* which takes the reference */
        else
            Py_XDECREF(values[i]);
    }
    return found;
}

static PyObject *message(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    Py_ssize_t at, end;
    PyObject *table, *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nnO!", &data, &at, &end, &PyTuple_Type, &table))
        return NULL;
    if (at >= 0 && at <= end && end <= data.len)
        found = decoded((Cursor)data.buf + at, (Cursor)data.buf + end, data.buf, table);
    PyBuffer_Release(&data);
    return found || PyErr_Occurred() ? found : Py_BuildValue("");
}

static PyMethodDef methods[] = {
    {"fill", fill, METH_VARARGS, "Fill cells with a line's events; see event_cells.py, which alone calls it."},
    {"message", message, METH_VARARGS, "Return the fields of a message; see wire.py, which alone calls it."},
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
