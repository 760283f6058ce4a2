/* Reads blocks of Kineto events into columns of int64, without a Python object for an event.

   A block is a JSON array of event objects. What a plain trace holds is read: an event with one category that is
   known, times with up to three decimals, integers of up to 18 digits, texts. Of anything else `decode` returns False,
   and the caller reads that block in Python: what is lenient or repairs is there alone, and the result of a block does
   not depend on which of the two read it.

   Text is turned into a number once for each distinct text, by a Python function: it decodes, and so validates, the
   text. Skipped values are validated here. No byte outside of the block is read: every read is below `end`.

   Built against the limited API of CPython 3.11, so that one build serves every later version. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef const unsigned char *Cursor; /* every function that moves one returns NULL for "not plain" */

#define INTERFACE 1 /* of this module and compiled.py: a build of another number is not used */
#ifndef SOURCE_SHA256
#define SOURCE_SHA256 "" /* hatch_build.py tells that of this file, so that a test sees a build that is out of date */
#endif

#define MISSING INT64_MIN
#define DEEPEST 32      /* arrays and objects in each other; a trace has 5 */
#define INTEGER_DIGITS 18 /* below 2^63 */
#define TIME_DIGITS 15  /* of whole microseconds: below 2^62 nanoseconds */

/* What a text stands for; `kind` of the callable. The order is that of compiled.py. */
enum { INTEGER, NUMBER, TEXT, RAW, NAME, CATEGORY, THREAD };

/* Columns that every table has; those of its arguments follow. */
enum { SPELLING, NAME_ID, START_NS, DUR_NS, PID, TID, FIRST_ARGUMENT };

typedef struct {
    PyObject *text; /* bytes: owns `start` */
    Cursor start;
    Py_ssize_t size;
    uint64_t hash;
    int64_t value;
    int kind;
} Entry;

typedef struct {
    Entry *entries; /* open addressing; `text` is NULL where one is free */
    size_t mask, used;
    uint64_t seed; /* secret, so that no file can be written to collide */
} Texts;

typedef struct {
    Cursor text;
    Py_ssize_t size;
    int kind;
    int64_t absent;
} Key;

typedef struct {
    char *phases; /* of one letter each */
    bool named;
    Key *keys;
    int *after; /* the key that last followed each key; [n_keys]: that came first */
    int n_keys;
    Py_buffer cells; /* int64, a row of `capacity` for each column */
    Py_ssize_t capacity, count, before; /* rows; `before`: ahead of the block that is read */
} Table;

typedef struct {
    PyObject_HEAD
    PyObject *number; /* (kind, text) -> int */
    PyObject *description; /* owns the keys' texts */
    Table *tables;
    int n_tables;
    Py_buffer counts; /* int64: events by spelling */
    void *counts_before;
    Texts texts;
} Decoder;

typedef struct {
    Cursor start, end; /* of a value, quotes included; NULL: not there */
} Slice;

/* ---- JSON -------------------------------------------------------------------------------------------------- */

