/* The description of a tensor: its JSON text, where a file name belongs in it, and whether an element is NaN or
 * infinite. */
#ifndef MSPROBE_NATIVE_INFO_H
#define MSPROBE_NATIVE_INFO_H

#include <Python.h>
#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD PyObject *text, *cut, *nonfinite;
} MspInfo;

static PyTypeObject MspInfoType;

/* A description of `class`, a subclass of Info without a constructor of its own; takes over none of the rest. */
static PyObject *msp_info_new(PyTypeObject *class, PyObject *text, PyObject *cut, PyObject *nonfinite)
{
    MspInfo *info = (MspInfo *)class->tp_alloc(class, 0);
    if (info != NULL) {
        info->text = Py_NewRef(text);
        info->cut = Py_NewRef(cut);
        info->nonfinite = Py_NewRef(nonfinite);
    }
    return (PyObject *)info;
}

static PyObject *msp_info_make(PyTypeObject *class, PyObject *args, PyObject *kwargs)
{
    return msp_info_new(class, Py_None, Py_None, Py_None);
}

static int msp_info_init(MspInfo *info, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"text", "cut", "nonfinite", NULL};
    PyObject *text, *cut, *nonfinite;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO", words, &text, &cut, &nonfinite)) {
        return -1;
    }
    Py_XSETREF(info->text, Py_NewRef(text));
    Py_XSETREF(info->cut, Py_NewRef(cut));
    Py_XSETREF(info->nonfinite, Py_NewRef(nonfinite));
    return 0;
}

static void msp_info_dealloc(MspInfo *info)
{
    Py_XDECREF(info->text);
    Py_XDECREF(info->cut);
    Py_XDECREF(info->nonfinite);
    Py_TYPE(info)->tp_free((PyObject *)info);
}

static PyMemberDef msp_info_members[] = {
    {"text", T_OBJECT_EX, offsetof(MspInfo, text), 0, NULL},
    {"cut", T_OBJECT_EX, offsetof(MspInfo, cut), 0, NULL},
    {"nonfinite", T_OBJECT_EX, offsetof(MspInfo, nonfinite), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject MspInfoType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.Info",
    .tp_basicsize = sizeof(MspInfo),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_doc = "What a description consists of: Info(text, cut, nonfinite).",
    .tp_new = msp_info_make,
    .tp_init = (initproc)msp_info_init,
    .tp_dealloc = (destructor)msp_info_dealloc,
    .tp_members = msp_info_members,
};

#endif
