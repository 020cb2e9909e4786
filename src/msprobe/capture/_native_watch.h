/* What comes back through a pass of a module: see module_gradients.py, whose _Watch this is for a pass with one result
 * and at most one argument that requires grad.
 */
#ifndef MSPROBE_NATIVE_WATCH_H
#define MSPROBE_NATIVE_WATCH_H

#include "_native_passes.h"

/* No node and no tensor is kept here but the sum of shares that are still arriving. */
typedef struct {
    PyObject_HEAD
    Passes *passes;
    PyObject *entry, *parent; /* of the backward record */
    int64_t generation, order;
    int arguments;  /* 0 or 1 */
    int boundaries; /* nodes that a gradient leaves by */
    int shares;     /* edges to the argument */
    /* of the pass through the graph that is under way */
    char begun, arrived, nodes_run, of_all_uses;
    int left;
    PyObject *received, *passed_on, *sum; /* descriptions, and the sum of several shares; NULL: none yet */
} Watch;

typedef enum { ARRIVE, PASS_ON, REACH_BASE } Moment;

/* A hook on a node of the graph. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Watch *watch;
    PyObject *base; /* what part of the whole tensor the result is, or NULL */
    Moment moment;
    int before;   /* the whole tensor is older than the pass */
    int64_t slot; /* of the result; of the argument in REACH_BASE, -1: it is another tensor */
    int count;
    int64_t positions[]; /* of the edges to the argument */
} NodeHook;

static PyTypeObject WatchType, NodeHookType;

static void watch_again(Watch *watch)
{
    watch->begun = watch->arrived = 0;
    watch->order = 0;
    watch->left = 0;
    Py_CLEAR(watch->received);
    Py_CLEAR(watch->passed_on);
    Py_CLEAR(watch->sum);
}

static PyObject *watch_tree(Watch *watch)
{
    Passes *passes = watch->passes;
    if (watch->sum != NULL) {
        Py_XSETREF(watch->passed_on, describe(passes, watch->sum, 1));
        if (watch->passed_on == NULL) {
            return NULL;
        }
    }
    PyObject *tree = PyDict_New();
    PyObject *received = watch->received == NULL ? Py_None : watch->received;
    PyObject *passed_on = watch->passed_on == NULL ? Py_None : watch->passed_on;
    if (tree == NULL || set_item(tree, attribute_input, list_of(received)) < 0 ||
        set_item(tree, attribute_output, watch->arguments ? list_of(passed_on) : PyList_New(0)) < 0 ||
        add_order(tree, watch->order, attribute_note, watch->of_all_uses ? passes->of_all_uses : NULL) < 0) {
        Py_CLEAR(tree);
    }
    return tree;
}

/* Write the record, if anything came. */
static int watch_close(Watch *watch)
{
    int failed = 0;
    if (watch->begun) {
        PyObject *tree = drop_item(watch->passes->open, (PyObject *)watch) < 0 ? NULL : watch_tree(watch);
        failed = tree == NULL || put_record(watch->passes->session, watch->entry, tree, NULL, watch->parent) < 0;
        Py_XDECREF(tree);
    }
    watch_again(watch);
    return failed ? -1 : 0;
}

static int watch_begin(Watch *watch)
{
    watch->begun = 1;
    watch->order = next_order(watch->passes);
    return watch->order < 0 ? -1 : PyDict_SetItem(watch->passes->open, (PyObject *)watch, Py_None);
}

static int watch_receive(Watch *watch, PyObject *gradient)
{
    if (gradient == Py_None) {
        return 0;
    }
    Py_XSETREF(watch->received, describe(watch->passes, gradient, 1));
    return watch->received == NULL ? -1 : 0;
}

