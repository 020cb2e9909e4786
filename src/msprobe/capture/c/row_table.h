/* The rows of a step: numbered in the order in which they were made, equal ones once, and taken out piece by piece to be
 * written. */
#ifndef MSPROBE_NATIVE_ROW_TABLE_H
#define MSPROBE_NATIVE_ROW_TABLE_H

#include "rows.h"
#include "statistics.h"

#include <structmember.h>

/* A row that was made: a digest of it, and one more than its number; 0: none. */
typedef struct {
    uint64_t digest[2];
    Py_ssize_t number;
} MspKnownRow;

typedef struct {
    PyObject_HEAD MspRow *rows; /* those that nobody has taken */
    Py_ssize_t pending, room, made;
    MspKnownRow *known; /* open addressing, a power of two of them */
    size_t places;
    int on;
} MspRowTable;

static PyTypeObject MspRowTableType;

static void msp_row_digest(const MspRow *row, uint64_t *digest)
{
    uint64_t words[sizeof(MspRow) / 8], one = 0x2545F4914F6CDD1Dull, other = 0x9E3779B97F4A7C15ull;
    memcpy(words, row, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / 8; i++) {
        one = (one ^ words[i]) * 0xFF51AFD7ED558CCDull;
        one ^= one >> 32;
        other = (other + words[i]) * 0xC4CEB9FE1A85EC53ull;
        other ^= other >> 29;
    }
    digest[0] = one;
    digest[1] = other;
}

static MspKnownRow *msp_known_row(MspKnownRow *known, size_t places, const uint64_t *digest)
{
    size_t place = (size_t)digest[0] & (places - 1);
    while (known[place].number != 0 &&
           (known[place].digest[0] != digest[0] || known[place].digest[1] != digest[1])) {
        place = (place + 1) & (places - 1);
    }
    return &known[place];
}

/* Room for one row more among those that are known; -1 with MemoryError. */
static int msp_known_rows_grow(MspRowTable *table)
{
    if (4 * ((size_t)table->made + 1) <= 3 * table->places) {
        return 0;
    }
    const size_t places = table->places == 0 ? 256 : 2 * table->places;
    MspKnownRow *known = PyMem_Calloc(places, sizeof(MspKnownRow));
    if (known == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < table->places; i++) {
        if (table->known[i].number != 0) {
            *msp_known_row(known, places, table->known[i].digest) = table->known[i];
        }
    }
    PyMem_Free(table->known);
    table->known = known;
    table->places = places;
    return 0;
}

