/* The hooks on modules, and `Passes`, which Python makes one of for each recorder. */
#ifndef MSPROBE_NATIVE_HOOKS_H
#define MSPROBE_NATIVE_HOOKS_H

#include "_native_calls.h"
#include "_native_modules.h"

/* ---- Passes ---- */

static PyObject *passes_new(PyTypeObject *class, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) != 0 || kwargs == NULL) {
        PyErr_SetString(PyExc_TypeError, "Passes() takes what it works with by name");
        return NULL;
    }
    Passes *passes = (Passes *)class->tp_alloc(class, 0);
    if (passes == NULL) {
        return NULL;
    }
    Py_ssize_t found = 0;
#define TAKE_PARTNER(partner)                                                                                          \
    passes->partner = Py_XNewRef(PyDict_GetItemString(kwargs, #partner));                                              \
    found += passes->partner != NULL;
    PARTNERS(TAKE_PARTNER)
#undef TAKE_PARTNER
    Py_ssize_t expected = 0;
#define COUNT_PARTNER(partner) expected++;
    PARTNERS(COUNT_PARTNER)
#undef COUNT_PARTNER
    if (found != expected || PyDict_GET_SIZE(kwargs) != expected) {
        PyErr_Format(PyExc_TypeError, "Passes() takes %zd things by name, found %zd", expected, found);
        Py_DECREF(passes);
        return NULL;
    }
    PyObject *dicts[] = {passes->open,    passes->stacks_known, passes->trees,           passes->passes, passes->earlier,
                         passes->waiting, passes->several,      passes->parameter_hooks, passes->attached};
    for (size_t i = 0; i < sizeof(dicts) / sizeof(dicts[0]); i++) {
        if (!PyDict_CheckExact(dicts[i])) {
            PyErr_SetString(PyExc_TypeError, "Passes() shares plain dicts");
            Py_DECREF(passes);
            return NULL;
        }
    }
    if (Py_TYPE(passes->memo) != &MemoType) {
        PyErr_SetString(PyExc_TypeError, "Passes() needs a Memo");
        Py_DECREF(passes);
        return NULL;
    }
    return (PyObject *)passes;
}

static int passes_traverse(Passes *passes, visitproc visit, void *arg)
{
#define VISIT_PARTNER(partner) Py_VISIT(passes->partner);
    PARTNERS(VISIT_PARTNER)
#undef VISIT_PARTNER
    return 0;
}

static int passes_drop(Passes *passes)
{
#define DROP_PARTNER(partner) Py_CLEAR(passes->partner);
    PARTNERS(DROP_PARTNER)
#undef DROP_PARTNER
    return 0;
}

static void passes_dealloc(Passes *passes)
{
    PyObject_GC_UnTrack(passes);
    passes_drop(passes);
    Py_TYPE(passes)->tp_free((PyObject *)passes);
}

static PyObject *passes_enter(Passes *passes, PyObject *const *args, Py_ssize_t nargs)
{
    const int is_complete = nargs == 4 || (nargs == 5 && PyLong_Check(args[4]));
    if (!is_complete || !PyUnicode_Check(args[0]) || !PyTuple_Check(args[2]) || !PyDict_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "enter() takes a name, a module, its arguments and keywords, and a number");
        return hook_answer(passes, nargs > 0 ? args[0] : Py_None, -1);
    }
    /* The hook that calls this, and what calls the hook; and what lies between the hook and this. */
    const int skip_frames = 2 + (nargs == 5 ? (int)PyLong_AsLong(args[4]) : 0);
    return hook_answer(passes, args[0], passes_begin(passes, skip_frames, args[0], args[1], args[2], args[3]));
}

static PyObject *passes_leave(Passes *passes, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyUnicode_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "leave() takes a name, a module and its result");
        return hook_answer(passes, nargs > 0 ? args[0] : Py_None, -1);
    }
    return hook_answer(passes, args[0], passes_end(passes, args[1], args[2]));
}

