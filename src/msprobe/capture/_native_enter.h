/* Before a module runs: what ModuleRecorder.enter does. */
#ifndef MSPROBE_NATIVE_ENTER_H
#define MSPROBE_NATIVE_ENTER_H

#include "_native_boundary.h"
#include "_native_frames.h"

/* The number of this pass in the step, from 0. */
static int64_t count_pass(const Passes *passes, PyObject *name)
{
    PyObject *counters = GET(passes->session, counters);
    if (counters != NULL && !PyDict_Check(counters)) {
        PyErr_SetString(PyExc_TypeError, "the numbers of passes are no dict");
        Py_CLEAR(counters);
    }
    PyObject *known = counters == NULL ? NULL : PyDict_GetItemWithError(counters, name);
    const int64_t number = known == NULL ? 0 : PyLong_AsLongLong(known);
    const int failed = PyErr_Occurred() || set_item(counters, name, PyLong_FromLongLong(number + 1)) < 0;
    Py_XDECREF(counters);
    return failed ? -1 : number;
}

/* Where the module was called: the stack without so many of its innermost frames. */
static PyObject *stack_here(const Passes *passes, int skip_frames)
{
    PyObject *skipped = PyLong_FromLong(skip_frames), *key = skipped == NULL ? NULL : native_frame_key(NULL, skipped);
    Py_XDECREF(skipped);
    PyObject *stack = key == NULL ? NULL : PyDict_GetItemWithError(passes->stacks_known, key);
    if (stack != NULL) {
        Py_INCREF(stack);
    } else if (key != NULL && !PyErr_Occurred()) {
        PyObject *skip = PyLong_FromLong(skip_frames + 1);
        stack = skip == NULL ? NULL : PyObject_CallMethodObjArgs(passes->stacks, attribute__learn, key, skip, NULL);
        Py_XDECREF(skip);
    }
    Py_XDECREF(key);
    return stack;
}

