/* From the node of a result back to the argument: the walk of gradients.py for one of each. */
#ifndef MSPROBE_NATIVE_SEARCH_H
#define MSPROBE_NATIVE_SEARCH_H

#include "_native_parameters.h"
#include "_native_watch.h"

enum { WALK_MOST = 20000, ON_STACK_NODES = 256, MOST_EDGES = 32 };

/* A node with edges to the argument, and their positions. */
typedef struct {
    PyObject *node; /* owned */
    int count;
    int64_t positions[MOST_EDGES];
} Exit;

typedef struct {
    const Passes *passes;
    PyObject *node, *leaf; /* the argument's; NULL: none requires grad */
    int64_t slot, oldest;
    PyObject **todo; /* references that `seen` owns */
    int todo_count, todo_room;
    /* A table of a power of two of places; 0: free. The nodes are owned: in older torch (seen in 2.6) a node's Python object
     * goes when nobody holds it, and another node may get its address. */
    uintptr_t *seen;
    int seen_count, seen_room;
    Exit *exits;
    int exit_count, exit_room;
    int unusual; /* something that is left to Python */
    int wants_parameters, met_count;
    PyObject *met[2 * MOST_MET]; /* parameters and the nodes that accumulate their gradients; owned */
    PyObject *first_todo[ON_STACK_NODES];
    uintptr_t first_seen[ON_STACK_NODES];
} Search;

static void *grown(void *from, void *first, int count, int *room, size_t size)
{
    const int more = *room * 2 + 4;
    char *made = PyMem_Malloc((size_t)more * size);
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (count > 0) {
        memcpy(made, from, (size_t)count * size);
    }
    if (from != first) {
        PyMem_Free(from);
    }
    *room = more;
    return made;
}

static int seen_place(const uintptr_t *table, int room, uintptr_t address)
{
    int place = (int)((address * 0x9E3779B97F4A7C15ull) >> 40) & (room - 1);
    while (table[place] != 0 && table[place] != address) {
        place = (place + 1) & (room - 1);
    }
    return place;
}