static PyMethodDef passes_methods[] = {
    {"enter", (PyCFunction)(void (*)(void))passes_enter, METH_FASTCALL, "enter(name, module, args, kwargs, above=0)"},
    {"leave", (PyCFunction)(void (*)(void))passes_leave, METH_FASTCALL, "leave(name, module, result)"},
    {"watch_single", (PyCFunction)(void (*)(void))passes_watch_single, METH_FASTCALL,
     "watch_single(node, base, parent, oldest) -> whether this node does the whole call, and is watched now"},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject PassesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.Passes",
    .tp_basicsize = sizeof(Passes),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Records the passes of modules.",
    .tp_new = passes_new,
    .tp_dealloc = (destructor)passes_dealloc,
    .tp_traverse = (traverseproc)passes_traverse,
    .tp_clear = (inquiry)passes_drop,
    .tp_methods = passes_methods,
};

/* ---- a hook on a module ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Passes *passes;
    PyObject *name;
    PyObject *inert; /* makes what a copy of the module, by deepcopy or pickle, gets in its place */
    int after;
} ModuleHook;

static PyObject *module_hook_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    ModuleHook *hook = (ModuleHook *)Py_NewRef(self); /* what runs may take it off the module */
    const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    int failed = -1;
    if (nargs < 2 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "a hook on a module takes the module and its arguments");
    } else if (hook->after) {
        failed = passes_end(hook->passes, args[0], args[nargs - 1]);
    } else {
        /* Without keywords: another hook called `stop()` in this very pass, and torch forgot that we want them. */
        PyObject *keywords = nargs > 2 && PyDict_Check(args[2]) ? Py_NewRef(args[2]) : PyDict_New();
        PyObject *given = PyTuple_Check(args[1]) ? Py_NewRef(args[1]) : PyTuple_Pack(1, args[1]);
        failed = keywords == NULL || given == NULL
                     ? -1
                     : passes_begin(hook->passes, 1, hook->name, args[0], given, keywords);
        Py_XDECREF(keywords);
        Py_XDECREF(given);
    }
    PyObject *answer = hook_answer(hook->passes, hook->name, failed);
    Py_DECREF(hook);
    return answer;
}

static PyObject *module_hook_new(PyTypeObject *class, PyObject *args, PyObject *kwargs)
{
    PyObject *passes, *name, *inert;
    int after;
    if (!PyArg_ParseTuple(args, "O!UpO", &PassesType, &passes, &name, &after, &inert)) {
        return NULL;
    }
    ModuleHook *hook = (ModuleHook *)class->tp_alloc(class, 0);
    if (hook != NULL) {
        hook->vectorcall = module_hook_call;
        hook->passes = (Passes *)Py_NewRef(passes);
        hook->name = Py_NewRef(name);
        hook->inert = Py_NewRef(inert);
        hook->after = after;
    }
    return (PyObject *)hook;
}

static int module_hook_traverse(ModuleHook *hook, visitproc visit, void *arg)
{
    Py_VISIT(hook->passes);
    Py_VISIT(hook->inert);
    return 0;
}

static void module_hook_dealloc(ModuleHook *hook)
{
    PyObject_GC_UnTrack(hook);
    Py_XDECREF(hook->passes);
    Py_XDECREF(hook->name);
    Py_XDECREF(hook->inert);
    Py_TYPE(hook)->tp_free((PyObject *)hook);
}

static PyObject *module_hook_reduce(ModuleHook *hook, PyObject *nothing)
{
    return Py_BuildValue("O()", hook->inert);
}

static PyObject *module_hook_copy(ModuleHook *hook, PyObject *memo) { return PyObject_CallNoArgs(hook->inert); }

