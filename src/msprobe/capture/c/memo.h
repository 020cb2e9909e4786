/* Descriptions of everyday tensors - strided, on the CPU, of a type that `statistics` knows - and the memory of those
 * already given. What TensorStatistics does in Python for all others is done here for nearly all.
 *
 * Knows of torch only the names of a tensor's attributes. A tensor that answers any of them with an error, or is in any
 * way unusual, is handed to `otherwise`, a Python function, with the same arguments.
 */
#ifndef MSPROBE_NATIVE_MEMO_H
#define MSPROBE_NATIVE_MEMO_H

#include "describe.h"

/* What went wrong is over: Python takes the tensor. What it was asked for does not explain an error behind that, nor does
 * want of memory: Python is told of it, and may switch this memo off. An interrupt stays set: it is none of ours. */
static void msp_settle_error(MspMemo *memo, const MspFacts *facts)
{
    PyObject *type, *value, *trace;
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_Exception)) {
        return;
    }
    if (!facts->complete || memo->fault == NULL || PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear();
        return;
    }
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (msp_take_truth(PyObject_CallOneArg(memo->fault, value == NULL ? Py_None : value)) > 0) {
        memo->off = 1;
    }
    PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static PyObject *msp_memo_describe(MspMemo *memo, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    int remember = 1;
    PyObject *info = NULL;
    const Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (nargs < 1 || nargs + named > 2 ||
        (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "remember") != 0)) {
        PyErr_SetString(PyExc_TypeError, "describe() takes a tensor and remember");
        return NULL;
    }
    if (nargs + named == 2) {
        remember = PyObject_IsTrue(args[1]);
        if (remember < 0) {
            return NULL;
        }
    }
    if (!memo->off && msp_is_ordinary(memo, args[0])) {
        MspFacts facts;
        msp_facts_begin(&facts);
        if (msp_facts_read(memo, args[0], &facts) == 0 && !msp_is_unset(memo, args[0], &facts)) {
            info = msp_describe_known(memo, args[0], &facts);
            if (info == NULL) {
                PyErr_Clear();
                info = msp_describe_new(memo, args[0], &facts, remember);
            }
        }
        if (info == NULL) {
            msp_settle_error(memo, &facts);
        }
        msp_facts_end(&facts);
    }
    if (info == NULL) {
        if (memo->otherwise == NULL || PyErr_Occurred()) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_RuntimeError, "the garbage collector took the memo apart");
            }
            return NULL;
        }
        PyObject *arguments[] = {NULL, args[0], remember ? Py_True : Py_False};
        info = PyObject_Vectorcall(memo->otherwise, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    return info;
}

/* The elements in C order into `buffer`; their type, sizes and CRC-32. None where the tensor is not an everyday one. */
static PyObject *msp_copy_elements(const MspMemo *memo, PyObject *tensor, MspFacts *facts, Py_buffer *buffer)
{
    const MspType *type = msp_memo_type(memo, facts->dtype);
    if (type == NULL || facts->negated || type->kind == MSP_COMPLEX64 || type->kind == MSP_COMPLEX128) {
        return NULL;
    }
    if (facts->on_cpu < 0 && msp_take_truth(PyObject_GetAttr(tensor, msp_name_is_cpu)) <= 0) {
        return NULL;
    }
    const int itemsize = msp_kinds[type->kind].itemsize;
    MspLayout layout;
    msp_arrange(facts->sizes, facts->strides, facts->dimensions, &layout);
    if (msp_lies_inside(tensor, facts, &layout, itemsize) <= 0 || layout.count > buffer->len / itemsize ||
        layout.count * itemsize != buffer->len) {
        return NULL;
    }
    facts->complete = 1;
    const char *address = (const char *)(uintptr_t)facts->address;
    const int contiguous = msp_is_contiguous(facts);
    char *to = buffer->buf;
    const size_t size = (size_t)buffer->len;
    uint32_t crc = msp_crc_begin();
    PyThreadState *released = layout.count > MSP_GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
    if (contiguous) {
        enum { IN_CACHE = 1 << 15 };
        for (size_t done = 0; done < size; done += IN_CACHE) {
            const size_t part = size - done < IN_CACHE ? size - done : IN_CACHE;
            memcpy(to + done, address + done, part);
            crc = msp_crc_more(crc, to + done, part);
        }
    } else {
        msp_gather_elements(address, facts->sizes, facts->strides, facts->dimensions, itemsize, to);
        crc = msp_crc_more(crc, to, size);
    }
    crc = msp_crc_end(crc);
    if (released != NULL) {
        PyEval_RestoreThread(released);
    }
    const char *name = strncmp(type->name, "torch.", 6) == 0 ? type->name + 6 : type->name;
    return msp_facts_ask_sizes(tensor, facts) < 0 ? NULL : Py_BuildValue("sOk", name, facts->shape, (unsigned long)crc);
}

