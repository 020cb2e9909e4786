/* Passes of modules that are recorded: what the hooks of modules.py, module_gradients.py and parameter_gradients.py do,
 * for the usual case: statistics of everything, one tensor in, one tensor out. The rest is left to the functions there,
 * which work on the same objects.
 *
 * This file: what all of it shares, and the two objects that Python sees beside the hooks. `Passes` is the recorder's
 * side; `Pass` is one pass of a module between its beginning and its end.
 */
#ifndef MSPROBE_NATIVE_PASSES_H
#define MSPROBE_NATIVE_PASSES_H

#include <structmember.h>

#include "_native_memo.h"
#include "_native_names.h"
#include "_native_records.h"

/* Everything that is asked of Python, under the names of the constructor's arguments. */
#define PARTNERS(X)                                                                                                    \
    X(session) X(memo) X(hooks) X(open) X(stacks_known) X(stacks)               \
    X(tensor) X(parameter) X(quiet) X(function_modes) X(dispatch_modes) X(grad_enabled) X(sequence_number) X(tracing)  \
    X(accumulating) X(slices) X(strided) X(edge) X(base) X(inputs_of) X(edges_of) X(outputs_of)       \
    X(problem_of) X(leave) X(watch) X(share) X(watch_parameter) X(watch_parameters) X(hook_on) X(nothing) X(of_all_uses)    \
    X(trees) X(passes) X(earlier) X(waiting) X(several) X(parameter_hooks) X(attached)

typedef struct {
    PyObject_HEAD
#define DECLARE_PARTNER(name) PyObject *name;
    PARTNERS(DECLARE_PARTNER)
#undef DECLARE_PARTNER
} Passes;

typedef struct {
    PyObject_HEAD
    PyObject *module, *name, *entry, *stack, *parent, *inputs, *kwinputs; /* never NULL */
    PyObject *edges; /* list of ArgumentEdge, or NULL: made when Python asks for it */
    PyObject *node, *leaf; /* of the one argument that requires grad: its node, or the leaf itself */
    PyObject *parameters;  /* a dict of the module's own as they were when it began; NULL: not watched, or none */
    Passes *passes;
    int64_t slot;
    int64_t number, order, oldest, depth;
    uintptr_t handled;
    char recorded, watched;
    char postponed; /* its parameters are not yet watched */
} Pass;

static PyTypeObject PassesType, PassType;

/* ---- torch, asked so that no mode notices ---- */

typedef struct {
    Passes *passes;
    PyObject *guard;
} Silence;

/* No function mode and no subclass sees what we do. */
static int silence_begin(Silence *silence)
{
    if (silence->guard != NULL) {
        return 0;
    }
    silence->guard = PyObject_CallNoArgs(silence->passes->quiet);
    if (silence->guard != NULL && CALL(silence->guard, __enter__) < 0) {
        Py_CLEAR(silence->guard);
    }
    return silence->guard == NULL ? -1 : 0;
}

/* The same where there is a mode; nothing to do where there is none, as long as all tensors are plain ones. */
static int silence_modes(Silence *silence)
{
    PyObject *count = PyObject_CallNoArgs(silence->passes->function_modes);
    if (count == NULL) {
        return -1;
    }
    const long modes = PyLong_AsLong(count);
    Py_DECREF(count);
    return modes == 0 ? 0 : modes == -1 && PyErr_Occurred() ? -1 : silence_begin(silence);
}