static PyMethodDef module_hook_methods[] = {
    {"__reduce__", (PyCFunction)module_hook_reduce, METH_NOARGS, NULL},
    {"__deepcopy__", (PyCFunction)module_hook_copy, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject ModuleHookType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.ModuleHook",
    .tp_basicsize = sizeof(ModuleHook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A hook on a module: ModuleHook(passes, name, after, inert).",
    .tp_new = module_hook_new,
    .tp_dealloc = (destructor)module_hook_dealloc,
    .tp_traverse = (traverseproc)module_hook_traverse,
    .tp_vectorcall_offset = offsetof(ModuleHook, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_methods = module_hook_methods,
};

/* ---- many at once ---- */

/* alive(handles) -> those whose node still lives */
static PyObject *native_alive(PyObject *self, PyObject *handles)
{
    if (!PyList_CheckExact(handles)) {
        PyErr_SetString(PyExc_TypeError, "alive() takes a list of handles");
        return NULL;
    }
    PyObject *living = PyList_New(0);
    for (Py_ssize_t i = 0; living != NULL && i < PyList_GET_SIZE(handles); i++) {
        PyObject *handle = Py_NewRef(PyList_GET_ITEM(handles, i)), *weak = GET(handle, hooks_dict_ref);
        PyObject *dict = weak == NULL ? NULL : PyObject_CallNoArgs(weak);
        if (dict == NULL || (dict != Py_None && PyList_Append(living, handle) < 0)) {
            Py_CLEAR(living);
        }
        Py_DECREF(handle);
        Py_XDECREF(weak);
        Py_XDECREF(dict);
    }
    return living;
}

/* The five dictionaries of a module that hooks of ours stand in; which hook, or True. */
static PyObject *hook_dicts[5];
static const char *const hook_dict_names[5] = {"_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks",
                                               "_forward_hooks_with_kwargs", "_forward_hooks_always_called"};

/* place(module, before key, after key, before, after): the two hooks; without the last two they are taken away */
static PyObject *native_place(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 && nargs != 5) {
        PyErr_SetString(PyExc_TypeError, "place() takes a module, two keys, and two hooks or none");
        return NULL;
    }
    for (int i = 0; i < 5; i++) {
        const int after = i > 1;
        PyObject *dict = PyObject_GetAttr(args[0], hook_dicts[i]);
        int failed = dict == NULL;
        if (!failed && nargs == 5) {
            failed = PyObject_SetItem(dict, args[1 + after], i == 0 || i == 2 ? args[3 + after] : Py_True) < 0;
        } else if (!failed && PyObject_DelItem(dict, args[1 + after]) < 0) {
            failed = !PyErr_ExceptionMatches(PyExc_KeyError);
            if (!failed) {
                PyErr_Clear();
            }
        }
        Py_XDECREF(dict);
        if (failed) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static int hooks_begin(PyObject *module)
{
    PyTypeObject *types[] = {&InfoType, &PassesType, &PassType, &WatchType, &NodeHookType, &CallHookType, &ModuleHookType, &ParameterHookType};
    forward_mark = PyUnicode_InternFromString(".forward.");
    if (forward_mark == NULL) {
        return -1;
    }
    for (int i = 0; i < 5; i++) {
        hook_dicts[i] = PyUnicode_InternFromString(hook_dict_names[i]);
        if (hook_dicts[i] == NULL) {
            return -1;
        }
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (PyType_Ready(types[i]) < 0) {
            return -1;
        }
    }
    return PyModule_AddObjectRef(module, "Passes", (PyObject *)&PassesType) < 0 ||
                   PyModule_AddObjectRef(module, "Info", (PyObject *)&InfoType) < 0 ||
                   PyModule_AddObjectRef(module, "Pass", (PyObject *)&PassType) < 0 ||
                   PyModule_AddObjectRef(module, "ModuleHook", (PyObject *)&ModuleHookType) < 0 ||
                   PyModule_AddObjectRef(module, "ParameterHook", (PyObject *)&ParameterHookType) < 0
               ? -1
               : 0;
}

#endif