static inline Cursor skip_blanks(Cursor p, Cursor end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

static inline bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static inline uint64_t eight_bytes(Cursor p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* The high bit of the first of eight bytes that is a quote, a backslash, below 0x20 or above 0x7F; of later ones the
   bits may be wrong, for the subtractions borrow. */
static inline uint64_t needs_a_look(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    return (word | (quote - ones) | (backslash - ones) | (word - ones * 0x20)) & high;
}

static Cursor skip_escape(Cursor p, Cursor end)
{
    if (end - p < 2)
        return NULL;
    if (p[1] != 'u')
        return memchr("\"\\/bfnrt", p[1], 8) ? p + 2 : NULL;
    if (end - p < 6)
        return NULL;
    for (int i = 2; i < 6; i++)
        if (!is_digit(p[i]) && !((p[i] | 0x20) >= 'a' && (p[i] | 0x20) <= 'f'))
            return NULL;
    bool surrogate = (p[2] | 0x20) == 'd' && p[3] >= '8';
    return surrogate ? NULL : p + 6; /* pairs are checked in Python */
}

/* One character above 0x7F: table 3-7 of the Unicode standard, well-formed UTF-8. */
static Cursor skip_utf8(Cursor p, Cursor end)
{
    unsigned char first = *p, low = 0x80, high = 0xBF;
    int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end - p <= more)
        return NULL;
    if (first == 0xE0)
        low = 0xA0;
    else if (first == 0xED)
        high = 0x9F;
    else if (first == 0xF0)
        low = 0x90;
    else if (first == 0xF4)
        high = 0x8F;
    for (int i = 1; i <= more; i++, low = 0x80, high = 0xBF)
        if (p[i] < low || p[i] > high)
            return NULL;
    return p + 1 + more;
}

/* To the first byte that needs a look, by eights; the last few bytes before `end` are left. */
static inline Cursor skip_ordinary(Cursor p, Cursor end)
{
    while (end - p >= 8) {
        uint64_t found = needs_a_look(eight_bytes(p));
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        if (found)
            return p + (__builtin_ctzll(found) >> 3);
#else
        if (found)
            return p;
#endif
        p += 8;
    }
    return p;
}

/* Past the closing quote of the string at `p`. */
static Cursor skip_string(Cursor p, Cursor end)
{
    p++;
    while (p && p < end) {
        p = skip_ordinary(p, end);
        if (p == end)
            return NULL;
        if (*p == '"')
            return p + 1;
        if (*p == '\\')
            p = skip_escape(p, end);
        else if (*p < 0x20)
            return NULL;
        else
            p = *p < 0x80 ? p + 1 : skip_utf8(p, end);
    }
    return NULL;
}

static Cursor skip_digits(Cursor p, Cursor end)
{
    Cursor first = p;
    while (p < end && is_digit(*p))
        p++;
    return p > first ? p : NULL;
}

static Cursor skip_whole_part(Cursor p, Cursor end)
{
    if (p < end && *p == '0')
        return p + 1;
    return skip_digits(p, end);
}

static Cursor skip_number(Cursor p, Cursor end)
{
    p = skip_whole_part(*p == '-' ? p + 1 : p, end);
    if (p && p < end && *p == '.')
        p = skip_digits(p + 1, end);
    if (p && p < end && (*p | 0x20) == 'e') {
        p++;
        p = skip_digits(p < end && (*p == '+' || *p == '-') ? p + 1 : p, end);
    }
    return p;
}

static Cursor skip_word(Cursor p, Cursor end, const char *word, Py_ssize_t size)
{
    return end - p >= size && !memcmp(p, word, size) ? p + size : NULL;
}

static Cursor skip_value(Cursor p, Cursor end, int depth);

/* Past a key and its colon, to the value; `key` becomes the key without its quotes. */
static Cursor read_key(Cursor p, Cursor end, Slice *key)
{
    if (p >= end || *p != '"')
        return NULL;
    key->start = p + 1;
    p = skip_string(p, end);
    if (!p)
        return NULL;
    key->end = p - 1;
    p = skip_blanks(p, end);
    return p < end && *p == ':' ? skip_blanks(p + 1, end) : NULL;
}

/* Past what follows a member or an element: a comma, or `close`, which sets `closed`. */
static Cursor read_separator(Cursor p, Cursor end, unsigned char close, bool *closed)
{
    p = skip_blanks(p, end);
    if (p >= end)
        return NULL;
    *closed = *p == close;
    return *closed ? p + 1 : *p == ',' ? skip_blanks(p + 1, end) : NULL;
}

/* Past the opening bracket at `p`; `closed` if nothing stands in it. */
static Cursor open_bracket(Cursor p, Cursor end, unsigned char close, bool *closed)
{
    p = skip_blanks(p + 1, end);
    *closed = p < end && *p == close;
    return *closed ? p + 1 : p;
}

static Cursor skip_array(Cursor p, Cursor end, int depth)
{
    bool closed;
    p = open_bracket(p, end, ']', &closed);
    while (p && !closed) {
        p = skip_value(p, end, depth);
        if (p)
            p = read_separator(p, end, ']', &closed);
    }
    return p;
}

static Cursor skip_object(Cursor p, Cursor end, int depth)
{
    bool closed;
    Slice key;
    p = open_bracket(p, end, '}', &closed);
    while (p && !closed) {
        p = read_key(p, end, &key);
        if (p)
            p = skip_value(p, end, depth);
        if (p)
            p = read_separator(p, end, '}', &closed);
    }
    return p;
}

/* Past any valid value that is not nested more than `depth` deep. */
static Cursor skip_value(Cursor p, Cursor end, int depth)
{
    if (p >= end || !depth)
        return NULL;
    switch (*p) {
    case '"':
        return skip_string(p, end);
    case '[':
        return skip_array(p, end, depth - 1);
    case '{':
        return skip_object(p, end, depth - 1);
    case 't':
        return skip_word(p, end, "true", 4);
    case 'f':
        return skip_word(p, end, "false", 5);
    case 'n':
        return skip_word(p, end, "null", 4);
    default:
        return skip_number(p, end);
    }
}

/* Digits as an integer, `most` of them at the most. */
static Cursor read_digits(Cursor p, Cursor end, int most, int64_t *value)
{
    Cursor first = p;
    int64_t sum = 0;
    while (p < end && p - first < most && is_digit(*p))
        sum = sum * 10 + (*p++ - '0');
    *value = sum;
    bool more = p < end && is_digit(*p), leading_zero = p - first > 1 && *first == '0';
    return p > first && !more && !leading_zero ? p : NULL;
}

static Cursor read_integer(Cursor p, Cursor end, int64_t *value)
{
    bool negative = p < end && *p == '-';
    p = read_digits(p + negative, end, INTEGER_DIGITS, value);
    if (!p || (p < end && (*p == '.' || (*p | 0x20) == 'e')))
        return NULL;
    if (negative)
        *value = -*value;
    return p;
}

/* Microseconds with up to three decimals, as nanoseconds. */
static Cursor read_time(Cursor p, Cursor end, int64_t *ns)
{
    bool negative = p < end && *p == '-';
    p = read_digits(p + negative, end, TIME_DIGITS, ns);
    if (!p)
        return NULL;
    int decimals = 0;
    if (p < end && *p == '.')
        for (p++; p < end && is_digit(*p); p++, decimals++) {
            if (decimals == 3)
                return NULL;
            *ns = *ns * 10 + (*p - '0');
        }
    if ((p < end && (*p | 0x20) == 'e') || (!decimals && p[-1] == '.'))
        return NULL;
    for (; decimals < 3; decimals++)
        *ns *= 10;
    if (negative)
        *ns = -*ns;
    return p;
}

/* ---- Texts ------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(uint64_t hash, Cursor p, Py_ssize_t size)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio */
    uint64_t word = (uint64_t)size;
    for (;;) {
        hash = (hash ^ word) * odd;
        hash ^= hash >> 29;
        if (size <= 0)
            return hash;
        word = 0;
        if (size >= 8)
            word = eight_bytes(p);
        else
            memcpy(&word, p, size);
        p += 8;
        size -= 8;
    }
}

