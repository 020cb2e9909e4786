/* Gradients of parameters on their way to `.grad`: what parameter_gradients.py does, for parameters of the usual class. */
#ifndef MSPROBE_NATIVE_PARAMETERS_H
#define MSPROBE_NATIVE_PARAMETERS_H

#include "_native_passes.h"

/* What stands on the node of one parameter. Python adds to it how it is put there and taken away. */
typedef struct {
    PyObject_HEAD
    Passes *passes;
    PyObject *node;   /* the one that accumulates the parameter's gradient */
    PyObject *owners; /* list of (entry, key): where the gradient is shown */
} ParameterHook;

static PyTypeObject ParameterHookType;

enum { MOST_MET = 16 }; /* parameters of one module */

/* ---- a gradient arrives ---- */

/* The gradients of one of the passes of an entry, a new reference; made where it is missing. */
static PyObject *pass_of_entry(const Passes *passes, PyObject *entry, int64_t number)
{
    PyObject *list = Py_XNewRef(PyDict_GetItemWithError(passes->earlier, entry)), *pass = NULL;
    if (list == NULL) {
        list = PyErr_Occurred() ? NULL : PyList_New(0);
        if (list == NULL || PyDict_SetItem(passes->earlier, entry, list) < 0) {
            goto done;
        }
    }
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "the passes of an entry are no list");
        goto done;
    }
    while (PyList_GET_SIZE(list) <= number) {
        PyObject *made = PyDict_New();
        const int failed = made == NULL || PyList_Append(list, made) < 0;
        Py_XDECREF(made);
        if (failed) {
            goto done;
        }
    }
    pass = Py_NewRef(PyList_GET_ITEM(list, number));
done:
    Py_XDECREF(list);
    return pass;
}

/* Whether a gradient is still missing. */
static int is_missing_one(const Passes *passes, PyObject *tree)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(tree, &position, &key, &value)) {
        if (value == passes->nothing) {
            return 1;
        }
    }
    return 0;
}

static int write_parameters(const Passes *passes, PyObject *entry, PyObject *tree)
{
    if (drop_item(passes->waiting, entry) < 0) {
        return -1;
    }
    PyObject *copy = PyDict_Copy(tree);
    const int failed = copy == NULL || put_record(passes->session, entry, copy, NULL, NULL) < 0;
    Py_XDECREF(copy);
    return failed ? -1 : 0;
}

static int arrive_at(const Passes *passes, PyObject *owner, PyObject *gradient)
{
    PyObject *entry = PyTuple_GET_ITEM(owner, 0), *key = PyTuple_GET_ITEM(owner, 1); /* the caller keeps the owner */
    PyObject *tree = Py_XNewRef(PyDict_GetItemWithError(passes->trees, entry));
    if (tree == NULL) {
        tree = PyErr_Occurred() ? NULL : PyDict_New();
        if (tree == NULL || PyDict_SetItem(passes->trees, entry, tree) < 0) {
            Py_XDECREF(tree);
            return -1;
        }
    }
    int failed = -1;
    PyObject *known = PyDict_GetItemWithError(passes->passes, owner);
    const int64_t number = known == NULL ? 0 : PyLong_AsLongLong(known);
    PyObject *described = NULL, *info = NULL, *pass = NULL;
    if (PyErr_Occurred() || set_item(passes->passes, owner, PyLong_FromLongLong(number + 1)) < 0) {
        goto done;
    }
    info = describe(passes, gradient, 1);
    described = list_of(info);
    pass = described == NULL ? NULL : pass_of_entry(passes, entry, number);
    if (pass == NULL || PyDict_SetItem(pass, key, described) < 0 ||
        (number > 0 && PyDict_SetItem(passes->several, entry, Py_None) < 0) ||
        PyDict_SetItem(tree, key, described) < 0) {
        goto done;
    }
    failed = is_missing_one(passes, tree) ? PyDict_SetItem(passes->waiting, entry, Py_None)
                                          : write_parameters(passes, entry, tree);
done:
    Py_XDECREF(info);
    Py_XDECREF(described);
    Py_XDECREF(pass);
    Py_DECREF(tree);
    return failed;
}