static void silence_end(Silence *silence)
{
    if (silence->guard == NULL) {
        return;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = PyObject_CallMethodObjArgs(silence->guard, attribute___exit__, Py_None, Py_None, Py_None, NULL);
    if (done == NULL) {
        PyErr_WriteUnraisable(silence->guard);
    }
    Py_XDECREF(done);
    Py_CLEAR(silence->guard);
    PyErr_Restore(type, value, trace);
}

static int is_plain(const Passes *passes, PyObject *value)
{
    return (PyObject *)Py_TYPE(value) == passes->tensor || (PyObject *)Py_TYPE(value) == passes->parameter;
}

static PyObject *describe(const Passes *passes, PyObject *tensor, int remember)
{
    PyObject *arguments[] = {tensor, remember ? Py_True : Py_False};
    return memo_describe((Memo *)passes->memo, arguments, 2, NULL);
}

/* An error of ours costs what was being recorded, and nothing else. -1: it is none of ours. */
static int report_fault(Passes *passes, PyObject *what)
{
    if (!PyErr_Occurred()) { /* a fault in the recorder itself; without this it would be a SystemError in the training */
        PyErr_SetString(PyExc_RuntimeError, "the compiled recorder failed and did not say why");
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(value, trace);
    }
    PyObject *done = PyObject_CallMethodObjArgs(passes->session, attribute_fault, what, value, NULL);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(done);
    if (done == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* What a hook of ours answers the program: None, or the error where that is none of ours. */
static PyObject *hook_answer(Passes *passes, PyObject *what, int failed)
{
    if (failed && report_fault(passes, what) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The place of what happens now in the order of the step; -1: error. */
static int64_t next_order(const Passes *passes)
{
    const int64_t order = INT_OF(passes->session, order) + 1;
    if (order <= 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "the order of the step is negative");
    }
    return order <= 0 || set_int(passes->session, attribute_order, order) < 0 ? -1 : order;
}

static int set_item(PyObject *dict, PyObject *key, PyObject *value)
{
    const int failed = value == NULL ? -1 : PyDict_SetItem(dict, key, value);
    Py_XDECREF(value);
    return failed;
}

/* Take a key out of a dict, if it is in it. */
static int drop_item(PyObject *dict, PyObject *key)
{
    if (PyDict_DelItem(dict, key) == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* tree["msprobe"] = {"order": order, key: text}, the latter if there is one */
static int add_order(PyObject *tree, int64_t order, PyObject *key, PyObject *text)
{
    PyObject *ours = PyDict_New();
    const int failed = ours == NULL || set_item(ours, attribute_order, PyLong_FromLongLong(order)) < 0 ||
                       (text != NULL && PyDict_SetItem(ours, key, text) < 0) ||
                       PyDict_SetItem(tree, attribute_msprobe, ours) < 0;
    Py_XDECREF(ours);
    return failed ? -1 : 0;
}

static PyObject *list_of(PyObject *item)
{
    PyObject *list = item == NULL ? NULL : PyList_New(1);
    if (list != NULL) {
        PyList_SET_ITEM(list, 0, Py_NewRef(item));
    }
    return list;
}

/* ---- one pass ---- */

static Pass *pass_new(Passes *passes, PyObject *name, PyObject *entry, int64_t number, int64_t order, PyObject *stack,
                      PyObject *parent, PyObject *module)
{
    Pass *made = PyObject_New(Pass, &PassType);
    if (made == NULL) {
        return NULL;
    }
    made->module = Py_NewRef(module);
    made->name = Py_NewRef(name);
    made->entry = Py_NewRef(entry);
    made->stack = Py_NewRef(stack);
    made->parent = Py_NewRef(parent);
    made->inputs = Py_NewRef(Py_None);
    made->kwinputs = Py_NewRef(Py_None);
    made->edges = made->node = made->leaf = made->parameters = NULL;
    made->passes = (Passes *)Py_NewRef((PyObject *)passes);
    made->slot = 0;
    made->number = number;
    made->order = order;
    made->oldest = 0;
    made->depth = 0;
    made->handled = 0;
    made->recorded = made->watched = made->postponed = 0;
    return made;
}

static void pass_dealloc(Pass *pass)
{
    Py_XDECREF(pass->module);
    Py_XDECREF(pass->name);
    Py_XDECREF(pass->entry);
    Py_XDECREF(pass->stack);
    Py_XDECREF(pass->parent);
    Py_XDECREF(pass->inputs);
    Py_XDECREF(pass->kwinputs);
    Py_XDECREF(pass->edges);
    Py_XDECREF(pass->node);
    Py_XDECREF(pass->leaf);
    Py_XDECREF(pass->parameters);
    Py_XDECREF(pass->passes);
    PyObject_Free(pass);
}

/* The edges of the arguments as the rest of the recorder knows them. */
static PyObject *pass_edges(Pass *pass, void *nothing)
{
    if (pass->edges != NULL) {
        return Py_NewRef(pass->edges);
    }
    PyObject *edges = PyList_New(0);
    if (edges != NULL && (pass->node != NULL || pass->leaf != NULL)) {
        PyObject *edge = PyObject_CallFunction(pass->passes->edge, "OLsO", pass->node == NULL ? Py_None : pass->node,
                                               (long long)pass->slot, "input.0", pass->leaf == NULL ? Py_None : pass->leaf);
        if (edge == NULL || PyList_Append(edges, edge) < 0) {
            Py_CLEAR(edges);
        }
        Py_XDECREF(edge);
    }
    return edges;
}

static PyMemberDef pass_members[] = {
    {"module", T_OBJECT, offsetof(Pass, module), READONLY, NULL},
    {"name", T_OBJECT, offsetof(Pass, name), READONLY, NULL},
    {"entry", T_OBJECT, offsetof(Pass, entry), READONLY, NULL},
    {"stack", T_OBJECT, offsetof(Pass, stack), READONLY, NULL},
    {"parent", T_OBJECT, offsetof(Pass, parent), READONLY, NULL},
    {"inputs", T_OBJECT, offsetof(Pass, inputs), READONLY, NULL},
    {"kwinputs", T_OBJECT, offsetof(Pass, kwinputs), READONLY, NULL},
    {"parameters", T_OBJECT, offsetof(Pass, parameters), READONLY, NULL},
    {"number", T_LONGLONG, offsetof(Pass, number), READONLY, NULL},
    {"order", T_LONGLONG, offsetof(Pass, order), READONLY, NULL},
    {"oldest", T_LONGLONG, offsetof(Pass, oldest), READONLY, NULL},
    {"recorded", T_BOOL, offsetof(Pass, recorded), READONLY, NULL},
    {"watched", T_BOOL, offsetof(Pass, watched), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef pass_getters[] = {
    {"edges", (getter)pass_edges, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject PassType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.Pass",
    .tp_basicsize = sizeof(Pass),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A module's pass between its beginning and its end.",
    .tp_dealloc = (destructor)pass_dealloc,
    .tp_members = pass_members,
    .tp_getset = pass_getters,
};

#endif
