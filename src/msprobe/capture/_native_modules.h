/* After a module has run, or raised: what ModuleRecorder.leave does. */
#ifndef MSPROBE_NATIVE_MODULES_H
#define MSPROBE_NATIVE_MODULES_H

#include "_native_enter.h"


static PyObject *describe_parameters(const Passes *passes, Silence *silence, PyObject *parameters)
{
    PyObject *tree = PyDict_New(), *key, *parameter;
    Py_ssize_t position = 0;
    while (tree != NULL && PyDict_Next(parameters, &position, &key, &parameter)) {
        if (parameter == Py_None) {
            continue;
        }
        Py_INCREF(key);
        Py_INCREF(parameter);
        const int failed = (!is_plain(passes, parameter) && silence_begin(silence) < 0) ||
                           set_item(tree, key, describe(passes, parameter, 1)) < 0;
        Py_DECREF(key);
        Py_DECREF(parameter);
        if (failed) {
            Py_CLEAR(tree);
        }
    }
    return tree;
}

static PyObject *pass_outputs(const Pass *pass, Silence *silence, PyObject *result)
{
    if (!is_plain(pass->passes, result)) {
        return silence_begin(silence) < 0
                   ? NULL
                   : PyObject_CallFunctionObjArgs(pass->passes->outputs_of, pass->entry, result, NULL);
    }
    PyObject *info = describe(pass->passes, result, 1), *list = list_of(info);
    Py_XDECREF(info);
    return list;
}

static PyObject *pass_tree(const Pass *pass, Silence *silence, PyObject *result, PyObject *parameters)
{
    PyObject *tree = PyDict_New(), *source = NULL;
    if (tree == NULL || PyDict_SetItem(tree, attribute_input_args, pass->inputs) < 0 ||
        PyDict_SetItem(tree, attribute_input_kwargs, pass->kwinputs) < 0 ||
        set_item(tree, attribute_output, pass_outputs(pass, silence, result)) < 0 ||
        set_item(tree, attribute_parameters, describe_parameters(pass->passes, silence, parameters)) < 0 ||
        set_item(tree, attribute_is_recompute, GET(pass->stack, recompute)) < 0) {
        goto failed;
    }
    const int training = IS_TRUE(pass->module, training);
    if (training < 0 || (!training && PyDict_SetItem(tree, attribute_training, Py_False) < 0)) {
        goto failed;
    }
    source = GET(pass->stack, source);
    const int has_source = source == NULL ? -1 : PyObject_IsTrue(source);
    if (has_source < 0 || add_order(tree, pass->order, attribute_source, has_source ? source : NULL) < 0) {
        goto failed;
    }
    Py_DECREF(source);
    return tree;
failed:
    Py_XDECREF(source);
    Py_XDECREF(tree);
    return NULL;
}

/* The pass has returned `result`. */
static int finish(Pass *pass, Silence *silence, PyObject *result)
{
    Passes *passes = pass->passes;
    PyObject *parameters = GET(pass->module, _parameters), *tree = NULL;
    int failed = -1;
    if (parameters == NULL) {
        return -1;
    }
    if (!PyDict_CheckExact(parameters)) { /* a module of a kind of its own */
        PyObject *no_problem = PyDict_New();
        failed = no_problem == NULL ? -1 : leave_otherwise(passes, silence, (PyObject *)pass, result, no_problem);
        Py_XDECREF(no_problem);
        goto done;
    }
    tree = pass_tree(pass, silence, result, parameters);
    if (tree == NULL || put_record(passes->session, pass->entry, tree, pass->stack, pass->parent) < 0) {
        goto done;
    }
    if (pass->number == 0 && PyDict_GET_SIZE(parameters) > 0 &&
        place_parameters(passes, silence, pass->name, parameters) < 0) {
        goto done;
    }
    failed = 0;
    if (pass->watched) {
        if (!are_still(pass, parameters) &&
            (watch_postponed(pass, silence) < 0 || watch_parameters(passes, silence, pass->name, parameters) < 0)) {
            failed = -1;
            goto done;
        }
        int watched = watch_pass(pass, result, parameters);
        watched = watched < 0 || watch_postponed(pass, silence) < 0 ? -1 : watched;
        failed = watched < 0;
        if (watched == 0) {
            PyObject *done = silence_begin(silence) < 0
                                 ? NULL
                                 : PyObject_CallFunctionObjArgs(passes->watch, pass, result, NULL);
            failed = done == NULL;
            Py_XDECREF(done);
        }
    }
done:
    Py_XDECREF(tree);
    Py_XDECREF(parameters);
    return failed ? -1 : 0;
}

static int finish_or_problem(Pass *pass, Silence *silence, PyObject *result)
{
    if (result != Py_None) {
        return finish(pass, silence, result);
    }
    PyObject *handled = PyLong_FromSize_t(pass->handled);
    PyObject *problem = handled == NULL ? NULL : PyObject_CallFunctionObjArgs(pass->passes->problem_of, handled, NULL);
    const int is_one = problem == NULL ? -1 : PyObject_IsTrue(problem);
    int failed = is_one;
    if (is_one >= 0) {
        failed = is_one ? leave_otherwise(pass->passes, silence, (PyObject *)pass, result, problem)
                        : finish(pass, silence, result);
    }
    Py_XDECREF(handled);
    Py_XDECREF(problem);
    return failed;
}

/* Whether the beginning of a pass of this module was recorded. */
static int is_running(PyObject *running, PyObject *module)
{
    for (Py_ssize_t i = PyList_GET_SIZE(running) - 1; i >= 0; i--) {
        PyObject *one = PyList_GET_ITEM(running, i);
        if (Py_TYPE(one) == &PassType && ((Pass *)one)->module == module) {
            return 1;
        }
    }
    return 0;
}

static int leave(Passes *passes, Silence *silence, PyObject *running, PyObject *module, PyObject *result)
{
    if (silence_modes(silence) < 0) {
        return -1;
    }
    for (int last = 0; !last && PyList_GET_SIZE(running) > 0;) {
        PyObject *pass = Py_NewRef(PyList_GET_ITEM(running, PyList_GET_SIZE(running) - 1));
        int failed = pop_last(running) < 0;
        if (!failed && Py_TYPE(pass) == &PassType) {
            last = ((Pass *)pass)->module == module;
            failed = (last ? finish_or_problem((Pass *)pass, silence, result)
                           : leave_otherwise(passes, silence, pass, Py_None, Py_Ellipsis)) < 0;
        }
        Py_DECREF(pass);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

static int passes_end(Passes *passes, PyObject *module, PyObject *result)
{
    PyObject *running = running_modules(passes);
    if (running == NULL) {
        return -1;
    }
    int failed = 0;
    if (is_running(running, module)) {
        Silence silence = {passes, NULL};
        failed = leave(passes, &silence, running, module, result);
        silence_end(&silence);
    }
    Py_DECREF(running);
    return failed;
}

#endif