static PyObject *msp_memo_copy(MspMemo *memo, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer buffer;
    MspFacts facts;
    PyObject *result = NULL;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "copy() takes a tensor and a buffer");
        return NULL;
    }
    if (memo->off || !msp_is_ordinary(memo, args[0])) {
        Py_RETURN_NONE;
    }
    if (PyObject_GetBuffer(args[1], &buffer, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    msp_facts_begin(&facts);
    if (msp_facts_read(memo, args[0], &facts) == 0) {
        result = msp_copy_elements(memo, args[0], &facts, &buffer);
    }
    if (result == NULL) {
        msp_settle_error(memo, &facts);
    }
    msp_facts_end(&facts);
    PyBuffer_Release(&buffer);
    return result == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : result;
}

static PyObject *msp_memo_forget(MspMemo *memo, PyObject *storage)
{
    const uint64_t cell = PyLong_AsUnsignedLongLong(storage);
    if (cell == (uint64_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    MspEntry *entry = msp_memo_find(memo, cell);
    if (entry != NULL) {
        msp_entry_forget(entry);
    }
    Py_RETURN_NONE;
}

static PyObject *msp_memo_forget_all(MspMemo *memo, PyObject *nothing)
{
    memo->epoch++;
    Py_RETURN_NONE;
}

static PyObject *msp_memo_distrust(MspMemo *memo, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "distrust() takes a tensor and for_good");
        return NULL;
    }
    const int for_good = PyObject_IsTrue(args[1]);
    if (for_good < 0) {
        return NULL;
    }
    MspFacts facts;
    msp_facts_begin(&facts);
    int failed = !msp_is_ordinary(memo, args[0]) || msp_facts_read(memo, args[0], &facts) < 0;
    if (!failed && facts.storage == NULL) {
        const int passing = msp_is_passing(memo, &facts);
        failed = passing < 0 || (!passing && msp_facts_read_storage(args[0], &facts) < 0);
    }
    MspEntry *entry = failed ? NULL : msp_memo_entry(memo, args[0], &facts);
    if (entry != NULL) {
        msp_entry_forget(entry);
        if (entry->trust != MSP_EXPOSED) {
            entry->trust = for_good ? MSP_EXPOSED : MSP_UNSET;
        }
        entry->unset = entry->unset || !for_good;
    }
    msp_facts_end(&facts);
    PyErr_Clear(); /* not an everyday tensor: nothing is remembered of it here */
    Py_RETURN_NONE;
}

static PyObject *msp_memo_clear(MspMemo *memo, PyObject *const *args, Py_ssize_t nargs)
{
    const int keep_exposed = nargs == 1 ? PyObject_IsTrue(args[0]) : 0;
    if (nargs > 1 || keep_exposed < 0) {
        PyErr_SetString(PyExc_TypeError, "clear() takes at most keep_exposed");
        return NULL;
    }
    msp_memo_empty(memo, keep_exposed);
    Py_RETURN_NONE;
}

static int msp_memo_add_types(MspMemo *memo, PyObject *types)
{
    PyObject *dtype, *facts;
    Py_ssize_t position = 0;
    while (PyDict_Next(types, &position, &dtype, &facts)) {
        int kind, hashed;
        const char *name;
        PyObject *table;
        if (memo->type_count == MSP_MAX_TYPES) {
            PyErr_SetString(PyExc_ValueError, "too many element types");
            return -1;
        }
        if (!PyArg_ParseTuple(facts, "sipO", &name, &kind, &hashed, &table)) {
            return -1;
        }
        MspType *type = &memo->types[memo->type_count];
        if (kind < 0 || kind >= MSP_KIND_COUNT || strlen(name) >= sizeof(type->name) ||
            (kind == MSP_FLOAT8) != (PyBytes_Check(table) && PyBytes_GET_SIZE(table) == 1024)) {
            PyErr_Format(PyExc_ValueError, "element type %.100s is not described right", name);
            return -1;
        }
        *type = (MspType){Py_NewRef(dtype), (MspKind)kind, hashed, kind == MSP_FLOAT8 ? Py_NewRef(table) : NULL, 0, ""};
        strcpy(type->name, name);
        for (size_t i = 0; i < sizeof(msp_exchange_codes) / sizeof(msp_exchange_codes[0]); i++) {
            if (strcmp(msp_exchange_codes[i].name, name) == 0) {
                type->code = msp_exchange_codes[i].code;
            }
        }
        memo->type_count++;
    }
    return 0;
}

static PyObject *msp_memo_new(PyTypeObject *class, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"ordinary",   "types",     "info_class", "address_of",  "digest",  "otherwise", "free_weak",
                            "is_expired", "parameter", "storage_of", "in_backward", "is_lazy", "exchange",  "flags",
                            "render",     "further",   "mode",       "crc",         "exact",   "limit",     "fault",
                            "rows",       NULL};
    PyObject *ordinary, *types, *info_class, *address_of, *digest, *otherwise, *free_weak, *is_expired, *parameter,
        *storage_of, *in_backward, *is_lazy, *exchange, *render, *fault, *rows;
    int flags, further, mode, crc, exact;
    Py_ssize_t limit;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O!O!OOOOOOOOOOOiOiippnOO", words, &PyTuple_Type, &ordinary,
                                     &PyDict_Type, &types, &info_class, &address_of, &digest, &otherwise, &free_weak,
                                     &is_expired, &parameter, &storage_of, &in_backward, &is_lazy, &exchange, &flags,
                                     &render, &further, &mode, &crc, &exact, &limit, &fault, &rows)) {
        return NULL;
    }
    if (mode < MSP_STATISTICS || mode > MSP_STRUCTURE) {
        return PyErr_Format(PyExc_ValueError, "no mode has the number %d", mode);
    }
    MspMemo *memo = (MspMemo *)class->tp_alloc(class, 0);
    if (memo == NULL) {
        return NULL;
    }
    memo->ordinary = Py_NewRef(ordinary);
    memo->info_class = Py_NewRef(info_class);
    memo->address_of = Py_NewRef(address_of);
    memo->digest = Py_NewRef(digest);
    memo->otherwise = Py_NewRef(otherwise);
    memo->fault = Py_NewRef(fault);
    memo->free_weak = Py_NewRef(free_weak);
    memo->is_expired = is_expired == Py_None ? NULL : Py_NewRef(is_expired);
    memo->parameter = Py_NewRef(parameter);
    memo->storage_of = storage_of == Py_None ? NULL : Py_NewRef(storage_of);
    memo->in_backward = Py_NewRef(in_backward);
    memo->is_lazy = is_lazy == Py_None ? NULL : Py_NewRef(is_lazy);
    if (PyCapsule_IsValid(exchange, "dlpack_exchange_api")) {
        const MspExchangeTable *table = PyCapsule_GetPointer(exchange, "dlpack_exchange_api");
        memo->to_exchanged = table->major == 1 ? table->to_exchanged : NULL;
    }
    memo->flags = flags;
    memo->render = render == Py_None ? NULL : Py_NewRef(render);
    memo->rows = Py_TYPE(rows) == &MspRowTableType ? Py_NewRef(rows) : NULL;
    memo->further = further;
    memo->exact = exact;
    memo->mode = (MspMode)mode;
    memo->plain_info = PyType_Check(info_class) && PyType_IsSubtype((PyTypeObject *)info_class, &MspInfoType) &&
                       ((PyTypeObject *)info_class)->tp_init == MspInfoType.tp_init;
    memo->crc = crc && mode == MSP_STATISTICS;
    memo->limit = limit;
    msp_memo_plan_sweep(memo);
    if (msp_memo_add_types(memo, types) < 0) {
        Py_DECREF(memo);
        return NULL;
    }
    return (PyObject *)memo;
}

