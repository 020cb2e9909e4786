/* The writer of a dump and its journal: what DumpWriter.put_call and MappedJournal.append do, for the usual case. */
#ifndef MSPROBE_NATIVE_JOURNAL_H
#define MSPROBE_NATIVE_JOURNAL_H

#include "_native_encode.h"
#include "_native_names.h"

/* See entries.py and journal.py of the store. */
enum { FRAMES_KIND = 2, CALL_KIND = 5, FRAMES_DEPTH = 2, RECORD_DEPTH = 2 };
enum { KEY_HEAD = 5, CALL_TAIL = 12, FRAME_HEAD = 12, MOST_QUOTED = 20000 };

#define LENGTH_BITS 32 /* of a body, in the head of its frame and in a place: position << LENGTH_BITS | length */
#define LONGEST_BODY 0xFFFFFFFFLL

static PyObject *usual_put_call, *usual_define_stack; /* the functions of DumpWriter that this stands for */
static PyObject *usual_has_late;  /* that of the statistics: whether their list of late descriptions is empty */
static PyObject *usual_encode;    /* the encoder that this has built in */
static PyObject *journal_digest;  /* (bytes, seed) -> 64 bits */
static PyObject *quoted_parents;  /* text -> its JSON string */

static char *put_little(char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        *out++ = (char)(value >> (8 * i));
    }
    return out;
}

