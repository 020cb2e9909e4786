/* A walk over the nodes of a graph, which are objects of the framework and asked for their edges by name. */
#ifndef MSPROBE_NATIVE_GRAPH_H
#define MSPROBE_NATIVE_GRAPH_H

#include <Python.h>

static PyObject *name_next_functions, *name_sequence_nr, *name_variable;

static int graph_begin(void)
{
    name_next_functions = PyUnicode_InternFromString("next_functions");
    name_sequence_nr = PyUnicode_InternFromString("_sequence_nr");
    name_variable = PyUnicode_InternFromString("variable");
    return name_next_functions == NULL || name_sequence_nr == NULL || name_variable == NULL ? -1 : 0;
}

/* What does not change during a walk; borrowed from the caller's arguments. */
typedef struct {
    PyObject *by_node; /* node -> slot -> argument */
    PyObject *leaves;  /* list of (tensor, argument) */
    PyObject *oldest;
    PyObject *accumulating, *slices; /* the types of two kinds of node */
    Py_ssize_t limit;
} Walk;

/* 1: the node was made since the call began; 0: before; -1: error. */
static int is_of_the_call(const Walk *walk, PyObject *node)
{
    PyObject *number = PyObject_VectorcallMethod(name_sequence_nr, &node, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (number == NULL) {
        return -1;
    }
    const int result = PyObject_RichCompareBool(number, walk->oldest, Py_GE);
    Py_DECREF(number);
    return result;
}

/* The argument that an edge leads to, a new reference; NULL: to none, or an error. */
static PyObject *argument_at(const Walk *walk, PyObject *target, PyObject *slot)
{
    PyObject *arguments = PyDict_GetItemWithError(walk->by_node, target);
    if (arguments != NULL && !PyDict_Check(arguments)) {
        PyErr_SetString(PyExc_TypeError, "the slots of a node are no dict");
        return NULL;
    }
    if (arguments != NULL) {
        PyObject *argument = PyDict_GetItemWithError(arguments, slot);
        if (argument != NULL || PyErr_Occurred()) {
            return Py_XNewRef(argument);
        }
    }
    if (PyErr_Occurred() || (PyObject *)Py_TYPE(target) != walk->accumulating || PyList_GET_SIZE(walk->leaves) == 0) {
        return NULL;
    }
    PyObject *variable = PyObject_GetAttr(target, name_variable);
    if (variable == NULL) {
        return NULL;
    }
    PyObject *argument = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(walk->leaves) && argument == NULL; i++) {
        PyObject *leaf = PyList_GET_ITEM(walk->leaves, i);
        if (!PyTuple_Check(leaf) || PyTuple_GET_SIZE(leaf) != 2) {
            PyErr_SetString(PyExc_TypeError, "a leaf is no pair of tensor and argument");
            break;
        }
        if (PyTuple_GET_ITEM(leaf, 0) == variable) {
            argument = Py_NewRef(PyTuple_GET_ITEM(leaf, 1));
        }
    }
    Py_DECREF(variable);
    return argument;
}

/* Note that the node's gradient at this position is the argument's. */
static int add_slot(PyObject *found, PyObject *node, PyObject **slots, Py_ssize_t position, PyObject *argument)
{
    if (*slots == NULL) {
        PyObject *list = PyList_New(0);
        PyObject *place = list == NULL ? NULL : PyTuple_Pack(2, node, list);
        const int failed = place == NULL || PyList_Append(found, place) < 0;
        Py_XDECREF(place);
        Py_XDECREF(list);
        if (failed) {
            return -1;
        }
        *slots = list; /* kept by `found` */
    }
    PyObject *slot = Py_BuildValue("nO", position, argument);
    const int failed = slot == NULL || PyList_Append(*slots, slot) < 0;
    Py_XDECREF(slot);
    return failed ? -1 : 0;
}

