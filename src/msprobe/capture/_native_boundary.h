/* The hooks that a pass of a module needs on the nodes of the graph. */
#ifndef MSPROBE_NATIVE_BOUNDARY_H
#define MSPROBE_NATIVE_BOUNDARY_H

#include "_native_search.h"

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
static int watch_pass(Pass *pass, PyObject *result, PyObject *parameters)
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
    if ((pass->node != NULL || pass->leaf != NULL || pass->postponed) && search_run(&search, node) < 0) {
        goto end;
    }
    if (search.unusual) {
        done = 0;
        goto end;
    }
    if (pass->postponed) {
        const int met = watch_met(passes, pass->name, parameters, search.met, search.met_count);
        if (met < 0) {
            goto end;
        }
        pass->postponed = !met;
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
