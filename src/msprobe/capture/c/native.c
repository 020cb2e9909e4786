/* What the recorder does many thousand times a second: tensor statistics, records to JSON, call stacks.
 *
 * Knows neither torch nor numpy: tensors arrive as an address, a shape and a type. Every function has an equal in
 * Python (native.py) except `numbers`, where the framework's own reductions take over.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

#include "around.h"
#include "encode.h"
#include "files.h"
#include "hash.h"
#include "layout.h"
#include "memo.h"
#include "below.h"
#include "numbers.h"
#include "row_table.h"
#include "squares.h"
#include "text.h"

static int msp_check_count(const char *function, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most)
{
    if (given < least || given > most) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd arguments (%zd given)", function, least, most, given);
        return -1;
    }
    return 0;
}

static int msp_read_layout(PyObject *shape, PyObject *stride, MspLayout *layout)
{
    Py_ssize_t sizes[MSP_MAX_DIMENSIONS], strides[MSP_MAX_DIMENSIONS];
    const int dimensions = msp_read_sizes(shape, sizes);
    if (dimensions < 0) {
        return -1;
    }
    const int given = msp_read_sizes(stride, strides);
    if (given < 0) {
        return -1;
    }
    if (given != dimensions) {
        PyErr_Format(PyExc_ValueError, "%d sizes but %d strides", dimensions, given);
        return -1;
    }
    msp_arrange(sizes, strides, dimensions, layout);
    return 0;
}

static PyObject *msp_native_pattern(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    MspLayout layout;
    if (msp_check_count("pattern", nargs, 2, 2) < 0 || msp_read_layout(args[0], args[1], &layout) < 0) {
        return NULL;
    }
    PyObject *result = PyTuple_New(2 * layout.dimensions);
    for (int i = 0; result != NULL && i < 2 * layout.dimensions; i++) {
        PyObject *number = PyLong_FromSsize_t(i % 2 == 0 ? layout.size[i / 2] : layout.stride[i / 2]);
        if (number == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyTuple_SET_ITEM(result, i, number);
    }
    return result;
}

static PyObject *msp_native_is_dense(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    MspLayout layout;
    if (msp_check_count("is_dense", nargs, 2, 2) < 0 || msp_read_layout(args[0], args[1], &layout) < 0) {
        return NULL;
    }
    return PyBool_FromLong(layout.dimensions == 1 && layout.stride[0] == 1);
}

static int msp_read_pattern(PyObject *object, MspLayout *layout)
{
    Py_ssize_t numbers[MSP_MAX_DIMENSIONS];
    if (PyLong_Check(object)) {
        layout->dimensions = 1;
        layout->stride[0] = 1;
        layout->count = layout->size[0] = PyLong_AsSsize_t(object);
        if (layout->count < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "a count of elements cannot be negative");
            }
            return -1;
        }
        return 0;
    }
    const int count = msp_read_sizes(object, numbers);
    if (count < 0) {
        return -1;
    }
    if (count % 2 != 0) {
        PyErr_SetString(PyExc_ValueError, "a pattern is pairs of size and stride");
        return -1;
    }
    layout->dimensions = count / 2;
    layout->count = 1;
    for (int i = 0; i < layout->dimensions; i++) {
        layout->size[i] = numbers[2 * i];
        layout->stride[i] = numbers[2 * i + 1];
        if (layout->size[i] > 0 && layout->count > PY_SSIZE_T_MAX / layout->size[i]) {
            PyErr_SetString(PyExc_OverflowError, "more elements than can be counted");
            return -1;
        }
        layout->count *= layout->size[i];
    }
    return 0;
}

static PyObject *msp_native_numbers(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    MspLayout layout;
    MspSummary summary;
    if (msp_check_count("numbers", nargs, 5, 6) < 0) {
        return NULL;
    }
    const char *address = PyLong_AsVoidPtr(args[0]);
    if ((address == NULL && PyErr_Occurred()) || msp_read_pattern(args[1], &layout) < 0) {
        return NULL;
    }
    const long kind = PyLong_AsLong(args[2]), flags = PyErr_Occurred() ? -1 : PyLong_AsLong(args[3]);
    const int further = PyErr_Occurred() ? -1 : (int)PyLong_AsLong(args[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (kind < 0 || kind >= MSP_KIND_COUNT) {
        return PyErr_Format(PyExc_ValueError, "no element kind has the number %ld", kind);
    }
    if (address == NULL && layout.count > 0) {
        PyErr_SetString(PyExc_ValueError, "elements at address 0");
        return NULL;
    }
    const float *table = NULL;
    if (kind == MSP_FLOAT8) {
        if (nargs < 6 || !PyBytes_Check(args[5]) || PyBytes_GET_SIZE(args[5]) != 256 * (Py_ssize_t)sizeof(float)) {
            PyErr_SetString(PyExc_ValueError, "float8 needs the 256 float32 values of its bytes");
            return NULL;
        }
        table = (const float *)(const void *)PyBytes_AS_STRING(args[5]);
    }
    if (layout.count > MSP_GIL_WORTH_RELEASING) {
        Py_BEGIN_ALLOW_THREADS;
        msp_read_numbers((MspKind)kind, address, &layout, table, further, NULL, &summary);
        Py_END_ALLOW_THREADS;
    } else if (layout.count > 0) {
        msp_read_numbers((MspKind)kind, address, &layout, table, further, NULL, &summary);
    }
    return msp_statistic_numbers_of((MspKind)kind, (int)flags, layout.count, further, &summary);
}

static PyObject *msp_native_norm(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    MspLayout layout;
    MspSummary summary;
    if (msp_check_count("norm", nargs, 3, 3) < 0) {
        return NULL;
    }
    const char *address = PyLong_AsVoidPtr(args[0]);
    const Py_ssize_t count = PyErr_Occurred() ? -1 : PyLong_AsSsize_t(args[1]);
    const long kind = PyErr_Occurred() ? -1 : PyLong_AsLong(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (count < 0 || kind < 0 || !msp_is_float((MspKind)kind) || (address == NULL && count > 0)) {
        return PyErr_Format(PyExc_ValueError, "%zd elements of kind %ld at %p", count, kind, address);
    }
    if (count == 0) {
        return PyFloat_FromDouble(0);
    }
    layout.dimensions = 1;
    layout.stride[0] = 1;
    layout.count = layout.size[0] = count;
    PyThreadState *released = count > MSP_GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
    double norm;
    if (msp_has_squares((MspKind)kind)) {
        norm = sqrt(msp_sum_squares((MspKind)kind, address, count));
    } else {
        msp_summarise((MspKind)kind, address, &layout, NULL, NULL, &summary);
        norm = msp_norm_of((MspKind)kind, MSP_UNROUNDED, &summary);
    }
    if (released != NULL) {
        PyEval_RestoreThread(released);
    }
    return PyFloat_FromDouble(norm);
}

static PyObject *msp_native_count_below(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (msp_check_count("count_below", nargs, 4, 4) < 0) {
        return NULL;
    }
    const char *address = PyLong_AsVoidPtr(args[0]);
    const Py_ssize_t count = PyErr_Occurred() ? -1 : PyLong_AsSsize_t(args[1]);
    const long kind = PyErr_Occurred() ? -1 : PyLong_AsLong(args[2]);
    const double bound = PyErr_Occurred() ? 0 : PyFloat_AsDouble(args[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (count < 0 || kind < 0 || !msp_is_float((MspKind)kind) || (address == NULL && count > 0)) {
        return PyErr_Format(PyExc_ValueError, "%zd elements of kind %ld at %p", count, kind, address);
    }
    int64_t found;
    PyThreadState *released = count > MSP_GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
    found = msp_count_below((MspKind)kind, address, count, bound);
    if (released != NULL) {
        PyEval_RestoreThread(released);
    }
    return PyLong_FromLongLong(found);
}

static PyObject *msp_native_encode(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (msp_check_count("encode", nargs, 2, 2) < 0) {
        return NULL;
    }
    MspEncoder encoder;
    encoder.nesting = 0;
    encoder.depth = PyLong_AsSsize_t(args[1]);
    if (encoder.depth == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (encoder.depth < 0 || encoder.depth > 1000) {
        return PyErr_Format(PyExc_ValueError, "depth must be 0 to 1000, found %zd", encoder.depth);
    }
    msp_text_begin(&encoder.text);
    PyObject *result = NULL;
    if (msp_encode_value(&encoder, args[0]) == 0) {
        result = PyBytes_FromStringAndSize(encoder.text.data, (Py_ssize_t)encoder.text.size);
    }
    msp_text_end(&encoder.text);
    return result;
}

static PyObject *msp_native_memory(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static char nothing[1];
    if (msp_check_count("memory", nargs, 2, 2) < 0) {
        return NULL;
    }
    char *address = PyLong_AsVoidPtr(args[0]);
    if (address == NULL && PyErr_Occurred()) {
        return NULL;
    }
    const Py_ssize_t size = PyLong_AsSsize_t(args[1]);
    if (size < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "%zd bytes", size);
    }
    if (address == NULL && size > 0) {
        PyErr_SetString(PyExc_ValueError, "bytes at address 0");
        return NULL;
    }
    return PyMemoryView_FromMemory(size > 0 ? address : nothing, size, PyBUF_READ);
}

static PyObject *msp_native_gather(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t sizes[MSP_MAX_DIMENSIONS], strides[MSP_MAX_DIMENSIONS];
    if (msp_check_count("gather", nargs, 4, 4) < 0) {
        return NULL;
    }
    const char *address = PyLong_AsVoidPtr(args[0]);
    if (address == NULL && PyErr_Occurred()) {
        return NULL;
    }
    const int dimensions = msp_read_sizes(args[1], sizes);
    if (dimensions < 0 || msp_read_sizes(args[2], strides) != dimensions) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "%d sizes but not as many strides", dimensions);
    }
    const long itemsize = PyLong_AsLong(args[3]);
    if (itemsize < 1 || itemsize > 16) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "elements of %ld bytes", itemsize);
    }
    Py_ssize_t count = 1;
    for (int i = 0; i < dimensions; i++) {
        if (sizes[i] > 0 && count > PY_SSIZE_T_MAX / itemsize / sizes[i]) {
            return PyErr_NoMemory();
        }
        count *= sizes[i];
    }
    if (address == NULL && count > 0) {
        PyErr_SetString(PyExc_ValueError, "elements at address 0");
        return NULL;
    }
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * itemsize);
    if (result == NULL || count == 0) {
        return result;
    }
    char *to = PyBytes_AS_STRING(result);
    PyThreadState *released = count > MSP_GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
    msp_gather_elements(address, sizes, strides, dimensions, (int)itemsize, to);
    if (released != NULL) {
        PyEval_RestoreThread(released);
    }
    return result;
}

static PyObject *msp_native_crc32(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (msp_check_count("crc32", nargs, 2, 2) < 0) {
        return NULL;
    }
    const char *address = PyLong_AsVoidPtr(args[0]);
    const Py_ssize_t size = PyErr_Occurred() ? -1 : PyLong_AsSsize_t(args[1]);
    if (size < 0 || (address == NULL && size > 0)) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "%zd bytes at address %p", size, address);
    }
    uint32_t crc = msp_crc_begin();
    PyThreadState *released = size > 4 * MSP_GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
    crc = msp_crc_end(msp_crc_more(crc, address, (size_t)size));
    if (released != NULL) {
        PyEval_RestoreThread(released);
    }
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *msp_native_choose_kernels(PyObject *self, PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    if (name == NULL) {
        return NULL;
    }
    const int kernels = msp_choose_kernels(name) && msp_choose_stripes(name);
    return PyBool_FromLong(kernels || msp_choose_crc(name));
}

#define MSP_FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

static PyMethodDef msp_methods[] = {
    {"numbers", MSP_FAST(msp_native_numbers),
     "numbers(address, count_or_pattern, kind, flags, further, table=None) -> {name: number}"},
    {"norm", MSP_FAST(msp_native_norm),
     "norm(address, count, kind) -> the norm of float elements in double, without a dict of other numbers"},
    {"count_below", MSP_FAST(msp_native_count_below),
     "count_below(address, count, kind, bound) -> how many float elements have a magnitude below bound"},
    {"encode", MSP_FAST(msp_native_encode), "encode(tree, depth) -> bytes of indented JSON"},
    {"crc32", MSP_FAST(msp_native_crc32), "crc32(address, size) -> as zlib.crc32 of these bytes"},
#ifdef MSP_HAVE_WRITE_FILES
    {"write_files", msp_native_write_files, METH_VARARGS,
     "write_files(directory, mode, prefix, files) -> (how many were written, 0 or the number of the error of the "
     "next)\n"
     "files: (name, head, data, tail), or (name, existing name) for a hard link; prefix: of names nobody else uses, or "
     "empty to write under the names themselves"},
#endif
    {"memory", MSP_FAST(msp_native_memory), "memory(address, size) -> read-only view, valid while the owner lives"},
    {"gather", MSP_FAST(msp_native_gather),
     "gather(address, shape, stride, itemsize) -> the elements' bytes in C order"},
    {"pattern", MSP_FAST(msp_native_pattern),
     "pattern(shape, stride) -> (size, stride, ...) of the elements, order left out"},
    {"is_dense", MSP_FAST(msp_native_is_dense),
     "is_dense(shape, stride) -> whether the elements fill their memory, each once"},
    {"choose_kernels", msp_native_choose_kernels, METH_O,
     "choose_kernels(name) -> whether 'baseline', 'avx2' or 'avx512' statistics and fingerprints, or the CRC-32 by\n"
     "'table', 'folded' or the 'best' there is, are now used; for tests"},
    {NULL, NULL, 0, NULL},
};

/* {element kind: its number}; NULL with an error set. */
static PyObject *msp_kind_numbers(void)
{
    PyObject *numbers = PyDict_New();
    for (int kind = 0; numbers != NULL && kind < MSP_KIND_COUNT; kind++) {
        PyObject *number = PyLong_FromLong(kind);
        if (number == NULL || PyDict_SetItemString(numbers, msp_kinds[kind].name, number) < 0) {
            Py_CLEAR(numbers);
        }
        Py_XDECREF(number);
    }
    return numbers;
}