/* Look at the edges of one node: to arguments -> found; to nodes of the call -> todo. */
static int look_at_edges(const Walk *walk, PyObject *node, PyObject *todo, PyObject *seen, PyObject *found, PyObject *written)
{
    PyObject *edges = PyObject_GetAttr(node, name_next_functions);
    if (edges == NULL || !PyTuple_Check(edges)) {
        if (edges != NULL) {
            PyErr_SetString(PyExc_TypeError, "next_functions is no tuple");
        }
        Py_XDECREF(edges);
        return -1;
    }
    PyObject *slots = NULL;
    int failed = 0;
    for (Py_ssize_t position = 0; position < PyTuple_GET_SIZE(edges) && !failed; position++) {
        PyObject *edge = PyTuple_GET_ITEM(edges, position);
        if (!PyTuple_Check(edge) || PyTuple_GET_SIZE(edge) != 2) {
            PyErr_SetString(PyExc_TypeError, "an edge is no pair");
            failed = 1;
            break;
        }
        PyObject *target = PyTuple_GET_ITEM(edge, 0);
        if (target == Py_None) {
            continue;
        }
        PyObject *argument = argument_at(walk, target, PyTuple_GET_ITEM(edge, 1));
        if (argument != NULL) {
            failed = add_slot(found, node, &slots, position, argument) < 0;
            Py_DECREF(argument);
            continue;
        }
        if (PyErr_Occurred()) {
            failed = 1;
        } else if ((PyObject *)Py_TYPE(target) != walk->accumulating) {
            const int inside = is_of_the_call(walk, target);
            if (inside < 0) {
                failed = 1;
            } else if (inside) {
                const int known = PySet_Contains(seen, target);
                failed = known < 0 || (!known && PySet_GET_SIZE(seen) < walk->limit &&
                                       (PySet_Add(seen, target) < 0 || PyList_Append(todo, target) < 0));
            } else if (position == 0 && (PyObject *)Py_TYPE(node) == walk->slices) {
                failed = PyList_Append(written, node) < 0;
            }
        }
    }
    Py_DECREF(edges);
    return failed ? -1 : 0;
}

/* walk(nodes, by_node, leaves, oldest, accumulating, slices, limit); see gradients.py for what it means. */
static PyObject *native_walk(PyObject *self, PyObject *args)
{
    PyObject *nodes;
    Walk walk;
    if (!PyArg_ParseTuple(args, "OO!O!O!OOn", &nodes, &PyDict_Type, &walk.by_node, &PyList_Type, &walk.leaves,
                          &PyLong_Type, &walk.oldest, &walk.accumulating, &walk.slices, &walk.limit)) {
        return NULL;
    }
    PyObject *todo = PySequence_List(nodes), *seen = PySet_New(NULL);
    PyObject *found = PyList_New(0), *written = PyList_New(0), *result = NULL;
    if (todo == NULL || seen == NULL || found == NULL || written == NULL) {
        goto end;
    }
    /* A result that is an argument handed through brings a node that is older than the call. */
    for (Py_ssize_t i = PyList_GET_SIZE(todo) - 1; i >= 0; i--) {
        PyObject *node = PyList_GET_ITEM(todo, i);
        const int inside = is_of_the_call(&walk, node);
        if (inside < 0 || (inside ? PySet_Add(seen, node) : PyList_SetSlice(todo, i, i + 1, NULL)) < 0) {
            goto end;
        }
    }
    while (PyList_GET_SIZE(todo) > 0) {
        const Py_ssize_t last = PyList_GET_SIZE(todo) - 1;
        PyObject *node = Py_NewRef(PyList_GET_ITEM(todo, last));
        const int failed = PyList_SetSlice(todo, last, last + 1, NULL) < 0 ||
                           look_at_edges(&walk, node, todo, seen, found, written) < 0;
        Py_DECREF(node);
        if (failed) {
            goto end;
        }
    }
    result = PyTuple_Pack(2, found, written);
end:
    Py_XDECREF(todo);
    Py_XDECREF(seen);
    Py_XDECREF(found);
    Py_XDECREF(written);
    return result;
}

#endif