/* The entry of a text, or the free one where it belongs. */
static Entry *entry_of(const Texts *texts, uint64_t hash, int kind, Cursor start, Py_ssize_t size)
{
    for (size_t at = hash & texts->mask;; at = (at + 1) & texts->mask) {
        Entry *entry = &texts->entries[at];
        if (!entry->text)
            return entry;
        if (entry->hash == hash && entry->kind == kind && entry->size == size && !memcmp(entry->start, start, size))
            return entry;
    }
}

static bool make_room(Texts *texts)
{
    if (texts->entries && texts->used * 2 <= texts->mask)
        return true;
    Texts larger = *texts;
    larger.mask = texts->entries ? texts->mask * 2 + 1 : 1023;
    larger.entries = calloc(larger.mask + 1, sizeof(Entry));
    if (!larger.entries) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; texts->entries && i <= texts->mask; i++) {
        const Entry *old = &texts->entries[i];
        if (old->text)
            *entry_of(&larger, old->hash, old->kind, old->start, old->size) = *old;
    }
    free(texts->entries);
    *texts = larger;
    return true;
}

/* The number that stands for a text; false with an exception where Python finds none. */
static bool number_of(Decoder *self, int kind, Slice text, int64_t *value)
{
    Py_ssize_t size = text.end - text.start;
    uint64_t hash = hash_of(self->texts.seed + (uint64_t)kind, text.start, size);
    Entry *entry = entry_of(&self->texts, hash, kind, text.start, size);
    if (entry->text) {
        *value = entry->value;
        return true;
    }
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)text.start, size);
    PyObject *number = bytes ? PyObject_CallFunction(self->number, "iO", kind, bytes) : NULL;
    if (number)
        *value = PyLong_AsLongLong(number);
    Py_XDECREF(number);
    if (PyErr_Occurred() || !make_room(&self->texts)) {
        Py_XDECREF(bytes);
        return false;
    }
    entry = entry_of(&self->texts, hash, kind, text.start, size);
    *entry = (Entry){bytes, (Cursor)PyBytes_AsString(bytes), size, hash, *value, kind};
    self->texts.used++;
    return true;
}