/* One share of the gradient of the argument. */
static int watch_add(Watch *watch, PyObject *gradient)
{
    if (gradient == Py_None) {
        return 0;
    }
    if (watch->shares == 1) {
        Py_XSETREF(watch->passed_on, describe(watch->passes, gradient, 1));
        return watch->passed_on == NULL ? -1 : 0;
    }
    PyObject *sum = PyObject_CallFunctionObjArgs(watch->passes->share, watch->sum == NULL ? Py_None : watch->sum,
                                                 gradient, NULL);
    if (sum == NULL) {
        return -1;
    }
    Py_XSETREF(watch->sum, sum);
    return 0;
}

static int watch_take_from_base(Watch *watch, PyObject *base, PyObject *received)
{
    if (!watch->begun && watch_begin(watch) < 0) {
        return -1;
    }
    const int64_t slot = take_int(PySequence_GetItem(base, 0));
    if (slot < 0 || slot >= PyTuple_GET_SIZE(received)) {
        return slot < 0 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *gradient = PyTuple_GET_ITEM(received, slot);
    if (gradient == Py_None) {
        return 0;
    }
    PyObject *part = PyObject_CallMethodOneArg(base, attribute_of, gradient);
    const int failed = part == NULL || watch_receive(watch, part) < 0;
    Py_XDECREF(part);
    return failed ? -1 : 0;
}

static int hook_arrive(NodeHook *hook, PyObject *received)
{
    Watch *watch = hook->watch;
    if (watch->arrived && watch_close(watch) < 0) { /* the graph is walked again before all of the last walk came */
        return -1;
    }
    if (!watch->begun && watch_begin(watch) < 0) {
        return -1;
    }
    watch->nodes_run = 1;
    if (hook->slot < PyTuple_GET_SIZE(received) && watch_receive(watch, PyTuple_GET_ITEM(received, hook->slot)) < 0) {
        return -1;
    }
    watch->arrived = 1;
    return watch->boundaries == 0 || watch->left >= watch->boundaries ? watch_close(watch) : 0;
}

static int hook_pass_on(NodeHook *hook, PyObject *passed_on, PyObject *received)
{
    Watch *watch = hook->watch;
    if (hook->base != NULL && !watch->nodes_run && watch_take_from_base(watch, hook->base, received) < 0) {
        return -1;
    }
    for (int i = 0; i < hook->count; i++) {
        if (hook->positions[i] >= PyTuple_GET_SIZE(passed_on)) {
            PyErr_SetString(PyExc_IndexError, "a node has fewer gradients than edges");
            return -1;
        }
        if (watch_add(watch, PyTuple_GET_ITEM(passed_on, hook->positions[i])) < 0) {
            return -1;
        }
    }
    watch->left++;
    return watch->left >= watch->boundaries ? watch_close(watch) : 0;
}

static int hook_reach_base(NodeHook *hook, PyObject *received)
{
    Watch *watch = hook->watch;
    if (watch->nodes_run) {
        return 0;
    }
    if (watch_take_from_base(watch, hook->base, received) < 0) {
        return -1;
    }
    if (hook->slot >= 0 && hook->slot < PyTuple_GET_SIZE(received) &&
        watch_add(watch, PyTuple_GET_ITEM(received, hook->slot)) < 0) {
        return -1;
    }
    if (hook->before) {
        watch->of_all_uses = 1;
    }
    return hook->before || watch->boundaries == 0 ? watch_close(watch) : 0;
}

static PyObject *hook_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    NodeHook *hook = (NodeHook *)Py_NewRef(self); /* what runs may take it off its node */
    Watch *watch = hook->watch;
    const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    int failed = -1;
    if (nargs < 1 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[nargs - 1]) ||
        (hook->moment == PASS_ON && nargs < 2)) {
        PyErr_SetString(PyExc_TypeError, "a hook on a node takes tuples of gradients");
        goto done;
    }
    const int64_t generation = INT_OF(watch->passes->session, generation);
    if (generation != watch->generation) { /* of an earlier step, or an error */
        failed = generation == -1 && PyErr_Occurred() ? -1 : 0;
        goto done;
    }
    Silence silence = {watch->passes, NULL};
    failed = silence_modes(&silence);
    if (failed == 0) {
        failed = hook->moment == ARRIVE    ? hook_arrive(hook, args[0])
                 : hook->moment == PASS_ON ? hook_pass_on(hook, args[0], args[1])
                                           : hook_reach_base(hook, args[0]);
    }
    silence_end(&silence);