static int arrive_everywhere(Passes *passes, PyObject *owners, PyObject *gradient)
{
    Silence silence = {passes, NULL};
    int failed = silence_modes(&silence);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(owners) && !failed; i++) {
        PyObject *owner = Py_NewRef(PyList_GET_ITEM(owners, i));
        if (!PyTuple_Check(owner) || PyTuple_GET_SIZE(owner) != 2) {
            PyErr_SetString(PyExc_TypeError, "the owner of a parameter is no pair of entry and key");
            failed = -1;
        } else if (arrive_at(passes, owner, gradient) < 0) {
            failed = report_fault(passes, PyTuple_GET_ITEM(owner, 0)) < 0;
        }
        Py_DECREF(owner);
    }
    silence_end(&silence);
    return failed ? -1 : 0;
}

static PyObject *parameter_hook_call(ParameterHook *hook, PyObject *args, PyObject *kwargs)
{
    if (hook->passes == NULL || hook->owners == NULL) { /* the garbage collector took it apart */
        Py_RETURN_NONE;
    }
    /* What runs may take the hook off its node. */
    Passes *passes = (Passes *)Py_NewRef((PyObject *)hook->passes);
    PyObject *owners = Py_NewRef(hook->owners);
    PyObject *gradients = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : NULL;
    int failed = -1;
    if (gradients == NULL || !PyTuple_Check(gradients) || PyTuple_GET_SIZE(gradients) < 1) {
        PyErr_SetString(PyExc_TypeError, "the hook of a parameter takes a tuple of gradients");
    } else {
        PyObject *gradient = PyTuple_GET_ITEM(gradients, 0);
        const int recording = gradient == Py_None ? 0 : IS_TRUE(passes->session, recording);
        failed = recording > 0 ? arrive_everywhere(passes, owners, gradient) : recording;
    }
    PyObject *answer = hook_answer(passes, attribute_parameters, failed);
    Py_DECREF(passes);
    Py_DECREF(owners);
    return answer;
}

/* The module has run: its entry has a place now, and says so if no gradient arrives. */
static int place_parameters(const Passes *passes, Silence *silence, PyObject *name, PyObject *parameters)
{
    PyObject *entry = PyUnicode_FromFormat("%U.parameters_grad", name), *tree = NULL;
    const int known = entry == NULL ? -1 : PyDict_Contains(passes->trees, entry);
    int failed = known < 0;
    if (known != 0) {
        goto done;
    }
    tree = PyDict_New();
    PyObject *key, *parameter, *other_key, *other;
    Py_ssize_t position = 0;
    failed = tree == NULL;
    while (!failed && PyDict_Next(parameters, &position, &key, &parameter)) {
        if (parameter == Py_None) {
            continue;
        }
        Py_INCREF(key);
        Py_INCREF(parameter);
        const int asked = is_plain(passes, parameter) || silence_begin(silence) == 0;
        const int needs = asked ? IS_TRUE(parameter, requires_grad) : -1;
        int again = 0; /* one that has two names in its module counts under the first */
        for (Py_ssize_t at = 0; needs > 0 && PyDict_Next(parameters, &at, &other_key, &other) && other_key != key;) {
            again |= other == parameter;
        }
        failed = needs < 0 || (needs > 0 && !again && PyDict_SetItem(tree, key, passes->nothing) < 0);
        Py_DECREF(key);
        Py_DECREF(parameter);
    }
    if (failed || PyDict_GET_SIZE(tree) == 0) {
        goto done;
    }
    const int reserved = PyDict_SetItem(passes->trees, entry, tree) < 0 ? -1 : reserve_record(passes->session, entry);
    failed = reserved < 0 || (reserved ? PyDict_SetItem(passes->waiting, entry, Py_None)
                                       : write_parameters(passes, entry, tree)) < 0;
done:
    Py_XDECREF(entry);
    Py_XDECREF(tree);
    return failed ? -1 : 0;
}

/* ---- before the module runs ---- */

/* The node that accumulates the gradient of a usual parameter, asked through a view that is dropped at once; None if it
 * has none. */
static PyObject *accumulating_node(PyObject *parameter)
{
    PyObject *view = PyObject_CallMethodOneArg(parameter, attribute_view_as, parameter);
    PyObject *of_view = view == NULL ? NULL : GET(view, grad_fn);
    PyObject *node = NULL;
    Py_XDECREF(view);
    if (of_view == NULL || of_view == Py_None) {
        return of_view;
    }
    PyObject *edges = GET(of_view, next_functions);
    if (edges != NULL && PyTuple_Check(edges) && PyTuple_GET_SIZE(edges) > 0 &&
        PyTuple_Check(PyTuple_GET_ITEM(edges, 0)) && PyTuple_GET_SIZE(PyTuple_GET_ITEM(edges, 0)) == 2) {
        node = Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(edges, 0), 0));
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "a view has no edge");
    }
    Py_XDECREF(edges);
    Py_DECREF(of_view);
    return node;
}

