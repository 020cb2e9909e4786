/* A record to the bytes that msprobe.store.encode gives it, ready fragments copied in place. */
#ifndef MSPROBE_NATIVE_ENCODE_H
#define MSPROBE_NATIVE_ENCODE_H

#include "info.h"
#include "text.h"

enum { MSP_NESTING_LIMIT = 200, MSP_LINES = 4 /* blanks of the deepest lines: LINES of msprobe.store.encode */ };

typedef struct {
    MspText text;
    Py_ssize_t depth;                  /* blanks before a line of the root's own closing bracket */
    int nesting;                       /* containers open */
    PyObject *open[MSP_NESTING_LIMIT]; /* borrowed: a container met again inside itself has no end */
} MspEncoder;

static PyObject *msp_name_text; /* "text" */

static int msp_encode_value(MspEncoder *encoder, PyObject *value);

/* Whether the items of the innermost open container stand on lines of their own. */
static int msp_encode_has_lines(const MspEncoder *encoder)
{
    return encoder->depth + encoder->nesting <= MSP_LINES;
}

static int msp_encode_newline(MspEncoder *encoder)
{
    const size_t blanks = (size_t)(encoder->depth + encoder->nesting);
    MspText *text = &encoder->text;
    if (MSP_TEXT_RESERVE(text, blanks + 1) < 0) {
        return -1;
    }
    text->data[text->size] = '\n';
    memset(text->data + text->size + 1, ' ', blanks);
    text->size += blanks + 1;
    return 0;
}

static int msp_encode_unsupported(MspEncoder *encoder, const char *reason)
{
    char fragment[128];
    const int size = PyOS_snprintf(fragment, sizeof(fragment), "{\"unsupported\":\"%s\"}", reason);
    return msp_text_put(&encoder->text, fragment, (size_t)size);
}

/* Bytes that JSON wants escaped; the rest of UTF-8 passes as it is. */
static const char *msp_escape_of(unsigned char byte, char *room)
{
    static const char hex[] = "0123456789abcdef";
    switch (byte) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\f': return "\\f";
    case '\b': return "\\b";
    default:
        if (byte >= 0x20) {
            return NULL;
        }
        memcpy(room, "\\u00", 4);
        room[4] = hex[byte >> 4];
        room[5] = hex[byte & 15];
        room[6] = 0;
        return room;
    }
}

static int msp_encode_utf8(MspText *text, const char *utf8, Py_ssize_t size)
{
    Py_ssize_t from = 0;
    char room[8];
    for (Py_ssize_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)utf8[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            continue;
        }
        const char *escape = msp_escape_of(byte, room);
        if (msp_text_put(text, utf8 + from, (size_t)(i - from)) < 0 || msp_text_put(text, escape, strlen(escape)) < 0) {
            return -1;
        }
        from = i + 1;
    }
    return msp_text_put(text, utf8 + from, (size_t)(size - from));
}

/* A text with lone surrogates is no UTF-8: piece by piece, each of them as \udXXX. */
static int msp_encode_broken_string(MspText *text, PyObject *value)
{
    const Py_ssize_t length = PyUnicode_GetLength(value);
    for (Py_ssize_t from = 0, i = 0; i <= length; i++) {
        const Py_UCS4 letter = i < length ? PyUnicode_ReadChar(value, i) : 0xD800;
        if (letter < 0xD800 || letter > 0xDFFF) {
            continue;
        }
        PyObject *part = PyUnicode_Substring(value, from, i);
        Py_ssize_t size = 0;
        const char *utf8 = part == NULL ? NULL : PyUnicode_AsUTF8AndSize(part, &size);
        const int failed = utf8 == NULL || msp_encode_utf8(text, utf8, size) < 0;
        Py_XDECREF(part);
        if (failed) {
            return -1;
        }
        if (i < length) {
            char escape[8];
            PyOS_snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)letter);
            if (msp_text_put(text, escape, 6) < 0) {
                return -1;
            }
        }
        from = i + 1;
    }
    return 0;
}

static int msp_encode_string(MspEncoder *encoder, PyObject *value)
{
    MspText *text = &encoder->text;
    Py_ssize_t size;
    if (MSP_TEXT_LITERAL(text, "\"") < 0) {
        return -1;
    }
    const char *utf8 = PyUnicode_AsUTF8AndSize(value, &size);
    if (utf8 != NULL) {
        if (msp_encode_utf8(text, utf8, size) < 0) {
            return -1;
        }
    } else {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            return -1;
        }
        PyErr_Clear();
        if (msp_encode_broken_string(text, value) < 0) {
            return -1;
        }
    }
    return MSP_TEXT_LITERAL(text, "\"");
}

static int msp_encode_number(MspText *text, char *(*put)(char *, double), double value)
{
    if (MSP_TEXT_RESERVE(text, MSP_NUMBER_ROOM) < 0) {
        return -1;
    }
    text->size = (size_t)(put(text->data + text->size, value) - text->data);
    return 0;
}

static int msp_encode_int(MspEncoder *encoder, PyObject *value)
{
    MspText *text = &encoder->text;
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow) {
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (MSP_TEXT_RESERVE(text, MSP_NUMBER_ROOM) < 0) {
            return -1;
        }
        text->size = (size_t)(msp_put_signed(text->data + text->size, number) - text->data);
        return 0;
    }
    PyObject *digits = PyLong_Type.tp_repr(value);
    if (digits == NULL) { /* longer than sys.get_int_max_str_digits() */
        if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
            return -1;
        }
        PyErr_Clear();
        return msp_encode_unsupported(encoder, "integer with too many digits");
    }
    Py_ssize_t size;
    const char *utf8 = PyUnicode_AsUTF8AndSize(digits, &size);
    const int result = utf8 == NULL ? -1 : msp_text_put(text, utf8, (size_t)size);
    Py_DECREF(digits);
    return result;
}