static int msp_memo_traverse(MspMemo *memo, visitproc visit, void *arg)
{
    Py_VISIT(memo->ordinary);
    Py_VISIT(memo->info_class);
    Py_VISIT(memo->address_of);
    Py_VISIT(memo->digest);
    Py_VISIT(memo->otherwise);
    Py_VISIT(memo->fault);
    Py_VISIT(memo->render);
    Py_VISIT(memo->rows);
    Py_VISIT(memo->free_weak);
    Py_VISIT(memo->is_expired);
    Py_VISIT(memo->parameter);
    Py_VISIT(memo->storage_of);
    Py_VISIT(memo->in_backward);
    Py_VISIT(memo->is_lazy);
    return 0;
}

static int msp_memo_drop(MspMemo *memo)
{
    if (memo->free_weak != NULL) {
        msp_memo_empty(memo, 0);
    }
    Py_CLEAR(memo->digest);
    Py_CLEAR(memo->otherwise);
    Py_CLEAR(memo->fault);
    return 0;
}

static void msp_memo_dealloc(MspMemo *memo)
{
    PyObject *type, *value, *trace;
    PyObject_GC_UnTrack(memo);
    PyErr_Fetch(&type, &value, &trace);
    msp_memo_drop(memo);
    PyErr_Restore(type, value, trace);
    Py_CLEAR(memo->ordinary);
    Py_CLEAR(memo->info_class);
    Py_CLEAR(memo->address_of);
    Py_CLEAR(memo->free_weak);
    Py_CLEAR(memo->is_expired);
    Py_CLEAR(memo->parameter);
    Py_CLEAR(memo->render);
    Py_CLEAR(memo->rows);
    Py_CLEAR(memo->storage_of);
    Py_CLEAR(memo->in_backward);
    Py_CLEAR(memo->is_lazy);
    for (int i = 0; i < memo->type_count; i++) {
        Py_CLEAR(memo->types[i].dtype);
        Py_CLEAR(memo->types[i].table);
    }
    Py_TYPE(memo)->tp_free((PyObject *)memo);
}

