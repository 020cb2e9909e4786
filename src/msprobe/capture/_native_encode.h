/* A record to the bytes of json.dumps(record, indent=1, ensure_ascii=False), ready fragments copied in place. */
#ifndef MSPROBE_NATIVE_ENCODE_H
#define MSPROBE_NATIVE_ENCODE_H

#include "_native_info.h"
#include "_native_text.h"

enum { NESTING_LIMIT = 200 };

typedef struct {
    Text text;
    Py_ssize_t depth;                /* blanks before a line of the root's own closing bracket */
    int nesting;                     /* containers open */
    PyObject *open[NESTING_LIMIT];   /* borrowed: a container met again inside itself has no end */
} Encoder;

static PyObject *name_text; /* "text" */

static int encode_value(Encoder *encoder, PyObject *value);

static int encode_newline(Encoder *encoder)
{
    const size_t blanks = (size_t)(encoder->depth + encoder->nesting);
    Text *text = &encoder->text;
    if (TEXT_RESERVE(text, blanks + 1) < 0) {
        return -1;
    }
    text->data[text->size] = '\n';
    memset(text->data + text->size + 1, ' ', blanks);
    text->size += blanks + 1;
    return 0;
}

static int encode_fragment(Encoder *encoder, const char *fragment, size_t size)
{
    const size_t blanks = (size_t)(encoder->depth + encoder->nesting);
    Text *text = &encoder->text;
    if (blanks == 0) {
        return text_put(text, fragment, size);
    }
    const char *const end = fragment + size;
    while (fragment < end) {
        const char *line = memchr(fragment, '\n', (size_t)(end - fragment));
        const size_t part = (size_t)((line == NULL ? end : line + 1) - fragment);
        if (TEXT_RESERVE(text, part + blanks) < 0) {
            return -1;
        }
        memcpy(text->data + text->size, fragment, part);
        text->size += part;
        fragment += part;
        if (line != NULL) {
            memset(text->data + text->size, ' ', blanks);
            text->size += blanks;
        }
    }
    return 0;
}

static int encode_unsupported(Encoder *encoder, const char *reason)
{
    char fragment[128];
    const int size = PyOS_snprintf(fragment, sizeof(fragment), "{\n \"unsupported\": \"%s\"\n}", reason);
    return encode_fragment(encoder, fragment, (size_t)size);
}

/* Bytes that JSON wants escaped; the rest of UTF-8 passes as it is. */
static const char *escape_of(unsigned char byte, char *room)
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

static int encode_utf8(Text *text, const char *utf8, Py_ssize_t size)
{
    Py_ssize_t from = 0;
    char room[8];
    for (Py_ssize_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)utf8[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            continue;
        }
        const char *escape = escape_of(byte, room);
        if (text_put(text, utf8 + from, (size_t)(i - from)) < 0 || text_put(text, escape, strlen(escape)) < 0) {
            return -1;
        }
        from = i + 1;
    }
    return text_put(text, utf8 + from, (size_t)(size - from));
}

/* A text with lone surrogates is no UTF-8: piece by piece, each of them as \udXXX. */
static int encode_broken_string(Text *text, PyObject *value)
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
        const int failed = utf8 == NULL || encode_utf8(text, utf8, size) < 0;
        Py_XDECREF(part);
        if (failed) {
            return -1;
        }
        if (i < length) {
            char escape[8];
            PyOS_snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)letter);
            if (text_put(text, escape, 6) < 0) {
                return -1;
            }
        }
        from = i + 1;
    }
    return 0;
}

static int encode_string(Encoder *encoder, PyObject *value)
{
    Text *text = &encoder->text;
    Py_ssize_t size;
    if (TEXT_LITERAL(text, "\"") < 0) {
        return -1;
    }
    const char *utf8 = PyUnicode_AsUTF8AndSize(value, &size);
    if (utf8 != NULL) {
        if (encode_utf8(text, utf8, size) < 0) {
            return -1;
        }
    } else {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            return -1;
        }
        PyErr_Clear();
        if (encode_broken_string(text, value) < 0) {
            return -1;
        }
    }
    return TEXT_LITERAL(text, "\"");
}

static int encode_number(Text *text, char *(*put)(char *, double), double value)
{
    if (TEXT_RESERVE(text, NUMBER_ROOM) < 0) {
        return -1;
    }
    text->size = (size_t)(put(text->data + text->size, value) - text->data);
    return 0;
}

static int encode_int(Encoder *encoder, PyObject *value)
{
    Text *text = &encoder->text;
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow) {
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (TEXT_RESERVE(text, NUMBER_ROOM) < 0) {
            return -1;
        }
        text->size = (size_t)(put_signed(text->data + text->size, number) - text->data);
        return 0;
    }
    PyObject *digits = PyLong_Type.tp_repr(value);
    if (digits == NULL) { /* longer than sys.get_int_max_str_digits() */
        if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
            return -1;
        }
        PyErr_Clear();
        return encode_unsupported(encoder, "integer with too many digits");
    }
    Py_ssize_t size;
    const char *utf8 = PyUnicode_AsUTF8AndSize(digits, &size);
    const int result = utf8 == NULL ? -1 : text_put(text, utf8, (size_t)size);
    Py_DECREF(digits);
    return result;
}