/* ---- Events ------------------------------------------------------------------------------------------------ */

typedef struct {
    int64_t start_ns, dur_ns, pid, tid, category;
    Slice name, phase, arguments;
    bool has_arguments; /* and they are in the row already */
} Event;

static inline bool is_key(Slice key, const char *text, Py_ssize_t size)
{
    return key.end - key.start == size && !memcmp(key.start, text, size);
}

/* A key that is spelt with escapes may be any. */
static inline bool is_escaped(Slice key)
{
    return memchr(key.start, '\\', key.end - key.start) != NULL;
}

static Cursor read_text(Decoder *self, int kind, Cursor p, Cursor end, int64_t *value)
{
    Slice text = {p, skip_value(p, end, DEEPEST)};
    return text.end && number_of(self, kind, text, value) ? text.end : NULL;
}

static Cursor read_thread(Decoder *self, Cursor p, Cursor end, int64_t *value)
{
    return p < end && *p == '"' ? read_text(self, THREAD, p, end, value) : read_integer(p, end, value);
}

static Cursor read_string(Cursor p, Cursor end, Slice *text)
{
    if (p >= end || *p != '"')
        return NULL;
    text->start = p;
    text->end = skip_string(p, end);
    return text->end;
}

static inline int64_t *cell(const Table *table, int column)
{
    return (int64_t *)table->cells.buf + column * table->capacity + table->count;
}

/* The argument that a key names; -1: none that is wanted. Keys mostly stand in the order of the event before. */
static int argument_of(Table *table, Slice key, int before)
{
    Py_ssize_t size = key.end - key.start;
    int guess = table->after[before];
    for (int i = -1; i < table->n_keys; i++) {
        int at = i < 0 ? guess : i;
        if (table->keys[at].size == size && !memcmp(table->keys[at].text, key.start, size)) {
            table->after[before] = at;
            return at;
        }
    }
    return -1;
}

static Cursor read_argument(Decoder *self, const Table *table, int which, Cursor p, Cursor end)
{
    int64_t *value = cell(table, FIRST_ARGUMENT + which);
    int kind = table->keys[which].kind;
    return kind == INTEGER ? read_integer(p, end, value) : read_text(self, kind, p, end, value);
}

static void no_arguments(const Table *table)
{
    for (int i = 0; i < table->n_keys; i++)
        *cell(table, FIRST_ARGUMENT + i) = table->keys[i].absent;
}

/* The object of arguments at `p` into the row that the event will be. */
static Cursor read_arguments(Decoder *self, Table *table, Cursor p, Cursor end)
{
    bool closed;
    int before = table->n_keys;
    if (p >= end || *p != '{' || table->count == table->capacity)
        return NULL;
    no_arguments(table);
    p = open_bracket(p, end, '}', &closed);
    while (p && !closed) {
        Slice key;
        p = read_key(p, end, &key);
        if (!p)
            return NULL;
        int which = argument_of(table, key, before);
        if (which >= 0) {
            p = read_argument(self, table, which, p, end);
            before = which;
        }
        else
            p = is_escaped(key) ? NULL : skip_value(p, end, DEEPEST);
        if (p)
            p = read_separator(p, end, '}', &closed);
    }
    return p;
}

/* The table of an event whose category is known; NULL: it carries no row. */
static Table *table_of(Decoder *self, const Event *event)
{
    int64_t table = event->category % (self->n_tables + 1);
    return table < self->n_tables ? &self->tables[table] : NULL;
}

/* Past an event's `args`. Where they stand before its category, which tells what is wanted of them, they wait. */
static Cursor take_arguments(Decoder *self, Cursor p, Cursor end, Event *event)
{
    if (event->arguments.start)
        return NULL;
    Table *table = event->category < 0 ? NULL : table_of(self, event);
    event->arguments.start = p;
    if (table && table->n_keys) {
        event->has_arguments = true;
        return read_arguments(self, table, p, end);
    }
    event->arguments.end = skip_value(p, end, DEEPEST);
    return event->arguments.end;
}

