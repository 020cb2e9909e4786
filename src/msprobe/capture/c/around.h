/* A callable that does something before and after a call of another function, without a frame of its own on the stack
 * while that runs: warnings, tracebacks and whoever counts frames find the user's where they would be without us. */
#ifndef MSPROBE_NATIVE_AROUND_H
#define MSPROBE_NATIVE_AROUND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

typedef struct {
    PyObject_HEAD PyObject *before, *after, *dict;
} MspAround;

static int msp_around_traverse(MspAround *self, visitproc visit, void *arg)
{
    Py_VISIT(self->before);
    Py_VISIT(self->after);
    Py_VISIT(self->dict);
    return 0;
}

static int msp_around_clear(MspAround *self)
{
    Py_CLEAR(self->before);
    Py_CLEAR(self->after);
    Py_CLEAR(self->dict);
    return 0;
}

static void msp_around_free(MspAround *self)
{
    PyObject_GC_UnTrack(self);
    msp_around_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *msp_around_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"before", "after", NULL};
    PyObject *before, *after;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &before, &after)) {
        return NULL;
    }
    MspAround *self = (MspAround *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->before = Py_NewRef(before);
        self->after = Py_NewRef(after);
    }
    return (PyObject *)self;
}

/* `after(token, None, error)` for the error that is set, which stays set; one that `after` raises takes its place. */
static void msp_tell_failure(PyObject *after, PyObject *token)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL && traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    PyObject *done = PyObject_CallFunctionObjArgs(after, token, Py_None, value == NULL ? Py_None : value, NULL);
    if (done == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return;
    }
    Py_DECREF(done);
    PyErr_Restore(type, value, traceback);
}

static PyObject *msp_around_call(MspAround *self, PyObject *args, PyObject *kwargs)
{
    /* Taken away while the call runs, it may be gone before the call is over. */
    PyObject *after = Py_XNewRef(self->after), *before = Py_XNewRef(self->before);
    PyObject *result = NULL;
    PyObject *plan = before == NULL ? NULL : PyObject_Call(before, args, kwargs);
    Py_XDECREF(before);
    if (plan == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_RuntimeError, "this callable was cleared");
        }
        Py_XDECREF(after);
        return NULL;
    }
    if (!PyTuple_CheckExact(plan) || PyTuple_GET_SIZE(plan) != 4) {
        PyErr_SetString(PyExc_TypeError, "before() must return (function, args, kwargs, token)");
        goto done;
    }
    PyObject *given = PySequence_Tuple(PyTuple_GET_ITEM(plan, 1));
    PyObject *words = PyTuple_GET_ITEM(plan, 2), *token = PyTuple_GET_ITEM(plan, 3);
    if (given == NULL) {
        goto done;
    }
    if (words != Py_None && !PyDict_Check(words)) {
        PyErr_SetString(PyExc_TypeError, "before() must return keyword arguments as a dict or None");
        Py_DECREF(given);
        goto done;
    }
    result = PyObject_Call(PyTuple_GET_ITEM(plan, 0), given, words == Py_None ? NULL : words);
    Py_DECREF(given);
    if (token != Py_None) {
        if (result == NULL) {
            msp_tell_failure(after, token);
        } else {
            PyObject *told = PyObject_CallFunctionObjArgs(after, token, result, Py_None, NULL);
            if (told == NULL) {
                Py_CLEAR(result);
            } else if (PyTuple_CheckExact(told) && PyTuple_GET_SIZE(told) == 1) {
                /* Another result in the place of this one. */
                Py_SETREF(result, Py_NewRef(PyTuple_GET_ITEM(told, 0)));
            }
            Py_XDECREF(told);
        }
    }
done:
    Py_DECREF(plan);
    Py_XDECREF(after);
    return result;
}

/* As a function in a class: bound to the object it is looked up on. */
static PyObject *msp_around_bind(PyObject *self, PyObject *object, PyObject *type)
{
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

/* Pickled and copied as a function is: by its name, where it stands in the place of one. */
static PyObject *msp_around_reduce(MspAround *self, PyObject *unused)
{
    PyObject *name = self->dict == NULL ? NULL : PyDict_GetItemString(self->dict, "__name__");
    if (name == NULL) {
        PyErr_SetString(PyExc_TypeError, "this callable has no name and cannot be pickled");
        return NULL;
    }
    return Py_NewRef(name);
}

static PyMethodDef msp_around_methods[] = {
    {"__reduce__", (PyCFunction)msp_around_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef msp_around_getters[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject MspAroundType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.Around",
    .tp_doc = "Around(before, after): see around.py",
    .tp_basicsize = sizeof(MspAround),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = msp_around_new,
    .tp_dealloc = (destructor)msp_around_free,
    .tp_traverse = (traverseproc)msp_around_traverse,
    .tp_clear = (inquiry)msp_around_clear,
    .tp_call = (ternaryfunc)msp_around_call,
    .tp_descr_get = msp_around_bind,
    .tp_dictoffset = offsetof(MspAround, dict),
    .tp_getset = msp_around_getters,
    .tp_methods = msp_around_methods,
};

#endif