static Py_ssize_t msp_memo_length(PyObject *memo)
{
    return ((MspMemo *)memo)->used;
}

static PyMethodDef msp_memo_methods[] = {
    {"describe", (PyCFunction)(void (*)(void))msp_memo_describe, METH_FASTCALL | METH_KEYWORDS,
     "describe(tensor, remember=True) -> its description, an earlier one if it was given for the same elements"},
    {"copy", (PyCFunction)(void (*)(void))msp_memo_copy, METH_FASTCALL,
     "copy(tensor, buffer) -> (type, shape, CRC-32) of the elements, now in the buffer; None: not an everyday tensor,\n"
     "or the buffer has another size"},
    {"forget", (PyCFunction)msp_memo_forget, METH_O, "forget(storage): the elements in it were written"},
    {"forget_all", (PyCFunction)msp_memo_forget_all, METH_NOARGS,
     "forget_all(): code that torch does not know may have written anywhere"},
    {"distrust", (PyCFunction)(void (*)(void))msp_memo_distrust, METH_FASTCALL,
     "distrust(tensor, for_good): remember nothing of its storage as long as that lives, or until torch counts a "
     "write"},
    {"clear", (PyCFunction)(void (*)(void))msp_memo_clear, METH_FASTCALL,
     "clear(keep_exposed=False): forget everything, or all but the storages that are distrusted for good"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef msp_memo_members[] = {
    {"reads", T_PYSSIZET, offsetof(MspMemo, reads), READONLY, "how often elements were read"},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods msp_memo_as_sequence = {.sq_length = msp_memo_length};

static PyTypeObject MspMemoType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.Memo",
    .tp_basicsize = sizeof(MspMemo),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Descriptions of everyday tensors, and the memory of those already given.",
    .tp_new = msp_memo_new,
    .tp_dealloc = (destructor)msp_memo_dealloc,
    .tp_traverse = (traverseproc)msp_memo_traverse,
    .tp_clear = (inquiry)msp_memo_drop,
    .tp_methods = msp_memo_methods,
    .tp_members = msp_memo_members,
    .tp_as_sequence = &msp_memo_as_sequence,
};

#endif