done:;
    PyObject *answer = hook_answer(watch->passes, watch->entry, failed);
    Py_DECREF(hook);
    return answer;
}

static NodeHook *hook_new(Watch *watch, Moment moment, int64_t slot, const int64_t *positions, int count)
{
    NodeHook *hook = PyObject_NewVar(NodeHook, &NodeHookType, count);
    if (hook == NULL) {
        return NULL;
    }
    hook->vectorcall = hook_call;
    hook->watch = (Watch *)Py_NewRef((PyObject *)watch);
    hook->base = NULL;
    hook->moment = moment;
    hook->before = 0;
    hook->slot = slot;
    hook->count = count;
    for (int i = 0; i < count; i++) {
        hook->positions[i] = positions[i];
    }
    return hook;
}

static void hook_dealloc(NodeHook *hook)
{
    Py_XDECREF(hook->watch);
    Py_XDECREF(hook->base);
    PyObject_Free(hook);
}

/* Put the hook on a node, and see to it that it goes with the others; the hook is taken over. */
static int hook_put(NodeHook *hook, PyObject *node)
{
    if (hook == NULL) {
        return -1;
    }
    PyObject *way = hook->moment == PASS_ON ? attribute_register_hook : attribute_register_prehook;
    PyObject *handle = PyObject_CallMethodOneArg(node, way, (PyObject *)hook);
    PyObject *handles = handle == NULL ? NULL : GET(hook->watch->passes->hooks, _handles);
    const int failed = handles == NULL || PyList_Append(handles, handle) < 0;
    Py_XDECREF(handle);
    Py_XDECREF(handles);
    Py_DECREF(hook);
    return failed ? -1 : 0;
}

static Watch *watch_new(Passes *passes, PyObject *entry, PyObject *parent, int64_t generation)
{
    Watch *watch = PyObject_New(Watch, &WatchType);
    if (watch == NULL) {
        return NULL;
    }
    watch->passes = (Passes *)Py_NewRef((PyObject *)passes);
    watch->entry = Py_NewRef(entry);
    watch->parent = Py_NewRef(parent);
    watch->generation = generation;
    watch->arguments = watch->boundaries = watch->shares = 0;
    watch->nodes_run = watch->of_all_uses = 0;
    watch->received = watch->passed_on = watch->sum = NULL;
    watch_again(watch);
    return watch;
}

static void watch_dealloc(Watch *watch)
{
    watch_again(watch);
    Py_XDECREF(watch->passes);
    Py_XDECREF(watch->entry);
    Py_XDECREF(watch->parent);
    PyObject_Free(watch);
}

static PyObject *watch_close_open(Watch *watch, PyObject *nothing)
{
    if (watch_close(watch) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef watch_methods[] = {
    {"close", (PyCFunction)watch_close_open, METH_NOARGS, "close(): write what has arrived"},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject WatchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.Watch",
    .tp_basicsize = sizeof(Watch),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "One pass of a module, between its forward and its backward.",
    .tp_dealloc = (destructor)watch_dealloc,
    .tp_methods = watch_methods,
};

static PyTypeObject NodeHookType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.NodeHook",
    .tp_basicsize = offsetof(NodeHook, positions),
    .tp_itemsize = sizeof(int64_t),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A hook on a node of the graph.",
    .tp_dealloc = (destructor)hook_dealloc,
    .tp_vectorcall_offset = offsetof(NodeHook, vectorcall),
    .tp_call = PyVectorcall_Call,
};

#endif