/* Past the value of one of an event's own keys. */
static Cursor read_field(Decoder *self, Slice key, Cursor p, Cursor end, Event *event)
{
    if (is_key(key, "ts", 2))
        return read_time(p, end, &event->start_ns);
    if (is_key(key, "dur", 3))
        return read_time(p, end, &event->dur_ns);
    if (is_key(key, "pid", 3))
        return read_thread(self, p, end, &event->pid);
    if (is_key(key, "tid", 3))
        return read_thread(self, p, end, &event->tid);
    if (is_key(key, "args", 4))
        return take_arguments(self, p, end, event);
    if (is_key(key, "name", 4))
        return read_string(p, end, &event->name);
    if (is_key(key, "ph", 2)) /* of two, either may be one that the table does not know */
        return event->phase.start ? NULL : read_string(p, end, &event->phase);
    if (is_key(key, "cat", 3)) /* of two, either may be the category */
        return event->category < 0 && p < end && *p == '"' ? read_text(self, CATEGORY, p, end, &event->category) : NULL;
    return is_escaped(key) ? NULL : skip_value(p, end, DEEPEST);
}

/* The arguments into the row, if that is still to be done. */
static bool place_arguments(Decoder *self, Table *table, const Event *event)
{
    if (event->has_arguments)
        return true;
    if (table->count == table->capacity)
        return false;
    no_arguments(table);
    Slice arguments = event->arguments;
    return !arguments.start || !table->n_keys || read_arguments(self, table, arguments.start, arguments.end);
}

/* One event as a row of its table. */
static bool add_row(Decoder *self, Table *table, int64_t spelling, const Event *event)
{
    bool one_letter = event->phase.start && event->phase.end - event->phase.start == 3;
    if (!one_letter || !strchr(table->phases, event->phase.start[1]) || !place_arguments(self, table, event))
        return false;
    int64_t name = MISSING;
    if (table->named && event->name.start && !number_of(self, NAME, event->name, &name))
        return false;
    *cell(table, SPELLING) = spelling;
    *cell(table, NAME_ID) = name;
    *cell(table, START_NS) = event->start_ns;
    *cell(table, DUR_NS) = event->dur_ns;
    *cell(table, PID) = event->pid;
    *cell(table, TID) = event->tid;
    table->count++;
    return true;
}

/* Count an event, and add its row if its category carries one. */
static bool add_event(Decoder *self, const Event *event)
{
    if (event->category < 0)
        return false;
    int64_t spelling = event->category / (self->n_tables + 1);
    if (spelling >= self->counts.len / (Py_ssize_t)sizeof(int64_t))
        return false;
    ((int64_t *)self->counts.buf)[spelling]++;
    Table *table = table_of(self, event);
    return !table || add_row(self, table, spelling, event);
}

static Cursor read_event(Decoder *self, Cursor p, Cursor end)
{
    Event event = {.start_ns = MISSING, .dur_ns = MISSING, .pid = MISSING, .tid = MISSING, .category = -1};
    bool closed;
    if (p >= end || *p != '{')
        return NULL;
    p = open_bracket(p, end, '}', &closed);
    while (p && !closed) {
        Slice key;
        p = read_key(p, end, &key);
        if (p)
            p = read_field(self, key, p, end, &event);
        if (p)
            p = read_separator(p, end, '}', &closed);
    }
    return p && add_event(self, &event) ? p : NULL;
}

static bool read_events(Decoder *self, Cursor p, Cursor end)
{
    bool closed;
    p = skip_blanks(p, end);
    if (p >= end || *p != '[')
        return false;
    p = open_bracket(p, end, ']', &closed);
    while (p && !closed) {
        p = read_event(self, p, end);
        if (p)
            p = read_separator(p, end, ']', &closed);
    }
    return p && skip_blanks(p, end) == end;
}

/* ---- The Python type --------------------------------------------------------------------------------------- */

