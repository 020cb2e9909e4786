/* From the node of a result back to the argument: the walk of gradients.py for one of each, and the hooks that the pass
 * needs on what it finds.
 */
#ifndef MSPROBE_NATIVE_BOUNDARY_H
#define MSPROBE_NATIVE_BOUNDARY_H

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
    PyObject **todo; /* owned references */
    int todo_count, todo_room;
    uintptr_t *seen; /* a table of addresses, a power of two of them; 0: free */
    int seen_count, seen_room;
    Exit *exits;
    int exit_count, exit_room;
    int unusual; /* something that is left to Python */
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
    search->seen[place] = (uintptr_t)node;
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
    search->todo[search->todo_count++] = Py_NewRef(node);
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
        if (search->leaf == NULL) {
            return 0;
        }
        PyObject *variable = GET(target, variable);
        if (variable == NULL) {
            return -1;
        }
        Py_DECREF(variable); /* the target keeps it */
        return variable == search->leaf ? add_exit(search, node, position) : 0;
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
}

static void search_end(Search *search)
{
    for (int i = 0; i < search->todo_count; i++) {
        Py_DECREF(search->todo[i]);
    }
    for (int i = 0; i < search->exit_count; i++) {
        Py_DECREF(search->exits[i].node);
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
        Py_DECREF(next);
        if (failed) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError, "next_functions is no tuple");
            }
            return -1;
        }
    }
    return 0;
}

/* What part of a whole tensor the result is: the node of that and a Base. 1: it is one; 0: it is none; -1: error. */
static int base_of(const Passes *passes, PyObject *result, PyObject **node, PyObject **base)
{
    *node = *base = NULL;
    PyObject *whole = GET(result, _base);
    if (whole == NULL || whole == Py_None) {
        Py_XDECREF(whole);
        return whole == NULL ? -1 : 0;
    }
    int found = -1;
    PyObject *layout = GET(result, layout);
    const int needs = layout == NULL ? -1 : IS_TRUE(result, requires_grad);
    if (needs > 0 && layout == passes->strided) {
        *node = GET(whole, grad_fn);
        if (*node == Py_None) {
            Py_CLEAR(*node);
            found = 0;
        } else if (*node != NULL) {
            const int64_t from = take_int(PyObject_CallMethodNoArgs(whole, attribute_storage_offset));
            const int64_t to = take_int(PyObject_CallMethodNoArgs(result, attribute_storage_offset));
            const int64_t slot = PyErr_Occurred() ? -1 : INT_OF(whole, output_nr);
            PyObject *shapes[4] = {NULL, NULL, NULL, NULL};
            if (!PyErr_Occurred() && (shapes[0] = GET(whole, shape)) != NULL &&
                (shapes[1] = PyObject_CallMethodNoArgs(whole, attribute_stride)) != NULL &&
                (shapes[2] = GET(result, shape)) != NULL &&
                (shapes[3] = PyObject_CallMethodNoArgs(result, attribute_stride)) != NULL) {
                *base = PyObject_CallFunction(passes->base, "LiOOOOL", (long long)slot, 0, shapes[0], shapes[1],
                                              shapes[2], shapes[3], (long long)(to - from));
                found = *base == NULL ? -1 : 1;
            }
            for (int i = 0; i < 4; i++) {
                Py_XDECREF(shapes[i]);
            }
        }
    } else if (needs >= 0) {
        found = 0;
    }
    Py_XDECREF(layout);
    Py_DECREF(whole);
    return found;
}

static int put_hooks(const Pass *pass, PyObject *result, PyObject *node, const Search *search, Watch *watch)
{
    const int64_t slot = INT_OF(result, output_nr);
    if ((slot < 0 && PyErr_Occurred()) || hook_put(hook_new(watch, ARRIVE, slot, NULL, 0), node) < 0) {
        return -1;
    }
    PyObject *base_node, *base;
    int failed = base_of(pass->passes, result, &base_node, &base) < 0;
    int placed = 0;
    for (int i = 0; i < search->exit_count && !failed; i++) {
        const Exit *place = &search->exits[i];
        NodeHook *hook = hook_new(watch, PASS_ON, 0, place->positions, place->count);
        if (hook != NULL && base != NULL && place->node == base_node) {
            hook->base = Py_NewRef(base);
            placed = 1;
        }
        failed = hook_put(hook, place->node) < 0;
    }
    if (!failed && base != NULL && !placed) {
        const int64_t number = sequence_of(base_node);
        NodeHook *hook = number < 0 && PyErr_Occurred()
                             ? NULL
                             : hook_new(watch, REACH_BASE, pass->node == base_node ? pass->slot : -1, NULL, 0);
        if (hook != NULL) {
            hook->base = Py_NewRef(base);
            hook->before = number < pass->oldest;
        }
        failed = hook_put(hook, base_node) < 0;
    }
    Py_XDECREF(base_node);
    Py_XDECREF(base);
    return failed ? -1 : 0;
}

static PyObject *forward_mark; /* ".forward." */

/* The backward entry of a forward entry; other parents as they are. */
static PyObject *backward_of(PyObject *parent)
{
    if (!PyUnicode_Check(parent)) {
        return Py_NewRef(parent);
    }
    PyObject *parts = PyUnicode_RPartition(parent, forward_mark);
    if (parts == NULL) {
        return NULL;
    }
    PyObject *result = PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(parts, 1)) == 0
                           ? Py_NewRef(parent)
                           : PyUnicode_FromFormat("%U.backward.%U", PyTuple_GET_ITEM(parts, 0), PyTuple_GET_ITEM(parts, 2));
    Py_DECREF(parts);
    return result;
}

/* See to it that what comes back through the pass is noticed. 1: done; 0: left to ModuleGradients.watch; -1: error. */
static int watch_pass(Pass *pass, PyObject *result)
{
    Passes *passes = pass->passes;
    if ((PyObject *)Py_TYPE(result) != passes->tensor || pass->edges != NULL) {
        return 0;
    }
    const int suspended = IS_TRUE(passes->hooks, suspended);
    PyObject *node = suspended < 0 ? NULL : GET(result, grad_fn);
    if (node == NULL || node == Py_None || suspended || node == pass->node) {
        const int left = node != NULL && node == pass->node; /* the argument is handed through */
        Py_XDECREF(node);
        return node == NULL ? -1 : left ? 0 : 1;
    }
    Search search;
    search_begin(&search, pass);
    int done = -1;
    PyObject *entry = NULL, *parent = NULL;
    Watch *watch = NULL;
    if ((pass->node != NULL || pass->leaf != NULL) && search_run(&search, node) < 0) {
        goto end;
    }
    if (search.unusual) {
        done = 0;
        goto end;
    }
    const int64_t generation = INT_OF(passes->session, generation);
    entry = generation == -1 && PyErr_Occurred()
                ? NULL
                : PyUnicode_FromFormat("%U.backward.%lld", pass->name, (long long)pass->number);
    parent = entry == NULL ? NULL : backward_of(pass->parent);
    watch = parent == NULL ? NULL : watch_new(passes, entry, parent, generation);
    if (watch == NULL) {
        goto end;
    }
    watch->arguments = pass->node != NULL || pass->leaf != NULL;
    watch->boundaries = search.exit_count;
    for (int i = 0; i < search.exit_count; i++) {
        watch->shares += search.exits[i].count;
    }
    done = put_hooks(pass, result, node, &search, watch) < 0 ? -1 : 1;
end:
    search_end(&search);
    Py_DECREF(node);
    Py_XDECREF(entry);
    Py_XDECREF(parent);
    Py_XDECREF(watch);
    return done;
}

#endif