/* The value is taken over; NULL with an error set is passed on. */
static int msp_add(PyObject *module, const char *name, PyObject *value)
{
    const int failed = value == NULL || PyModule_AddObjectRef(module, name, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

static int msp_execute(PyObject *module)
{
    /* Names, tables and types are static: one interpreter alone may use them. Before 3.12 a slot cannot say so. */
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "the C extension works in the main interpreter alone");
        return -1;
    }
    if (msp_memo_begin() < 0 || PyModule_AddType(module, &MspInfoType) < 0 ||
        PyModule_AddType(module, &MspMemoType) < 0 ||
        PyModule_AddType(module, &MspRowTableType) < 0 || PyModule_AddType(module, &MspAroundType) < 0) {
        return -1;
    }
    Py_XSETREF(msp_name_text, PyUnicode_InternFromString("text"));
    if (msp_name_text == NULL || msp_add(module, "KINDS", msp_kind_numbers()) < 0 ||
        msp_add(module, "NUMBERS", msp_statistic_numbers_begin()) < 0 ||
        PyModule_AddIntConstant(module, "HIGH_PRECISION", MSP_HIGH_PRECISION) < 0 ||
        PyModule_AddIntConstant(module, "SCALAR", MSP_SCALAR) < 0 ||
        PyModule_AddIntConstant(module, "UNROUNDED", MSP_UNROUNDED) < 0 ||
        PyModule_AddIntConstant(module, "STATISTICS", MSP_STATISTICS) < 0 ||
        PyModule_AddIntConstant(module, "XOR", MSP_XOR) < 0 ||
        PyModule_AddIntConstant(module, "STRUCTURE", MSP_STRUCTURE) < 0) {
        return -1;
    }
    msp_numbers_begin();
    msp_hash_begin();
    msp_statistics_begin();
    msp_rows_begin();
    msp_fingerprint_begin();
    return 0;
}

static PyModuleDef_Slot msp_slots[] = {
    {Py_mod_exec, (void *)msp_execute},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
    /* The tables of a memo are guarded by the GIL alone: a free-threaded Python switches it on for us. */
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef msp_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Native parts of the recorder; see native.py.",
    .m_size = 0,
    .m_methods = msp_methods,
    .m_slots = msp_slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&msp_definition); }