/* Whether the block was plain; its rows follow those of the blocks before it. */
static PyObject *decode(PyObject *object, PyObject *block)
{
    Decoder *self = (Decoder *)object;
    Py_buffer view;
    if (PyObject_GetBuffer(block, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    for (int i = 0; i < self->n_tables; i++)
        self->tables[i].before = self->tables[i].count;
    memcpy(self->counts_before, self->counts.buf, self->counts.len);
    bool plain = read_events(self, view.buf, (Cursor)view.buf + view.len);
    PyBuffer_Release(&view);
    if (!plain) { /* nothing of it stays */
        for (int i = 0; i < self->n_tables; i++)
            self->tables[i].count = self->tables[i].before;
        memcpy(self->counts.buf, self->counts_before, self->counts.len);
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(plain);
}

/* How many rows each table has; the next block begins at none. */
static PyObject *take(PyObject *object, PyObject *nothing)
{
    Decoder *self = (Decoder *)object;
    (void)nothing;
    PyObject *rows = PyTuple_New(self->n_tables);
    for (int i = 0; rows && i < self->n_tables; i++) {
        PyTuple_SetItem(rows, i, PyLong_FromSsize_t(self->tables[i].count));
        self->tables[i].count = 0;
    }
    return rows;
}

static bool set_key(Key *key, PyObject *description)
{
    Py_ssize_t size;
    const char *text;
    long long absent;
    if (!PyArg_ParseTuple(description, "y#iL", &text, &size, &key->kind, &absent))
        return false;
    key->text = (Cursor)text;
    key->size = size;
    key->absent = absent;
    return true;
}

/* A table of (phases, whether rows are named, keys, cells). */
static bool set_table(Table *table, PyObject *description)
{
    PyObject *keys;
    int named;
    if (!PyArg_ParseTuple(description, "yiO!w*", &table->phases, &named, &PyTuple_Type, &keys, &table->cells))
        return false;
    Py_ssize_t n_keys = PyTuple_Size(keys);
    table->named = named != 0;
    table->capacity = table->cells.len / (Py_ssize_t)sizeof(int64_t) / (FIRST_ARGUMENT + n_keys);
    table->keys = calloc(n_keys + 1, sizeof(Key));
    table->after = calloc(n_keys + 1, sizeof(int));
    if (!table->keys || !table->after) {
        PyErr_NoMemory();
        return false;
    }
    table->n_keys = (int)n_keys;
    for (Py_ssize_t i = 0; i < n_keys; i++)
        if (!set_key(&table->keys[i], PyTuple_GetItem(keys, i)))
            return false;
    return true;
}

static int initialise(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Decoder *self = (Decoder *)object;
    PyObject *tables, *number;
    unsigned long long seed;
    if (self->number || keywords) {
        PyErr_SetString(PyExc_TypeError, "Decoder takes positional arguments, once");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "O!w*OK", &PyTuple_Type, &tables, &self->counts, &number, &seed))
        return -1;
    Py_INCREF(tables);
    Py_INCREF(number);
    self->description = tables;
    self->number = number;
    self->texts.seed = seed;
    self->tables = calloc(PyTuple_Size(tables) + 1, sizeof(Table));
    self->counts_before = malloc(self->counts.len + 1);
    if (!self->tables || !self->counts_before || !make_room(&self->texts)) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(tables); i++, self->n_tables++)
        if (!set_table(&self->tables[i], PyTuple_GetItem(tables, i)))
            return -1;
    return 0;
}

static void deallocate(PyObject *object)
{
    Decoder *self = (Decoder *)object;
    for (size_t i = 0; self->texts.entries && i <= self->texts.mask; i++)
        Py_XDECREF(self->texts.entries[i].text);
    free(self->texts.entries);
    Py_ssize_t n_tables = self->description ? PyTuple_Size(self->description) : 0;
    for (Py_ssize_t i = 0; self->tables && i < n_tables; i++) { /* one that failed is there in part */
        free(self->tables[i].keys);
        free(self->tables[i].after);
        PyBuffer_Release(&self->tables[i].cells);
    }
    free(self->tables);
    free(self->counts_before);
    PyBuffer_Release(&self->counts);
    Py_XDECREF(self->number);
    Py_XDECREF(self->description);
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_O, "Read a block into the tables' cells; whether it is plain. Of one that is not, nothing is."},
    {"take", take, METH_NOARGS, "Return how many rows each table has got, and begin at none."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Decoder(tables, counts, number, seed): see compiled.py, which alone makes one."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, initialise},
    {Py_tp_dealloc, deallocate},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tracemine.formats.kineto._event_columns.Decoder",
    .basicsize = sizeof(Decoder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int add_type(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int failed = type ? PyModule_AddObjectRef(module, "Decoder", type) : -1;
    Py_XDECREF(type);
    if (!failed)
        failed = PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
    return failed ? failed : PyModule_AddStringConstant(module, "SOURCE_SHA256", SOURCE_SHA256);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_type},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_event_columns",
    .m_doc = "Blocks of Kineto events as columns of int64.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__event_columns(void)
{
    return PyModuleDef_Init(&definition);
}