/* 1: not seen before; 0: seen; -1: error. */
static int see(Search *search, PyObject *node)
{
    if (2 * (search->seen_count + 1) > search->seen_room) {
        const int room = search->seen_room * 4;
        uintptr_t *table = PyMem_Calloc((size_t)room, sizeof(uintptr_t));
        if (table == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (int i = 0; i < search->seen_room; i++) {
            if (search->seen[i] != 0) {
                table[seen_place(table, room, search->seen[i])] = search->seen[i];
            }
        }
        if (search->seen != search->first_seen) {
            PyMem_Free(search->seen);
        }
        search->seen = table;
        search->seen_room = room;
    }
    const int place = seen_place(search->seen, search->seen_room, (uintptr_t)node);
    if (search->seen[place] != 0) {
        return 0;
    }
    search->seen[place] = (uintptr_t)Py_NewRef(node);
    search->seen_count++;
    return 1;
}

static int search_later(Search *search, PyObject *node)
{
    const int is_new = search->seen_count >= WALK_MOST ? 0 : see(search, node);
    if (is_new <= 0) {
        return is_new;
    }
    if (search->todo_count == search->todo_room) {
        PyObject **more =
            grown(search->todo, search->first_todo, search->todo_count, &search->todo_room, sizeof(PyObject *));
        if (more == NULL) {
            return -1;
        }
        search->todo = more;
    }
    search->todo[search->todo_count++] = node;
    return 0;
}

static int add_exit(Search *search, PyObject *node, int64_t position)
{
    Exit *last = search->exit_count == 0 ? NULL : &search->exits[search->exit_count - 1];
    if (last == NULL || last->node != node) {
        if (search->exit_count == search->exit_room) {
            Exit *more = grown(search->exits, NULL, search->exit_count, &search->exit_room, sizeof(Exit));
            if (more == NULL) {
                return -1;
            }
            search->exits = more;
        }
        last = &search->exits[search->exit_count++];
        last->node = Py_NewRef(node);
        last->count = 0;
    }
    if (last->count == MOST_EDGES) {
        search->unusual = 1;
        return 0;
    }
    last->positions[last->count++] = position;
    return 0;
}

static int64_t sequence_of(PyObject *node)
{
    return take_int(PyObject_VectorcallMethod(attribute__sequence_nr, &node, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL));
}

static int look_at_edge(Search *search, PyObject *node, int64_t position, PyObject *edge)
{
    if (!PyTuple_Check(edge) || PyTuple_GET_SIZE(edge) != 2) {
        PyErr_SetString(PyExc_TypeError, "an edge is no pair");
        return -1;
    }
    PyObject *target = PyTuple_GET_ITEM(edge, 0);
    if (target == Py_None) {
        return 0;
    }
    if (target == search->node) {
        const int64_t slot = PyLong_AsLongLong(PyTuple_GET_ITEM(edge, 1));
        if (slot == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (slot == search->slot) {
            return add_exit(search, node, position);
        }
    }
    if ((PyObject *)Py_TYPE(target) == search->passes->accumulating) {
        if (search->leaf == NULL && !search->wants_parameters) {
            return 0;
        }
        PyObject *variable = GET(target, variable);
        if (variable == NULL) {
            return -1;
        }
        const int is_argument = variable == search->leaf;
        if (search->wants_parameters && search->met_count < 2 * MOST_MET) {
            search->met[search->met_count++] = variable;
            search->met[search->met_count++] = Py_NewRef(target);
        } else {
            Py_DECREF(variable);
        }
        return is_argument ? add_exit(search, node, position) : 0;
    }
    const int64_t number = sequence_of(target);
    if (number < 0 && PyErr_Occurred()) {
        return -1;
    }
    if (number >= search->oldest) {
        return search_later(search, target);
    }
    if (position == 0 && (PyObject *)Py_TYPE(node) == search->passes->slices) {
        search->unusual = 1; /* written to */
    }
    return 0;
}

static void search_begin(Search *search, const Pass *pass)
{
    search->passes = pass->passes;
    search->node = pass->node;
    search->leaf = pass->leaf;
    search->slot = pass->slot;
    search->oldest = pass->oldest;
    search->todo = search->first_todo;
    search->todo_count = 0;
    search->todo_room = ON_STACK_NODES;
    search->seen = search->first_seen;
    search->seen_count = 0;
    search->seen_room = ON_STACK_NODES;
    memset(search->first_seen, 0, sizeof(search->first_seen));
    search->exits = NULL;
    search->exit_count = search->exit_room = 0;
    search->unusual = 0;
    search->wants_parameters = pass->postponed;
    search->met_count = 0;
}

static void search_end(Search *search)
{
    for (int i = 0; i < search->seen_room && search->seen_count > 0; i++) {
        if (search->seen[i] != 0) {
            search->seen_count--;
            Py_DECREF((PyObject *)search->seen[i]);
        }
    }
    for (int i = 0; i < search->exit_count; i++) {
        Py_DECREF(search->exits[i].node);
    }
    for (int i = 0; i < search->met_count; i++) {
        Py_DECREF(search->met[i]);
    }
    if (search->todo != search->first_todo) {
        PyMem_Free(search->todo);
    }
    if (search->seen != search->first_seen) {
        PyMem_Free(search->seen);
    }
    PyMem_Free(search->exits);
}

/* Find the exits of the nodes behind `node`, that of the result. */
static int search_run(Search *search, PyObject *node)
{
    const int64_t number = sequence_of(node);
    if (number < 0 && PyErr_Occurred()) {
        return -1;
    }
    if (number >= search->oldest && search_later(search, node) < 0) {
        return -1;
    }
    while (search->todo_count > 0 && !search->unusual) {
        PyObject *next = search->todo[--search->todo_count];
        PyObject *edges = GET(next, next_functions);
        int failed = edges == NULL || !PyTuple_Check(edges);
        for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(edges); i++) {
            failed = look_at_edge(search, next, i, PyTuple_GET_ITEM(edges, i)) < 0;
        }
        Py_XDECREF(edges);
        if (failed) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError, "next_functions is no tuple");
            }
            return -1;
        }
    }
    return 0;
}

#endif