/* 1: opened; 0: something else was written in its place; -1: error. */
static int msp_encode_open(MspEncoder *encoder, PyObject *container)
{
    if (encoder->nesting >= MSP_NESTING_LIMIT) {
        return msp_encode_unsupported(encoder, "nested deeper than 200") < 0 ? -1 : 0;
    }
    for (int i = 0; i < encoder->nesting; i++) {
        if (encoder->open[i] == container) {
            return msp_encode_unsupported(encoder, "contains itself") < 0 ? -1 : 0;
        }
    }
    encoder->open[encoder->nesting] = container;
    return 1;
}

static int msp_encode_key(MspEncoder *encoder, PyObject *key)
{
    if (PyUnicode_Check(key)) {
        return msp_encode_string(encoder, key);
    }
    PyObject *text = PyObject_Str(key);
    if (text == NULL) {
        return -1;
    }
    const int result = msp_encode_string(encoder, text);
    Py_DECREF(text);
    return result;
}

static int msp_encode_dict(MspEncoder *encoder, PyObject *value)
{
    const int opened = msp_encode_open(encoder, value);
    if (opened <= 0) {
        return opened;
    }
    MspText *text = &encoder->text;
    Py_ssize_t position = 0, count = 0;
    PyObject *key, *item;
    encoder->nesting++;
    const int lines = msp_encode_has_lines(encoder);
    while (PyDict_Next(value, &position, &key, &item)) {
        if (msp_text_put(text, count++ == 0 ? "{" : ",", 1) < 0 || (lines && msp_encode_newline(encoder) < 0)) {
            return -1;
        }
        Py_INCREF(key);
        Py_INCREF(item);
        const int failed =
            msp_encode_key(encoder, key) < 0 || msp_text_put(text, ": ", lines ? 2 : 1) < 0 || msp_encode_value(encoder, item) < 0;
        Py_DECREF(key);
        Py_DECREF(item);
        if (failed) {
            return -1;
        }
    }
    encoder->nesting--;
    if (count == 0) {
        return MSP_TEXT_LITERAL(text, "{}");
    }
    return lines && msp_encode_newline(encoder) < 0 ? -1 : MSP_TEXT_LITERAL(text, "}");
}

static int msp_encode_sequence(MspEncoder *encoder, PyObject *value)
{
    const int opened = msp_encode_open(encoder, value);
    if (opened <= 0) {
        return opened;
    }
    MspText *text = &encoder->text;
    Py_ssize_t count = 0;
    encoder->nesting++;
    const int lines = msp_encode_has_lines(encoder);
    for (; count < PySequence_Fast_GET_SIZE(value); count++) {
        PyObject *item = PySequence_Fast_GET_ITEM(value, count);
        Py_INCREF(item);
        const int failed = msp_text_put(text, count == 0 ? "[" : ",", 1) < 0 ||
                           (lines && msp_encode_newline(encoder) < 0) || msp_encode_value(encoder, item) < 0;
        Py_DECREF(item);
        if (failed) {
            return -1;
        }
    }
    encoder->nesting--;
    if (count == 0) {
        return MSP_TEXT_LITERAL(text, "[]");
    }
    return lines && msp_encode_newline(encoder) < 0 ? -1 : MSP_TEXT_LITERAL(text, "]");
}

static int msp_encode_other(MspEncoder *encoder, PyObject *value)
{
    /* One that was made in Python may make its text only now, and has none here. */
    PyObject *known = PyObject_TypeCheck(value, &MspInfoType) ? ((MspInfo *)value)->text : Py_None;
    PyObject *fragment = known != NULL && known != Py_None ? Py_NewRef(known) : PyObject_GetAttr(value, msp_name_text);
    if (fragment == NULL || !PyBytes_Check(fragment)) {
        Py_XDECREF(fragment);
        if (fragment != NULL || PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Format(PyExc_TypeError, "a record cannot hold a value of type %.200s", Py_TYPE(value)->tp_name);
        }
        return -1;
    }
    const int result = msp_text_put(&encoder->text, PyBytes_AS_STRING(fragment), (size_t)PyBytes_GET_SIZE(fragment));
    Py_DECREF(fragment);
    return result;
}

static int msp_encode_value(MspEncoder *encoder, PyObject *value)
{
    MspText *text = &encoder->text;
    if (PyBytes_Check(value)) {
        return msp_text_put(text, PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value));
    }
    if (value == Py_None) {
        return MSP_TEXT_LITERAL(text, "null");
    }
    if (value == Py_True) {
        return MSP_TEXT_LITERAL(text, "true");
    }
    if (value == Py_False) {
        return MSP_TEXT_LITERAL(text, "false");
    }
    if (PyUnicode_Check(value)) {
        return msp_encode_string(encoder, value);
    }
    if (PyLong_Check(value)) {
        return msp_encode_int(encoder, value);
    }
    if (PyDict_Check(value)) {
        return msp_encode_dict(encoder, value);
    }
    if (PyList_Check(value) || PyTuple_Check(value)) {
        return msp_encode_sequence(encoder, value);
    }
    if (PyFloat_Check(value)) {
        return msp_encode_number(text, msp_put_double, PyFloat_AS_DOUBLE(value));
    }
    return msp_encode_other(encoder, value);
}

#endif