/* The number of the row, which is copied unless there is an equal one; -1 with MemoryError. */
static Py_ssize_t msp_row_table_add(MspRowTable *table, const MspRow *row)
{
    uint64_t digest[2];
    if (msp_known_rows_grow(table) < 0) {
        return -1;
    }
    msp_row_digest(row, digest);
    MspKnownRow *known = msp_known_row(table->known, table->places, digest);
    if (known->number != 0) {
        return known->number - 1;
    }
    if (table->pending == table->room) {
        const Py_ssize_t room = table->room == 0 ? 64 : 2 * table->room;
        MspRow *rows = room > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(MspRow)
                           ? NULL
                           : PyMem_Realloc(table->rows, (size_t)room * sizeof(MspRow));
        if (rows == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        table->rows = rows;
        table->room = room;
    }
    table->rows[table->pending++] = *row;
    *known = (MspKnownRow){{digest[0], digest[1]}, table->made + 1};
    return table->made++;
}

static PyObject *msp_row_table_take(MspRowTable *table, PyObject *nothing)
{
    PyObject *taken = Py_BuildValue("ny#", table->made - table->pending,
                                    table->rows == NULL ? "" : (const char *)table->rows,
                                    table->pending * (Py_ssize_t)sizeof(MspRow));
    if (taken != NULL) {
        table->pending = 0;
    }
    return taken;
}

static PyObject *msp_row_table_clear(MspRowTable *table, PyObject *nothing)
{
    PyMem_Free(table->rows);
    PyMem_Free(table->known);
    table->rows = NULL;
    table->known = NULL;
    table->places = 0;
    table->pending = table->room = table->made = 0;
    Py_RETURN_NONE;
}

static PyObject *msp_row_table_put(MspRowTable *table, PyObject *bytes)
{
    MspRow row;
    if (!PyBytes_Check(bytes) || PyBytes_GET_SIZE(bytes) != (Py_ssize_t)sizeof(MspRow)) {
        return PyErr_Format(PyExc_ValueError, "a row is %zd bytes", (Py_ssize_t)sizeof(MspRow));
    }
    memcpy(&row, PyBytes_AS_STRING(bytes), sizeof(row));
    const Py_ssize_t number = msp_row_table_add(table, &row);
    return number < 0 ? NULL : PyLong_FromSsize_t(number);
}

/* make(address, shape, stride, kind, table) -> the row */
static PyObject *msp_row_table_make(PyObject *nothing, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t sizes[MSP_MAX_DIMENSIONS], strides[MSP_MAX_DIMENSIONS];
    MspLayout layout;
    if (nargs != 5) {
        PyErr_SetString(PyExc_TypeError, "make() takes address, shape, stride, kind and table");
        return NULL;
    }
    const char *address = PyLong_AsVoidPtr(args[0]);
    if (address == NULL && PyErr_Occurred()) {
        return NULL;
    }
    const int dimensions = msp_read_sizes(args[1], sizes);
    if (dimensions < 0 || msp_read_sizes(args[2], strides) != dimensions) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "%d sizes but not as many strides", dimensions);
    }
    const long kind = PyLong_AsLong(args[3]);
    if (kind == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (kind < 0 || kind >= MSP_KIND_COUNT || !msp_has_rows((MspKind)kind)) {
        return PyErr_Format(PyExc_ValueError, "elements of kind %ld have no rows", kind);
    }
    const float *table = NULL;
    if (kind == MSP_FLOAT8) {
        if (!PyBytes_Check(args[4]) || PyBytes_GET_SIZE(args[4]) != 256 * (Py_ssize_t)sizeof(float)) {
            PyErr_SetString(PyExc_ValueError, "float8 needs the 256 float32 values of its bytes");
            return NULL;
        }
        table = (const float *)(const void *)PyBytes_AS_STRING(args[4]);
    }
    msp_arrange(sizes, strides, dimensions, &layout);
    if (layout.count == 0 || address == NULL) {
        PyErr_SetString(PyExc_ValueError, "no elements");
        return NULL;
    }
    MspRow row;
    MspSummary summary;
    MspRowExtremes found;
    PyThreadState *released = layout.count > MSP_GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
    msp_summarise((MspKind)kind, address, &layout, table, NULL, &summary);
    msp_row_take_extremes((MspKind)kind, &summary, &found);
    msp_row_of((MspKind)kind, address, sizes, strides, dimensions, layout.count, table, &found, &row);
    if (released != NULL) {
        PyEval_RestoreThread(released);
    }
    return PyBytes_FromStringAndSize((const char *)&row, sizeof(row));
}

static void msp_row_table_dealloc(MspRowTable *table)
{
    PyMem_Free(table->rows);
    PyMem_Free(table->known);
    Py_TYPE(table)->tp_free((PyObject *)table);
}

static PyMethodDef msp_row_table_methods[] = {
    {"make", (PyCFunction)(void (*)(void))msp_row_table_make, METH_FASTCALL | METH_STATIC,
     "make(address, shape, stride, kind, table) -> the row of these elements, of which there are some; it is not added"},
    {"put", (PyCFunction)msp_row_table_put, METH_O, "put(row) -> the number of a row, which is added unless there is an equal one"},
    {"take", (PyCFunction)msp_row_table_take, METH_NOARGS, "take() -> the number of the first row since the last time, and the rows"},
    {"clear", (PyCFunction)msp_row_table_clear, METH_NOARGS, "clear(): the next row has the number 0"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef msp_row_table_members[] = {
    {"pending", T_PYSSIZET, offsetof(MspRowTable, pending), READONLY, "how many rows nobody has taken"},
    {"made", T_PYSSIZET, offsetof(MspRowTable, made), READONLY, "the number of the next row"},
    {"on", T_INT, offsetof(MspRowTable, on), 0, "whether tensors get rows now"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject MspRowTableType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.RowTable",
    .tp_basicsize = sizeof(MspRowTable),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The rows of a step, numbered in the order in which they were made.",
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)msp_row_table_dealloc,
    .tp_methods = msp_row_table_methods,
    .tp_members = msp_row_table_members,
};

#endif