/* Where the body of the new frame stands; 0: left to the journal's own method; -1: error. */
static int64_t append_mapped(PyObject *journal, PyObject *body)
{
    PyObject *map = GET(journal, _map), *generation = NULL, *digest = NULL;
    int64_t start = -1;
    if (map == NULL) { /* one that is written by plain calls */
        PyErr_Clear();
        return 0;
    }
    const int64_t length = PyBytes_GET_SIZE(body);
    if (length > LONGEST_BODY) {
        start = 0;
        goto done;
    }
    generation = GET(journal, _generation);
    if (generation == NULL) {
        goto done;
    }
    PyObject *arguments[] = {NULL, body, generation};
    digest = PyObject_Vectorcall(journal_digest, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    const uint64_t hash = digest == NULL ? 0 : PyLong_AsUnsignedLongLong(digest);
    if (digest == NULL || (hash == (uint64_t)-1 && PyErr_Occurred())) {
        goto done;
    }
    /* Asked last: whatever ran meanwhile, nothing of Python runs from here to the copy. */
    const int64_t size = INT_OF(journal, size);
    const int64_t allocated = size == -1 && PyErr_Occurred() ? -1 : INT_OF(journal, _allocated);
    if (allocated == -1 && PyErr_Occurred()) {
        goto done;
    }
    const int64_t end = size + FRAME_HEAD + length;
    if (end > allocated) {
        start = 0;
        goto done;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(map, &view, PyBUF_WRITABLE) < 0) {
        goto done;
    }
    if (size < 0 || view.len < end) {
        PyErr_SetString(PyExc_ValueError, "the journal is shorter than it says");
    } else if (set_int(journal, attribute_size, end) == 0) {
        char head[FRAME_HEAD];
        put_little(put_little(head, (uint64_t)length, 4), hash, 8);
        memcpy((char *)view.buf + size, head, FRAME_HEAD);
        memcpy((char *)view.buf + size + FRAME_HEAD, PyBytes_AS_STRING(body), (size_t)length);
        start = size + FRAME_HEAD;
    }
    PyBuffer_Release(&view);
done:
    Py_DECREF(map);
    Py_XDECREF(generation);
    Py_XDECREF(digest);
    return start;
}

/* The JSON string of a name, as bytes. */
static PyObject *quoted(PyObject *name)
{
    PyObject *known = PyDict_GetItemWithError(quoted_parents, name);
    if (known != NULL || PyErr_Occurred()) {
        return Py_XNewRef(known);
    }
    Encoder encoder;
    encoder.nesting = 0;
    encoder.depth = 0;
    text_begin(&encoder.text);
    PyObject *result = NULL;
    if (encode_string(&encoder, name) == 0) {
        result = PyBytes_FromStringAndSize(encoder.text.data, (Py_ssize_t)encoder.text.size);
    }
    text_end(&encoder.text);
    if (result != NULL) {
        if (PyDict_GET_SIZE(quoted_parents) >= MOST_QUOTED) {
            PyDict_Clear(quoted_parents);
        }
        if (PyDict_SetItem(quoted_parents, name, result) < 0) {
            Py_CLEAR(result);
        }
    }
    return result;
}

/* Whether this is the function that it was when the package was loaded. */
static int is_still(PyObject *object, PyObject *attribute, PyObject *usual)
{
    PyObject *found = PyObject_GetAttr(object, attribute);
    const int same = found == usual;
    if (found == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(found);
    return same;
}

enum { IS_USUAL = 1, DEFINES_STACKS = 2, WITH_STACKS = 4, WITH_CONSTRUCT = 8 };

/* What a writer is like, which does not change: found out once and left with it; -1: error. */
static int writer_kind(PyObject *writer)
{
    PyObject *known = GET(writer, _kind_for_compiled);
    if (known != NULL && known != Py_None) {
        return (int)take_int(known);
    }
    Py_XDECREF(known);
    const int strict = known == NULL ? -1 : IS_TRUE(writer, _strict);
    const int stacks = strict < 0 ? -1 : IS_TRUE(writer, _with_stacks);
    const int construct = stacks < 0 ? -1 : IS_TRUE(writer, _with_construct);
    if (construct < 0) {
        return -1;
    }
    PyObject *class = (PyObject *)Py_TYPE(writer);
    int kind = (stacks ? WITH_STACKS : 0) | (construct ? WITH_CONSTRUCT : 0);
    if (usual_put_call != NULL && !strict && is_still(class, attribute_put_call, usual_put_call) &&
        is_still(writer, attribute__encode, usual_encode)) {
        kind |= IS_USUAL;
        kind |= is_still(class, attribute_define_stack, usual_define_stack) ? DEFINES_STACKS : 0;
    }
    return set_int(writer, attribute__kind_for_compiled, kind) < 0 ? -1 : kind;
}

/* Key, body and origin of the frame of one record. */
typedef struct {
    PyObject *key, *body, *origin; /* owned; no origin: NULL */
} Frame;

static void frame_end(Frame *frame)
{
    Py_CLEAR(frame->key);
    Py_CLEAR(frame->body);
    Py_CLEAR(frame->origin);
}

static int frame_make(PyObject *name, PyObject *tree, int64_t stack, PyObject *parent, Frame *frame)
{
    Encoder encoder;
    Text *text = &encoder.text;
    encoder.nesting = 0;
    encoder.depth = RECORD_DEPTH;
    text_begin(text);
    int failed = -1;
    text->size = KEY_HEAD;
    if (parent != NULL) {
        frame->origin = parent == Py_None ? PyBytes_FromString("null") : quoted(parent);
        if (frame->origin == NULL) {
            goto done;
        }
    }
    if (encode_string(&encoder, name) < 0) {
        goto done;
    }
    const size_t key_size = text->size - KEY_HEAD;
    *text->data = CALL_KIND;
    put_little(text->data + 1, key_size, 4);
    frame->key = PyBytes_FromStringAndSize(text->data + KEY_HEAD, (Py_ssize_t)key_size);
    if (frame->key == NULL || TEXT_LITERAL(text, ": ") < 0 || encode_value(&encoder, tree) < 0) {
        goto done;
    }
    uint32_t length = 0xFFFFFFFF; /* no place in the hierarchy */
    if (frame->origin != NULL) {
        length = (uint32_t)PyBytes_GET_SIZE(frame->origin);
        if (text_put(text, PyBytes_AS_STRING(frame->origin), length) < 0) {
            goto done;
        }
    }
    char tail[CALL_TAIL];
    put_little(put_little(tail, (uint64_t)stack, 8), length, 4);
    if (text_put(text, tail, CALL_TAIL) < 0) {
        goto done;
    }
    frame->body = PyBytes_FromStringAndSize(text->data, (Py_ssize_t)text->size);
    failed = frame->body == NULL ? -1 : 0;
done:
    text_end(text);
    return failed;
}

/* dict[key] = value, where `dict` is an attribute of the writer. */
static int note(PyObject *writer, PyObject *attribute, PyObject *key, PyObject *value)
{
    PyObject *dict = PyObject_GetAttr(writer, attribute);
    const int failed = dict == NULL || PyObject_SetItem(dict, key, value) < 0;
    Py_XDECREF(dict);
    return failed ? -1 : 0;
}

/* The same; the value is taken over. */
static int note_new(PyObject *writer, PyObject *attribute, PyObject *key, PyObject *value)
{
    const int failed = value == NULL || note(writer, attribute, key, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

/* Position and length of a record in one number, which has more than 64 bits from a position of 2 GiB on. */
static PyObject *place_of(int64_t start, int64_t length)
{
    if (start < (int64_t)1 << (63 - LENGTH_BITS)) {
        return PyLong_FromLongLong(start << LENGTH_BITS | length);
    }
    PyObject *high = PyLong_FromLongLong(start), *low = PyLong_FromLongLong(length), *bits = PyLong_FromLong(LENGTH_BITS);
    PyObject *raised = high == NULL || low == NULL || bits == NULL ? NULL : PyNumber_Lshift(high, bits);
    PyObject *place = raised == NULL ? NULL : PyNumber_Or(raised, low);
    Py_XDECREF(high);
    Py_XDECREF(low);
    Py_XDECREF(bits);
    Py_XDECREF(raised);
    return place;
}

static int note_parent(PyObject *writer, const Frame *frame)
{
    PyObject *parents = GET(writer, _parents);
    const int known = parents == NULL ? -1 : PySequence_Contains(parents, frame->key);
    const int failed = known < 0 || (known && PyObject_SetAttr(writer, attribute__rewritten_parent, Py_True) < 0) ||
                       PyObject_SetItem(parents, frame->key, frame->origin) < 0;
    Py_XDECREF(parents);
    return failed ? -1 : 0;
}

/* Append one frame. Where its body stands; 0: the writer cannot take it this way. */
static int64_t writer_append(PyObject *writer, PyObject *body)
{
    PyObject *journal = GET(writer, _journal);
    if (journal == NULL || journal == Py_None) {
        Py_XDECREF(journal);
        return journal == NULL ? -1 : 0;
    }
    PyObject *problem = GET(writer, _problem);
    int64_t start = problem == NULL ? -1 : 0;
    if (problem == Py_None) {
        start = append_mapped(journal, body);
        if (start < 0 && (PyErr_ExceptionMatches(PyExc_OSError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
            PyErr_Clear(); /* the writer's own method meets it again, and knows what to do */
            start = 0;
        }
    }
    Py_XDECREF(problem);
    Py_DECREF(journal);
    return start;
}

/* 1: written; 0: the writer cannot take it this way now. */
static int frame_write(PyObject *writer, const Frame *frame, int64_t stack)
{
    const int64_t start = writer_append(writer, frame->body);
    if (start <= 0) {
        return (int)start;
    }
    const int64_t origin = frame->origin == NULL ? 0 : PyBytes_GET_SIZE(frame->origin);
    const int64_t length = PyBytes_GET_SIZE(frame->body) - origin - CALL_TAIL;
    if (note_new(writer, attribute__records, frame->key, place_of(start, length)) < 0 ||
        (stack >= 0 && note_new(writer, attribute__stack_of, frame->key, PyLong_FromLongLong(stack)) < 0) ||
        (frame->origin != NULL && note_parent(writer, frame) < 0)) {
        return -1;
    }
    return 1;
}

/* Take or give back a lock; an error that is set stays. */
static int lock_take(PyObject *lock) { return CALL(lock, acquire); }

static void lock_give(PyObject *lock)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (CALL(lock, release) < 0) {
        PyErr_WriteUnraisable(lock);
    }
    PyErr_Restore(type, value, trace);
}

/* DumpWriter.put_call; `stack` -1: none, `parent` NULL: no place in the hierarchy. 1: done; 0: left to the writer. */
static int writer_put(PyObject *writer, PyObject *name, PyObject *tree, int64_t stack, PyObject *parent)
{
    const int kind = writer_kind(writer);
    if (kind < 0 || !(kind & IS_USUAL) || !PyUnicode_Check(name) ||
        (parent != NULL && parent != Py_None && !PyUnicode_CheckExact(parent))) {
        return kind < 0 ? -1 : 0;
    }
    Frame frame = {NULL, NULL, NULL};
    int done = -1;
    stack = kind & WITH_STACKS ? stack : -1;
    if (frame_make(name, tree, stack, kind & WITH_CONSTRUCT ? parent : NULL, &frame) == 0) {
        done = frame_write(writer, &frame, stack);
    }
    frame_end(&frame);
    return done;
}

#endif
