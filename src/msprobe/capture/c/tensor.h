/* One tensor, asked for its facts by the names of its attributes: place, sizes, type, version. */
#ifndef MSPROBE_NATIVE_TENSOR_H
#define MSPROBE_NATIVE_TENSOR_H

#include "memo_state.h"

static void msp_facts_begin(MspFacts *facts)
{
    facts->storage = facts->dtype = facts->shape = facts->stride = NULL;
    facts->complete = 0;
}

static void msp_facts_end(MspFacts *facts)
{
    Py_XDECREF(facts->storage);
    Py_XDECREF(facts->dtype);
    Py_XDECREF(facts->shape);
    Py_XDECREF(facts->stride);
}

static int msp_take_unsigned(PyObject *number, uint64_t *value)
{
    if (number == NULL) {
        return -1;
    }
    *value = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return *value == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

static int msp_take_signed(PyObject *number, int64_t *value)
{
    if (number == NULL) {
        return -1;
    }
    *value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int msp_take_truth(PyObject *truth)
{
    if (truth == NULL) {
        return -1;
    }
    const int value = PyObject_IsTrue(truth);
    Py_DECREF(truth);
    return value;
}

static int msp_facts_read_storage(PyObject *tensor, MspFacts *facts)
{
    facts->storage = PyObject_CallMethodNoArgs(tensor, msp_name_untyped_storage);
    return facts->storage == NULL ? -1
                                  : msp_take_unsigned(PyObject_GetAttr(facts->storage, msp_name_cdata), &facts->cell);
}

/* Whether this may be a gradient on its way through the backward pass of this thread. */
static int msp_is_passing(const MspMemo *memo, const MspFacts *facts)
{
    int64_t number = -1;
    if (!facts->requires_grad && msp_take_signed(PyObject_CallNoArgs(memo->in_backward), &number) < 0) {
        return -1;
    }
    return number != -1;
}

/* Shape and strides as objects of Python. */
static int msp_facts_ask_sizes(PyObject *tensor, MspFacts *facts)
{
    if (facts->stride == NULL) {
        Py_XDECREF(facts->shape);
        facts->shape = PyObject_GetAttr(tensor, msp_name_shape);
        facts->stride = facts->shape == NULL ? NULL : PyObject_CallMethodNoArgs(tensor, msp_name_stride);
    }
    return facts->stride == NULL ? -1 : 0;
}

/* Address, type, shape and strides in one call. 1: known; 0: they have to be asked for one by one; -1: error. */
static int msp_facts_exchange(const MspMemo *memo, PyObject *tensor, MspFacts *facts)
{
    MspExchanged found;
    if (memo->to_exchanged == NULL || memo->is_lazy == NULL) {
        return 0;
    }
    const int lazy = msp_take_truth(PyObject_CallOneArg(memo->is_lazy, tensor));
    if (lazy != 0) {
        return lazy < 0 ? -1 : 0;
    }
    if (memo->to_exchanged(tensor, &found) != 0) {
        PyErr_Clear(); /* another kind of memory, a type that nobody else knows */
        return 0;
    }
    const uint16_t code = (uint16_t)(found.code << 8 | found.bits);
    if (found.device_type != MSP_ON_CPU || found.lanes != 1 || found.dimensions < 0 ||
        found.dimensions > MSP_MAX_DIMENSIONS || code == 0 ||
        (found.dimensions > 0 && (found.shape == NULL || found.strides == NULL))) {
        return 0;
    }
    for (int i = 0; i < memo->type_count; i++) {
        if (memo->types[i].code == code) {
            for (int k = 0; k < found.dimensions; k++) {
                facts->sizes[k] = (Py_ssize_t)found.shape[k];
                facts->strides[k] = (Py_ssize_t)found.strides[k];
            }
            facts->dimensions = found.dimensions;
            facts->address = (uint64_t)(uintptr_t)found.data + found.byte_offset;
            facts->dtype = Py_NewRef(memo->types[i].dtype);
            facts->on_cpu = 1;
            return 1;
        }
    }
    return 0;
}

static int msp_facts_read(const MspMemo *memo, PyObject *tensor, MspFacts *facts)
{
    facts->requires_grad = msp_take_truth(PyObject_GetAttr(tensor, msp_name_requires_grad));
    if (facts->requires_grad < 0) {
        return -1;
    }
    if ((memo->storage_of == NULL
             ? msp_facts_read_storage(tensor, facts)
             : msp_take_unsigned(PyObject_CallOneArg(memo->storage_of, tensor), &facts->cell)) < 0) {
        return -1;
    }
    facts->on_cpu = -1;
    if (msp_take_signed(PyObject_GetAttr(tensor, msp_name_version), &facts->version) < 0) {
        return -1;
    }
    const int known = msp_facts_exchange(memo, tensor, facts);
    if (known < 0 ||
        (!known && msp_take_unsigned(PyObject_CallOneArg(memo->address_of, tensor), &facts->address) < 0)) {
        return -1;
    }
    if (!known) {
        facts->dtype = PyObject_GetAttr(tensor, msp_name_dtype);
        if (facts->dtype == NULL || msp_facts_ask_sizes(tensor, facts) < 0) {
            return -1;
        }
        facts->dimensions = msp_read_sizes(facts->shape, facts->sizes);
        if (facts->dimensions < 0 || msp_read_sizes(facts->stride, facts->strides) != facts->dimensions) {
            return -1;
        }
    }
    facts->negated = msp_take_truth(PyObject_CallMethodNoArgs(tensor, msp_name_is_neg));
    return facts->negated < 0 ? -1 : 0;
}

static int msp_is_contiguous(const MspFacts *facts)
{
    Py_ssize_t expected = 1;
    for (int i = 0; i < facts->dimensions; i++) {
        if (facts->sizes[i] == 0) {
            return 1;
        }
    }
    for (int i = facts->dimensions - 1; i >= 0; i--) {
        if (facts->sizes[i] != 1) {
            if (facts->strides[i] != expected) {
                return 0;
            }
            expected *= facts->sizes[i];
        }
    }
    return 1;
}

/* 1: the elements lie inside their storage, or there is no asking; 0: they do not; -1: error. */
static int msp_lies_inside(PyObject *tensor, const MspFacts *facts, const MspLayout *layout, int itemsize)
{
    int64_t last, bytes;
    if (layout->count == 0) {
        return 1;
    }
    if (facts->address == 0 || facts->storage == NULL) {
        return facts->address != 0;
    }
    if (msp_take_signed(PyObject_CallMethodNoArgs(tensor, msp_name_storage_offset), &last) < 0 ||
        msp_take_signed(PyObject_CallMethodNoArgs(facts->storage, msp_name_nbytes), &bytes) < 0) {
        return -1;
    }
    for (int i = 0; i < layout->dimensions; i++) {
        last += (layout->size[i] - 1) * layout->stride[i];
    }
    return (last + 1) * itemsize <= bytes;
}

/* Whether the elements may be read: as msp_lies_inside(). */
static int msp_is_readable(const MspMemo *memo, PyObject *tensor, MspFacts *facts, const MspLayout *layout,
                           int itemsize)
{
    if (facts->storage == NULL) {
        const int passing = msp_is_passing(memo, facts);
        if (passing < 0 || (!passing && msp_facts_read_storage(tensor, facts) < 0)) {
            return -1;
        }
    }
    return msp_lies_inside(tensor, facts, layout, itemsize);
}

#endif
