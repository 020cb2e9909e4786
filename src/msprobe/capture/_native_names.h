/* Names of attributes, made once: objects of Python are asked for them many thousand times a second. */
#ifndef MSPROBE_NATIVE_NAMES_H
#define MSPROBE_NATIVE_NAMES_H

#include <Python.h>

#define ATTRIBUTES(X)                                                                                                  \
    X(_allocated) X(_base) X(_encode) X(_frames) X(_generation) X(_journal) X(_kind_for_compiled) X(_late) X(_learn) X(_map) X(_modules) X(_open)          \
    X(_parameters) X(_parents) X(_problem) X(_records) X(_rewritten_parent) X(_sequence_nr) X(_stack_numbers)          \
    X(_stack_of) X(_strict) X(_with_construct) X(_with_stacks) X(_writer) X(_handles) X(__enter__) X(__exit__)         \
    X(acquire) X(append) X(attach) X(counters) X(define_stack) X(end) X(is_enough) X(outcome) X(depth) X(end_after_record) X(entry)     \
    X(fault) X(forward) X(generation) X(grad_fn) X(handled_through) X(has_late) X(input) X(input_args) X(input_kwargs) \
    X(is_recompute) X(layout) X(lines) X(lock) X(hooks_dict_ref) X(modules) X(msprobe) X(muted) X(next_functions) X(node) X(note)        \
    X(of) X(order) X(output) X(output_nr) X(owners) X(parameters) X(parent) X(put_call) X(recompute) X(recording)      \
    X(records_in_step) X(register_hook) X(register_prehook) X(release) X(requires_grad) X(shape) X(size) X(source)     \
    X(stack) X(storage_offset) X(stride) X(text) X(reserve) X(setdefault) X(suspended) X(thread) X(training) X(variable) X(view_as) X(with_construct)   \
    X(with_stacks)

#define DECLARE_ATTRIBUTE(name) static PyObject *attribute_##name;
ATTRIBUTES(DECLARE_ATTRIBUTE)
#undef DECLARE_ATTRIBUTE

static int names_begin(void)
{
#define INTERN_ATTRIBUTE(name)                                                                                         \
    attribute_##name = PyUnicode_InternFromString(#name);                                                              \
    if (attribute_##name == NULL) {                                                                                    \
        return -1;                                                                                                     \
    }
    ATTRIBUTES(INTERN_ATTRIBUTE)
#undef INTERN_ATTRIBUTE
    return 0;
}

#define GET(object, name) PyObject_GetAttr((object), attribute_##name)

/* 1 or 0: the attribute is true or false; -1: error. */
static int is_true(PyObject *object, PyObject *attribute)
{
    PyObject *value = PyObject_GetAttr(object, attribute);
    if (value == NULL) {
        return -1;
    }
    const int result = value == Py_True ? 1 : value == Py_False || value == Py_None ? 0 : PyObject_IsTrue(value);
    Py_DECREF(value);
    return result;
}
#define IS_TRUE(object, name) is_true((object), attribute_##name)

/* An attribute that is an int; -1 with an error set. */
static int64_t int_of(PyObject *object, PyObject *attribute)
{
    PyObject *value = PyObject_GetAttr(object, attribute);
    if (value == NULL) {
        return -1;
    }
    const int64_t number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return number;
}
#define INT_OF(object, name) int_of((object), attribute_##name)

static int set_int(PyObject *object, PyObject *attribute, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number);
    const int failed = value == NULL || PyObject_SetAttr(object, attribute, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

/* The value of an int that is let go; -1 for an error, which may be there already. */
static int64_t take_int(PyObject *number)
{
    if (number == NULL) {
        return -1;
    }
    const int64_t value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return value;
}

/* Call a method without arguments and let go of what it returns. */
static int call_method(PyObject *object, PyObject *method)
{
    PyObject *done = PyObject_CallMethodNoArgs(object, method);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}
#define CALL(object, name) call_method((object), attribute_##name)

#endif