/* 1: opened; 0: something else was written in its place; -1: error. */
static int encode_open(Encoder *encoder, PyObject *container)
{
    if (encoder->nesting >= NESTING_LIMIT) {
        return encode_unsupported(encoder, "nested deeper than 200") < 0 ? -1 : 0;
    }
    for (int i = 0; i < encoder->nesting; i++) {
        if (encoder->open[i] == container) {
            return encode_unsupported(encoder, "contains itself") < 0 ? -1 : 0;
        }
    }
    encoder->open[encoder->nesting] = container;
    return 1;
}

static int encode_key(Encoder *encoder, PyObject *key)
{
    if (PyUnicode_Check(key)) {
        return encode_string(encoder, key);
    }
    PyObject *text = PyObject_Str(key);
    if (text == NULL) {
        return -1;
    }
    const int result = encode_string(encoder, text);
    Py_DECREF(text);
    return result;
}

static int encode_dict(Encoder *encoder, PyObject *value)
{
    const int opened = encode_open(encoder, value);
    if (opened <= 0) {
        return opened;
    }
    Text *text = &encoder->text;
    Py_ssize_t position = 0, count = 0;
    PyObject *key, *item;
    encoder->nesting++;
    while (PyDict_Next(value, &position, &key, &item)) {
        if (text_put(text, count++ == 0 ? "{" : ",", 1) < 0 || encode_newline(encoder) < 0) {
            return -1;
        }
        Py_INCREF(key);
        Py_INCREF(item);
        const int failed = encode_key(encoder, key) < 0 || TEXT_LITERAL(text, ": ") < 0 || encode_value(encoder, item) < 0;
        Py_DECREF(key);
        Py_DECREF(item);
        if (failed) {
            return -1;
        }
    }
    encoder->nesting--;
    if (count == 0) {
        return TEXT_LITERAL(text, "{}");
    }
    return encode_newline(encoder) < 0 ? -1 : TEXT_LITERAL(text, "}");
}

static int encode_sequence(Encoder *encoder, PyObject *value)
{
    const int opened = encode_open(encoder, value);
    if (opened <= 0) {
        return opened;
    }
    Text *text = &encoder->text;
    Py_ssize_t count = 0;
    encoder->nesting++;
    for (; count < PySequence_Fast_GET_SIZE(value); count++) {
        PyObject *item = PySequence_Fast_GET_ITEM(value, count);
        Py_INCREF(item);
        const int failed = text_put(text, count == 0 ? "[" : ",", 1) < 0 || encode_newline(encoder) < 0 ||
                           encode_value(encoder, item) < 0;
        Py_DECREF(item);
        if (failed) {
            return -1;
        }
    }
    encoder->nesting--;
    if (count == 0) {
        return TEXT_LITERAL(text, "[]");
    }
    return encode_newline(encoder) < 0 ? -1 : TEXT_LITERAL(text, "]");
}

static int encode_other(Encoder *encoder, PyObject *value)
{
    /* One that was made in Python may make its text only now, and has none here. */
    PyObject *known = PyObject_TypeCheck(value, &InfoType) ? ((Info *)value)->text : Py_None;
    PyObject *fragment = known != NULL && known != Py_None ? Py_NewRef(known) : PyObject_GetAttr(value, name_text);
    if (fragment == NULL || !PyBytes_Check(fragment)) {
        Py_XDECREF(fragment);
        if (fragment != NULL || PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Format(PyExc_TypeError, "a record cannot hold a value of type %.200s", Py_TYPE(value)->tp_name);
        }
        return -1;
    }
    const int result = encode_fragment(encoder, PyBytes_AS_STRING(fragment), (size_t)PyBytes_GET_SIZE(fragment));
    Py_DECREF(fragment);
    return result;
}

static int encode_value(Encoder *encoder, PyObject *value)
{
    Text *text = &encoder->text;
    if (PyBytes_Check(value)) {
        return encode_fragment(encoder, PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value));
    }
    if (value == Py_None) {
        return TEXT_LITERAL(text, "null");
    }
    if (value == Py_True) {
        return TEXT_LITERAL(text, "true");
    }
    if (value == Py_False) {
        return TEXT_LITERAL(text, "false");
    }
    if (PyUnicode_Check(value)) {
        return encode_string(encoder, value);
    }
    if (PyLong_Check(value)) {
        return encode_int(encoder, value);
    }
    if (PyDict_Check(value)) {
        return encode_dict(encoder, value);
    }
    if (PyList_Check(value) || PyTuple_Check(value)) {
        return encode_sequence(encoder, value);
    }
    if (PyFloat_Check(value)) {
        return encode_number(text, put_double, PyFloat_AS_DOUBLE(value));
    }
    return encode_other(encoder, value);
}

#endif