/* What sees the gradient of a parameter from now on; NULL without an error: nothing does. `known_node`: the one that
 * accumulates the gradient, or NULL. */
static PyObject *hook_of(const Passes *passes, PyObject *parameter, PyObject *known_node)
{
    PyObject *identity = PyLong_FromVoidPtr(parameter);
    PyObject *hook = identity == NULL ? NULL : PyDict_GetItemWithError(passes->parameter_hooks, identity);
    Py_XINCREF(hook);
    Py_XDECREF(identity);
    PyObject *node = PyErr_Occurred()       ? NULL
                     : known_node != NULL ? Py_NewRef(known_node)
                                          : accumulating_node(parameter);
    if (node == NULL) {
        Py_XDECREF(hook);
        return NULL;
    }
    if (hook != NULL && !PyObject_TypeCheck(hook, &ParameterHookType)) {
        PyErr_SetString(PyExc_TypeError, "the hook of a parameter is of another kind");
        Py_DECREF(node);
        Py_DECREF(hook);
        return NULL;
    }
    if (hook == NULL || ((ParameterHook *)hook)->node != node) {
        PyObject *made = PyObject_CallFunctionObjArgs(passes->hook_on, parameter, node, NULL);
        if (made == NULL) {
            Py_CLEAR(hook);
        } else if (made != Py_None) {
            Py_XSETREF(hook, made);
        } else {
            Py_DECREF(made);
        }
    }
    Py_DECREF(node);
    if (hook != NULL && !PyObject_TypeCheck(hook, &ParameterHookType)) {
        PyErr_SetString(PyExc_TypeError, "the hook of a parameter is of another kind");
        Py_CLEAR(hook);
    }
    return hook;
}