/* The identity of the exception that is being handled. */
static uintptr_t handled_now(void)
{
#if PY_VERSION_HEX >= 0x030b0000
    PyObject *value = PyErr_GetHandledException();
    Py_XDECREF(value);
    return value == NULL ? (uintptr_t)Py_None : (uintptr_t)value;
#else
    PyObject *type, *value, *trace;
    PyErr_GetExcInfo(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return value == NULL ? (uintptr_t)Py_None : (uintptr_t)value;
#endif
}

static PyObject *running_modules(const Passes *passes)
{
    PyObject *thread = GET(passes->session, thread);
    PyObject *modules = thread == NULL ? NULL : GET(thread, modules);
    Py_XDECREF(thread);
    if (modules != NULL && !PyList_Check(modules)) {
        PyErr_SetString(PyExc_TypeError, "the modules that run are no list");
        Py_CLEAR(modules);
    }
    return modules;
}

/* Whether what happens now is recorded; -1: error. */
static int is_recording(const Passes *passes)
{
    const int recording = IS_TRUE(passes->session, recording);
    if (recording <= 0) {
        return recording;
    }
    PyObject *thread = GET(passes->session, thread);
    const int muted = thread == NULL ? -1 : IS_TRUE(thread, muted);
    Py_XDECREF(thread);
    if (muted != 0) {
        return muted < 0 ? -1 : 0;
    }
    PyObject *tracing = PyObject_CallNoArgs(passes->tracing);
    Py_XDECREF(tracing);
    return tracing == NULL ? -1 : tracing == Py_None;
}

static int watch_postponed(Pass *pass, Silence *silence);

/* A pass that was left by an interrupt or the like, or that raised: the rest of the recorder writes it. */
static int leave_otherwise(const Passes *passes, Silence *silence, PyObject *pass, PyObject *result, PyObject *problem)
{
    PyObject *done = silence_begin(silence) < 0 || watch_postponed((Pass *)pass, silence) < 0
                         ? NULL
                         : PyObject_CallFunctionObjArgs(passes->leave, pass, result, problem, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int pop_last(PyObject *list)
{
    const Py_ssize_t count = PyList_GET_SIZE(list);
    return PyList_SetSlice(list, count - 1, count, NULL);
}

static int close_interrupted(const Passes *passes, Silence *silence, PyObject *running, int64_t depth)
{
    while (PyList_GET_SIZE(running) > 0) {
        PyObject *last = PyList_GET_ITEM(running, PyList_GET_SIZE(running) - 1);
        if (Py_TYPE(last) != &PassType || ((Pass *)last)->depth < depth) {
            return 0;
        }
        Py_INCREF(last);
        const int failed =
            pop_last(running) < 0 || leave_otherwise(passes, silence, last, Py_None, Py_Ellipsis) < 0;
        Py_DECREF(last);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

/* Note where the one plain argument stands in the graph. */
static int note_edge(Pass *pass, PyObject *tensor)
{
    const int needs = IS_TRUE(tensor, requires_grad);
    if (needs <= 0) {
        return needs;
    }
    PyObject *node = GET(tensor, grad_fn);
    if (node == NULL) {
        return -1;
    }
    if (node == Py_None) {
        Py_DECREF(node);
        pass->leaf = Py_NewRef(tensor);
        return 0;
    }
    pass->node = node;
    pass->slot = INT_OF(tensor, output_nr);
    return pass->slot < 0 && PyErr_Occurred() ? -1 : 0;
}

static int note_arguments(Pass *pass, Silence *silence, PyObject *args, PyObject *kwargs)
{
    Passes *passes = pass->passes;
    PyObject *only = PyTuple_GET_SIZE(args) == 1 && PyDict_GET_SIZE(kwargs) == 0 ? PyTuple_GET_ITEM(args, 0) : NULL;
    const int simple = only != NULL && is_plain(passes, only);
    PyObject *inputs, *words;
    if (simple) {
        PyObject *info = describe(passes, only, (PyObject *)Py_TYPE(only) == passes->parameter);
        inputs = list_of(info);
        Py_XDECREF(info);
        words = inputs == NULL ? NULL : PyDict_New();
    } else {
        PyObject *both = silence_begin(silence) < 0
                             ? NULL
                             : PyObject_CallFunctionObjArgs(passes->inputs_of, pass->entry, args, kwargs, NULL);
        inputs = words = NULL;
        if (both != NULL && PyTuple_Check(both) && PyTuple_GET_SIZE(both) == 2) {
            inputs = Py_NewRef(PyTuple_GET_ITEM(both, 0));
            words = Py_NewRef(PyTuple_GET_ITEM(both, 1));
        } else if (both != NULL) {
            PyErr_SetString(PyExc_TypeError, "the arguments of a pass are no pair");
        }
        Py_XDECREF(both);
    }
    if (inputs == NULL || words == NULL) {
        Py_XDECREF(inputs);
        Py_XDECREF(words);
        return -1;
    }
    Py_SETREF(pass->inputs, inputs);
    Py_SETREF(pass->kwinputs, words);
    const int watched = take_truth(PyObject_CallNoArgs(passes->grad_enabled));
    pass->watched = watched > 0;
    if (watched <= 0) {
        return watched;
    }
    if (simple && (PyObject *)Py_TYPE(only) == passes->tensor) {
        if (note_edge(pass, only) < 0) {
            return -1;
        }
    } else {
        pass->edges = silence_begin(silence) < 0
                          ? NULL
                          : PyObject_CallFunctionObjArgs(passes->edges_of, args, kwargs, NULL);
        if (pass->edges == NULL) {
            return -1;
        }
        if (PyList_Check(pass->edges) && PyList_GET_SIZE(pass->edges) == 0) {
            Py_CLEAR(pass->edges); /* nothing that requires grad goes in */
        }
    }
    pass->oldest = take_int(PyObject_CallNoArgs(passes->sequence_number));
    return pass->oldest < 0 && PyErr_Occurred() ? -1 : 0;
}

/* Watch the parameters that a module has now, of whatever kind it is. */
static int watch_unusual(const Pass *pass, Silence *silence)
{
    PyObject *done = silence_begin(silence) < 0 ? NULL
                                                : PyObject_CallFunctionObjArgs(pass->passes->watch_parameters,
                                                                               pass->name, pass->module, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Watch the parameters of a module before it runs. Those of a module with none inside, which are used where the graph of
 * the pass shows it, are met there. */
static int watch_or_postpone(Pass *pass, Silence *silence)
{
    PyObject *parameters = GET(pass->module, _parameters);
    PyObject *inside = parameters == NULL ? NULL : GET(pass->module, _modules);
    int failed = inside == NULL ? -1 : 0;
    if (inside != NULL && PyDict_CheckExact(inside) && PyDict_CheckExact(parameters)) {
        if (PyDict_GET_SIZE(parameters) > 0) {
            /* The module may put others in their place while it runs. */
            pass->parameters = PyDict_Copy(parameters);
            pass->postponed = PyDict_GET_SIZE(inside) == 0;
            failed = pass->parameters == NULL ? -1
                     : pass->postponed        ? 0
                                              : watch_parameters(pass->passes, silence, pass->name, pass->parameters);
        }
    } else if (inside != NULL) { /* a module of a kind of its own */
        pass->parameters = PyObject_CallOneArg((PyObject *)&PyDict_Type, parameters);
        failed = pass->parameters == NULL ? -1 : watch_unusual(pass, silence);
    }
    Py_XDECREF(parameters);
    Py_XDECREF(inside);
    return failed;
}

/* Watch what was postponed, where the graph of the pass does not show it. */
static int watch_postponed(Pass *pass, Silence *silence)
{
    if (!pass->postponed) {
        return 0;
    }
    pass->postponed = 0;
    return watch_parameters(pass->passes, silence, pass->name, pass->parameters);
}

/* Whether these are still the parameters that the module began with. */
static int are_still(const Pass *pass, PyObject *parameters)
{
    PyObject *key, *then, *now;
    Py_ssize_t place = 0, other_place = 0;
    if (pass->parameters == NULL || PyDict_GET_SIZE(pass->parameters) != PyDict_GET_SIZE(parameters)) {
        return pass->parameters == NULL && PyDict_GET_SIZE(parameters) == 0;
    }
    while (PyDict_Next(pass->parameters, &place, &key, &then) && PyDict_Next(parameters, &other_place, &key, &now)) {
        if (then != now) {
            return 0;
        }
    }
    return 1;
}

static int enter(Passes *passes, Silence *silence, int skip_frames, PyObject *name, PyObject *module, PyObject *args,
                 PyObject *kwargs)
{
    if (silence_modes(silence) < 0) {
        return -1;
    }
    const int64_t number = count_pass(passes, name);
    PyObject *entry = number < 0 ? NULL : PyUnicode_FromFormat("%U.forward.%lld", name, (long long)number);
    PyObject *stack = entry == NULL ? NULL : stack_here(passes, skip_frames);
    PyObject *running = stack == NULL ? NULL : running_modules(passes), *parent = NULL;
    const int64_t depth = running == NULL ? -1 : INT_OF(stack, depth);
    const int64_t order = depth < 0 ? -1 : next_order(passes);
    Pass *pass = NULL;
    int failed = -1;
    if (order < 0 || close_interrupted(passes, silence, running, depth) < 0) {
        goto done;
    }
    if (PyList_GET_SIZE(running) > 0) {
        PyObject *last = Py_NewRef(PyList_GET_ITEM(running, PyList_GET_SIZE(running) - 1));
        parent = GET(last, entry);
        Py_DECREF(last);
    } else {
        parent = PyObject_CallMethodNoArgs(passes->session, attribute_parent);
    }
    pass = parent == NULL ? NULL : pass_new(passes, name, entry, number, order, stack, parent, module);
    if (pass == NULL || PyList_Append(running, (PyObject *)pass) < 0) {
        goto done;
    }
    pass->depth = depth;
    pass->recorded = 1;
    pass->handled = handled_now();
    if (note_arguments(pass, silence, args, kwargs) < 0) {
        goto done;
    }
    failed = 0;
    if (pass->watched) {
        failed = watch_or_postpone(pass, silence) < 0;
    }
done:
    Py_XDECREF(entry);
    Py_XDECREF(stack);
    Py_XDECREF(running);
    Py_XDECREF(parent);
    Py_XDECREF(pass);
    return failed ? -1 : 0;
}

static int passes_begin(Passes *passes, int skip_frames, PyObject *name, PyObject *module, PyObject *args,
                        PyObject *kwargs)
{
    const int recording = is_recording(passes);
    if (recording <= 0) {
        return recording;
    }
    Silence silence = {passes, NULL};
    const int failed = enter(passes, &silence, skip_frames, name, module, args, kwargs);
    silence_end(&silence);
    return failed;
}

#endif
