/* The backward of a call that one node of the graph does: what CallGradients._single does in call_gradients.py. */
#ifndef MSPROBE_NATIVE_CALLS_H
#define MSPROBE_NATIVE_CALLS_H

#include "_native_boundary.h"

/* A hook on the one node of a call: what it gets and what it passes on is all there is to know. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Passes *passes;
    PyObject *base, *parent; /* of the forward record */
    int64_t generation;
} CallHook;

static PyTypeObject CallHookType;

/* The descriptions of some gradients; None where there is none. */
static PyObject *describe_all(const Passes *passes, PyObject *gradients)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(gradients);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *gradient = PyTuple_GET_ITEM(gradients, i);
        PyObject *info = gradient == Py_None ? Py_NewRef(Py_None) : describe(passes, gradient, 1);
        if (info == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, info);
        }
    }
    return list;
}

static int write_call(const CallHook *hook, PyObject *name, PyObject *passed_on, PyObject *received)
{
    const Passes *passes = hook->passes;
    PyObject *tree = PyDict_New(), *parent = NULL;
    int failed = -1;
    if (tree != NULL && set_item(tree, attribute_input, describe_all(passes, received)) == 0 &&
        set_item(tree, attribute_output, describe_all(passes, passed_on)) == 0) {
        const int64_t order = next_order(passes);
        parent = order < 0 || add_order(tree, order, NULL, NULL) < 0 ? NULL : backward_of(hook->parent);
        failed = parent == NULL ? -1 : put_record(passes->session, name, tree, NULL, parent == Py_False ? NULL : parent);
    }
    Py_XDECREF(parent);
    Py_XDECREF(tree);
    return failed;
}

static PyObject *call_hook_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    CallHook *hook = (CallHook *)Py_NewRef(self); /* what runs may take it off its node */
    PyObject *name = NULL;
    int failed = -1;
    if (PyVectorcall_NARGS(nargsf) != 2 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a hook on a node takes two tuples of gradients");
        goto done;
    }
    const int64_t generation = INT_OF(hook->passes->session, generation);
    if (generation != hook->generation) { /* of an earlier step, or an error */
        failed = generation == -1 && PyErr_Occurred() ? -1 : 0;
        goto done;
    }
    Silence silence = {hook->passes, NULL};
    name = PyUnicode_FromFormat("%U.backward", hook->base);
    failed = name == NULL || silence_modes(&silence) < 0 ? -1 : write_call(hook, name, args[0], args[1]);
    silence_end(&silence);
done:;
    PyObject *answer = hook_answer(hook->passes, name == NULL ? hook->base : name, failed);
    Py_XDECREF(name);
    Py_DECREF(hook);
    return answer;
}

static void call_hook_dealloc(CallHook *hook)
{
    Py_XDECREF(hook->passes);
    Py_XDECREF(hook->base);
    Py_XDECREF(hook->parent);
    PyObject_Free(hook);
}

static PyTypeObject CallHookType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.CallHook",
    .tp_basicsize = sizeof(CallHook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A hook on the one node of a call.",
    .tp_dealloc = (destructor)call_hook_dealloc,
    .tp_vectorcall_offset = offsetof(CallHook, vectorcall),
    .tp_call = PyVectorcall_Call,
};

/* 1: other nodes of the call lie between this one and what was there before; -1: error. */
static int has_inner_nodes(const Passes *passes, PyObject *node, int64_t oldest)
{
    PyObject *edges = GET(node, next_functions);
    int found = edges == NULL || !PyTuple_Check(edges) ? -1 : 0;
    for (Py_ssize_t i = 0; found == 0 && i < PyTuple_GET_SIZE(edges); i++) {
        PyObject *edge = PyTuple_GET_ITEM(edges, i); /* the tuple is ours, and keeps both */
        PyObject *target = PyTuple_Check(edge) && PyTuple_GET_SIZE(edge) == 2 ? PyTuple_GET_ITEM(edge, 0) : Py_None;
        if (target != Py_None && (PyObject *)Py_TYPE(target) != passes->accumulating) {
            const int64_t number = sequence_of(target);
            found = number < 0 && PyErr_Occurred() ? -1 : number >= oldest;
        }
    }
    Py_XDECREF(edges);
    if (found < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "next_functions is no tuple");
    }
    return found;
}

/* watch_single(node, base, parent, oldest) -> whether this node does the whole call, and is watched now */
static PyObject *passes_watch_single(Passes *passes, PyObject *const *args, Py_ssize_t nargs)
{
    const int64_t oldest = nargs == 4 && PyUnicode_Check(args[1]) ? PyLong_AsLongLong(args[3]) : -1;
    if (nargs != 4 || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "watch_single() takes a node, a name, a parent and a number");
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    const int suspended = IS_TRUE(passes->hooks, suspended);
    const int inner = suspended != 0 ? suspended : has_inner_nodes(passes, args[0], oldest);
    const int64_t generation = inner < 0 ? -1 : INT_OF(passes->session, generation);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (suspended || inner) {
        return PyBool_FromLong(suspended);
    }
    CallHook *hook = PyObject_New(CallHook, &CallHookType);
    if (hook == NULL) {
        return NULL;
    }
    hook->vectorcall = call_hook_call;
    hook->passes = (Passes *)Py_NewRef((PyObject *)passes);
    hook->base = Py_NewRef(args[1]);
    hook->parent = Py_NewRef(args[2]);
    hook->generation = generation;
    PyObject *handle = PyObject_CallMethodOneArg(args[0], attribute_register_hook, (PyObject *)hook);
    PyObject *handles = handle == NULL ? NULL : GET(passes->hooks, _handles);
    const int failed = handles == NULL || PyList_Append(handles, handle) < 0;
    Py_XDECREF(handle);
    Py_XDECREF(handles);
    Py_DECREF(hook);
    if (failed) {
        return NULL;
    }
    Py_RETURN_TRUE;
}

#endif