/* See the gradient of one parameter, under this name. */
static int watch_parameter(const Passes *passes, PyObject *entry, PyObject *key, PyObject *parameter, PyObject *known_node)
{
    PyObject *hook = hook_of(passes, parameter, known_node);
    if (hook == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int failed = -1;
    PyObject *owners = ((ParameterHook *)hook)->owners, *owner = NULL;
    const int attached = PyDict_Contains(passes->attached, hook);
    if (attached < 0 || (!attached && (PyDict_SetItem(passes->attached, hook, Py_None) < 0 ||
                                       PyList_SetSlice(owners, 0, PyList_GET_SIZE(owners), NULL) < 0 ||
                                       CALL(hook, attach) < 0))) {
        goto done;
    }
    owner = PyTuple_Pack(2, entry, key);
    const int known = owner == NULL ? -1 : PySequence_Contains(owners, owner);
    failed = known < 0 || (!known && PyList_Append(owners, owner) < 0);
done:
    Py_XDECREF(owner);
    Py_DECREF(hook);
    return failed ? -1 : 0;
}

/* Whether a usual parameter may be asked for its node at once: nobody watches, and the view gets a node. */
static int may_be_asked(const Passes *passes)
{
    PyObject *modes = PyObject_CallNoArgs(passes->dispatch_modes);
    const int64_t count = take_int(modes);
    return count == -1 && PyErr_Occurred() ? -1 : count == 0;
}

static int watch_parameters(const Passes *passes, Silence *silence, PyObject *name, PyObject *parameters)
{
    const int suspended = IS_TRUE(passes->hooks, suspended);
    const int quick = suspended != 0 ? suspended : may_be_asked(passes);
    PyObject *entry = suspended != 0 || quick < 0 ? NULL : PyUnicode_FromFormat("%U.parameters_grad", name);
    if (entry == NULL) {
        return suspended > 0 ? 0 : -1;
    }
    PyObject *key, *parameter;
    Py_ssize_t position = 0;
    int failed = 0;
    while (!failed && PyDict_Next(parameters, &position, &key, &parameter)) {
        if (parameter == Py_None) {
            continue;
        }
        Py_INCREF(key);
        Py_INCREF(parameter);
        if (!quick || (PyObject *)Py_TYPE(parameter) != passes->parameter) {
            PyObject *done = silence_begin(silence) < 0 ? NULL
                                                        : PyObject_CallFunctionObjArgs(passes->watch_parameter, entry,
                                                                                       key, parameter, NULL);
            failed = done == NULL;
            Py_XDECREF(done);
        } else {
            const int needs = IS_TRUE(parameter, requires_grad);
            failed = needs < 0;
            if (needs > 0) {
                PyObject *node = GET(parameter, grad_fn);
                failed = node == NULL || (node == Py_None && watch_parameter(passes, entry, key, parameter, NULL) < 0);
                Py_XDECREF(node);
            }
        }
        Py_DECREF(key);
        Py_DECREF(parameter);
    }
    Py_DECREF(entry);
    return failed ? -1 : 0;
}

/* The same for a module of which the nodes of some parameters were met. 1: done; 0: not of all; -1: error. */
static int watch_met(const Passes *passes, PyObject *name, PyObject *parameters, PyObject *const *nodes, int count)
{
    PyObject *key, *parameter, *met[MOST_MET];
    Py_ssize_t position = 0;
    int found = 0;
    /* All or none: who is not met may have to be asked with care. */
    while (PyDict_Next(parameters, &position, &key, &parameter)) {
        if (parameter == Py_None) {
            continue;
        }
        if ((PyObject *)Py_TYPE(parameter) != passes->parameter || found == MOST_MET) {
            return 0;
        }
        met[found] = NULL;
        for (int i = 0; i < count && met[found] == NULL; i += 2) {
            met[found] = nodes[i] == parameter ? nodes[i + 1] : NULL;
        }
        if (met[found++] == NULL) {
            return 0;
        }
    }
    const int suspended = IS_TRUE(passes->hooks, suspended);
    PyObject *entry = suspended != 0 ? NULL : PyUnicode_FromFormat("%U.parameters_grad", name);
    if (entry == NULL) {
        return suspended > 0 ? 1 : -1;
    }
    int failed = 0, place = 0;
    position = 0;
    /* Others than were counted: another thread gives the module parameters. The next pass sees them. */
    while (!failed && place < found && PyDict_Next(parameters, &position, &key, &parameter)) {
        if (parameter != Py_None) {
            Py_INCREF(key);
            Py_INCREF(parameter);
            failed = watch_parameter(passes, entry, key, parameter, met[place++]) < 0;
            Py_DECREF(key);
            Py_DECREF(parameter);
        }
    }
    Py_DECREF(entry);
    return failed ? -1 : 1;
}

/* ---- the type ---- */

static PyObject *parameter_hook_new(PyTypeObject *class, PyObject *args, PyObject *kwargs)
{
    Passes *passes;
    PyObject *node;
    if (!PyArg_ParseTuple(args, "O!O", &PassesType, &passes, &node)) {
        return NULL;
    }
    ParameterHook *hook = (ParameterHook *)class->tp_alloc(class, 0);
    if (hook != NULL) {
        hook->passes = (Passes *)Py_NewRef((PyObject *)passes);
        hook->node = Py_NewRef(node);
        hook->owners = PyList_New(0);
        if (hook->owners == NULL) {
            Py_CLEAR(hook);
        }
    }
    return (PyObject *)hook;
}

static int parameter_hook_traverse(ParameterHook *hook, visitproc visit, void *arg)
{
    Py_VISIT(hook->passes);
    Py_VISIT(hook->node);
    Py_VISIT(hook->owners);
    return 0;
}

static int parameter_hook_clear(ParameterHook *hook)
{
    Py_CLEAR(hook->passes);
    Py_CLEAR(hook->node);
    Py_CLEAR(hook->owners);
    return 0;
}

static void parameter_hook_dealloc(ParameterHook *hook)
{
    PyObject_GC_UnTrack(hook);
    parameter_hook_clear(hook);
    Py_TYPE(hook)->tp_free((PyObject *)hook);
}

static PyMemberDef parameter_hook_members[] = {
    {"node", T_OBJECT_EX, offsetof(ParameterHook, node), READONLY, NULL},
    {"owners", T_OBJECT_EX, offsetof(ParameterHook, owners), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject ParameterHookType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.ParameterHook",
    .tp_basicsize = sizeof(ParameterHook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "Sees the gradients that arrive at the node of a parameter.",
    .tp_new = parameter_hook_new,
    .tp_dealloc = (destructor)parameter_hook_dealloc,
    .tp_traverse = (traverseproc)parameter_hook_traverse,
    .tp_clear = (inquiry)parameter_hook_clear,
    .tp_call = (ternaryfunc)parameter_hook_call,
    .tp_members = parameter_hook_members,
};

#endif
