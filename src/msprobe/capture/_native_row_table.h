/* The rows of a step: numbered in the order in which they were made, and taken out piece by piece to be written. */
#ifndef MSPROBE_NATIVE_ROW_TABLE_H
#define MSPROBE_NATIVE_ROW_TABLE_H

#include "_native_rows.h"
#include "_native_statistics.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD MspRow *rows; /* those that nobody has taken */
    Py_ssize_t pending, room, made;
    int on;
} MspRowTable;

static PyTypeObject MspRowTableType;

/* The number of the row, which is copied; -1 with MemoryError. */
static Py_ssize_t msp_row_table_add(MspRowTable *table, const MspRow *row)
{
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
    return table->made++;
}

static PyObject *msp_row_table_take(MspRowTable *table, PyObject *nothing)
{
    PyObject *taken = PyBytes_FromStringAndSize((const char *)table->rows, table->pending * (Py_ssize_t)sizeof(MspRow));
    if (taken != NULL) {
        table->pending = 0;
    }
    return taken;
}

static PyObject *msp_row_table_clear(MspRowTable *table, PyObject *nothing)
{
    PyMem_Free(table->rows);
    table->rows = NULL;
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

/* add(address, shape, stride, kind, table) -> number of the row */
static PyObject *msp_row_table_read(MspRowTable *rows, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t sizes[MSP_MAX_DIMENSIONS], strides[MSP_MAX_DIMENSIONS];
    MspLayout layout;
    if (nargs != 5) {
        PyErr_SetString(PyExc_TypeError, "add() takes address, shape, stride, kind and table");
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
    const Py_ssize_t number = msp_row_table_add(rows, &row);
    return number < 0 ? NULL : PyLong_FromSsize_t(number);
}

static void msp_row_table_dealloc(MspRowTable *table)
{
    PyMem_Free(table->rows);
    Py_TYPE(table)->tp_free((PyObject *)table);
}

static PyMethodDef msp_row_table_methods[] = {
    {"add", (PyCFunction)(void (*)(void))msp_row_table_read, METH_FASTCALL,
     "add(address, shape, stride, kind, table) -> the number of the row of these elements, of which there are some"},
    {"put", (PyCFunction)msp_row_table_put, METH_O, "put(bytes) -> the number of a row that was made elsewhere"},
    {"take", (PyCFunction)msp_row_table_take, METH_NOARGS, "take() -> the rows since the last time, in their order"},
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
