/* A finished record on its way into the journal: what Session.put, DumpWriter.put_call and MappedJournal.append do, for
 * the usual case. Whatever is unusual - a writer that has failed or does not yet exist, strict JSON, a journal that has
 * to grow or is not mapped - is left to these.
 */
#ifndef MSPROBE_NATIVE_RECORDS_H
#define MSPROBE_NATIVE_RECORDS_H

#include "_native_encode.h"
#include "_native_names.h"

enum { CALL_KIND = 5, FRAMES_KIND = 2, RECORD_DEPTH = 2, FRAMES_DEPTH = 2, KEY_HEAD = 5, CALL_TAIL = 12, FRAME_HEAD = 12, MOST_QUOTED = 20000 };

static PyObject *usual_put_call, *usual_define_stack; /* the functions of DumpWriter that this stands for */
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
    const int64_t size = INT_OF(journal, size), allocated = INT_OF(journal, _allocated);
    const int64_t length = PyBytes_GET_SIZE(body), end = size + FRAME_HEAD + length;
    if ((size < 0 || allocated < 0) && PyErr_Occurred()) {
        goto done;
    }
    if (end > allocated) {
        start = 0;
        goto done;
    }
    generation = GET(journal, _generation);
    if (generation == NULL) {
        goto done;
    }
    PyObject *arguments[] = {NULL, body, generation};
    digest = PyObject_Vectorcall(journal_digest, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (digest == NULL) {
        goto done;
    }
    const uint64_t hash = PyLong_AsUnsignedLongLong(digest);
    Py_buffer view;
    if ((hash == (uint64_t)-1 && PyErr_Occurred()) || set_int(journal, attribute_size, end) < 0 ||
        PyObject_GetBuffer(map, &view, PyBUF_WRITABLE) < 0) {
        goto done;
    }
    if (view.len < end) {
        PyErr_SetString(PyExc_ValueError, "the journal is shorter than it says");
    } else {
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

/* Whether the writer is in its usual state; -1: error. */
static int is_usual(PyObject *writer)
{
    if (usual_put_call == NULL || !is_still((PyObject *)Py_TYPE(writer), attribute_put_call, usual_put_call) ||
        !is_still(writer, attribute__encode, usual_encode)) {
        return 0;
    }
    const int strict = IS_TRUE(writer, _strict);
    return strict < 0 ? -1 : !strict;
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

static int note_int(PyObject *writer, PyObject *attribute, PyObject *key, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number);
    const int failed = value == NULL || note(writer, attribute, key, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
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

/* Append one frame, with the lock of the writer held. Where its body stands; 0: the writer cannot take it this way. */
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
    }
    Py_XDECREF(problem);
    Py_DECREF(journal);
    return start;
}

/* With the lock of the writer held. 1: written; 0: the writer cannot take it this way now. */
static int frame_write(PyObject *writer, const Frame *frame, int64_t stack)
{
    const int64_t start = writer_append(writer, frame->body);
    if (start <= 0) {
        return (int)start;
    }
    const int64_t origin = frame->origin == NULL ? 0 : PyBytes_GET_SIZE(frame->origin);
    const int64_t length = PyBytes_GET_SIZE(frame->body) - origin - CALL_TAIL;
    if (note_int(writer, attribute__records, frame->key, (start << 32) | length) < 0 ||
        (stack >= 0 && note_int(writer, attribute__stack_of, frame->key, stack) < 0) ||
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
    int done = is_usual(writer);
    if (done <= 0 || !PyUnicode_Check(name) || (parent != NULL && parent != Py_None && !PyUnicode_CheckExact(parent))) {
        return done < 0 ? -1 : 0;
    }
    const int with_stacks = stack < 0 ? 0 : IS_TRUE(writer, _with_stacks);
    const int with_construct = parent == NULL ? 0 : IS_TRUE(writer, _with_construct);
    PyObject *lock = with_stacks < 0 || with_construct < 0 ? NULL : GET(writer, _lock);
    if (lock == NULL) {
        return -1;
    }
    Frame frame = {NULL, NULL, NULL};
    done = -1;
    stack = with_stacks ? stack : -1;
    if (frame_make(name, tree, stack, with_construct ? parent : NULL, &frame) == 0 && lock_take(lock) == 0) {
        done = frame_write(writer, &frame, stack);
        lock_give(lock);
    }
    frame_end(&frame);
    Py_DECREF(lock);
    return done;
}

/* The frames of a stack as stack.json has them; their text is made once. */
static PyObject *frames_of(PyObject *stack)
{
    PyObject *known = GET(stack, text);
    if (known == NULL || PyBytes_Check(known)) {
        return known;
    }
    Py_DECREF(known);
    PyObject *lines = PyObject_CallMethodNoArgs(stack, attribute_lines), *result = NULL;
    Encoder encoder;
    encoder.nesting = 0;
    encoder.depth = FRAMES_DEPTH;
    text_begin(&encoder.text);
    if (lines != NULL && encode_value(&encoder, lines) == 0) {
        result = PyBytes_FromStringAndSize(encoder.text.data, (Py_ssize_t)encoder.text.size);
    }
    text_end(&encoder.text);
    Py_XDECREF(lines);
    if (result != NULL && PyObject_SetAttr(stack, attribute_text, result) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

/* Write the frames of a stack that is new in this step. 1: written; 0: left to the writer's own method. */
static int define_frames(PyObject *writer, PyObject *id, PyObject *stack)
{
    int done = usual_define_stack == NULL ? 0 : is_usual(writer);
    if (done > 0) {
        done = is_still((PyObject *)Py_TYPE(writer), attribute_define_stack, usual_define_stack)
                   ? IS_TRUE(writer, _with_stacks)
                   : 0;
    }
    if (done <= 0) {
        return done;
    }
    char key[32], head[KEY_HEAD];
    const size_t key_size = (size_t)(put_signed(key, PyLong_AsLongLong(id)) - key);
    *head = FRAMES_KIND;
    put_little(head + 1, key_size, 4);
    PyObject *frames = frames_of(stack), *lock = frames == NULL ? NULL : GET(writer, _lock), *body = NULL;
    if (lock != NULL) {
        body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(KEY_HEAD + key_size) + PyBytes_GET_SIZE(frames));
    }
    done = -1;
    if (body != NULL) {
        char *out = PyBytes_AS_STRING(body);
        memcpy(out, head, KEY_HEAD);
        memcpy(out + KEY_HEAD, key, key_size);
        memcpy(out + KEY_HEAD + key_size, PyBytes_AS_STRING(frames), (size_t)PyBytes_GET_SIZE(frames));
        if (lock_take(lock) == 0) {
            const int64_t start = writer_append(writer, body);
            done = start <= 0 ? (int)start : note(writer, attribute__frames, id, frames) < 0 ? -1 : 1;
            lock_give(lock);
        }
    }
    Py_XDECREF(frames);
    Py_XDECREF(lock);
    Py_XDECREF(body);
    return done;
}

static int define_stack(PyObject *writer, PyObject *id, PyObject *stack)
{
    const int done = define_frames(writer, id, stack);
    if (done != 0) {
        return done < 0 ? -1 : 0;
    }
    PyObject *lines = PyObject_CallMethodNoArgs(stack, attribute_lines);
    PyObject *defined =
        lines == NULL ? NULL : PyObject_CallMethodObjArgs(writer, attribute_define_stack, id, lines, NULL);
    Py_XDECREF(lines);
    Py_XDECREF(defined);
    return defined == NULL ? -1 : 0;
}

/* The number of a stack in this step; -1: error. */
static int64_t stack_number(PyObject *session, PyObject *writer, PyObject *stack)
{
    PyObject *numbers = GET(session, _stack_numbers);
    if (numbers == NULL) {
        return -1;
    }
    int64_t number = -1;
    PyObject *known = PyDict_GetItemWithError(numbers, stack);
    if (known != NULL) {
        number = PyLong_AsLongLong(known);
    } else if (!PyErr_Occurred()) {
        PyObject *next = PyLong_FromSsize_t(PyDict_GET_SIZE(numbers));
        if (next != NULL && define_stack(writer, next, stack) == 0 && PyDict_SetItem(numbers, stack, next) == 0) {
            number = PyLong_AsLongLong(next);
        }
        Py_XDECREF(next);
    }
    Py_DECREF(numbers);
    return number;
}

/* 1: descriptions wait for numbers that are still on a device; -1: error. */
static int waits_for_numbers(PyObject *session)
{
    const int waiting = IS_TRUE(session, _late);
    if (waiting != 0) {
        return waiting;
    }
    PyObject *answer = PyObject_CallMethodNoArgs(session, attribute_has_late);
    const int late = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return late;
}

static int keep_late(PyObject *session, PyObject *name, PyObject *tree, PyObject *number, PyObject *parent)
{
    PyObject *late = GET(session, _late), *record = PyTuple_Pack(4, name, tree, number, parent);
    const int failed = late == NULL || record == NULL || PyList_Append(late, record) < 0;
    Py_XDECREF(late);
    Py_XDECREF(record);
    return failed ? -1 : 0;
}

static int put_in_order(PyObject *session, PyObject *writer, PyObject *name, PyObject *tree, PyObject *stack,
                        PyObject *parent)
{
    const int64_t records = INT_OF(session, records_in_step);
    if ((records < 0 && PyErr_Occurred()) || set_int(session, attribute_records_in_step, records + 1) < 0) {
        return -1;
    }
    int64_t number = -1;
    if (stack != NULL) {
        const int with_stacks = IS_TRUE(session, with_stacks);
        if (with_stacks < 0 || (with_stacks && (number = stack_number(session, writer, stack)) < 0)) {
            return -1;
        }
    }
    const int with_construct = parent == NULL ? 0 : IS_TRUE(session, with_construct);
    const int late = with_construct < 0 ? -1 : waits_for_numbers(session);
    if (late < 0) {
        return -1;
    }
    parent = with_construct ? parent : NULL;
    int done = late ? 0 : writer_put(writer, name, tree, number, parent);
    if (done == 0) {
        PyObject *id = number < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(number);
        PyObject *origin = parent == NULL ? Py_False : parent;
        if (id == NULL) {
            return -1;
        }
        if (late) {
            done = keep_late(session, name, tree, id, origin);
        } else {
            PyObject *put = PyObject_CallMethodObjArgs(writer, attribute_put_call, name, tree, id, origin, NULL);
            done = put == NULL ? -1 : 0;
            Py_XDECREF(put);
        }
        Py_DECREF(id);
    }
    if (done < 0) {
        return -1;
    }
    const int enough = IS_TRUE(session, end_after_record);
    if (enough <= 0) {
        return enough;
    }
    PyObject *outcome = GET(session, outcome);
    const int failed = outcome == NULL || PyObject_SetAttr(outcome, attribute_is_enough, Py_True) < 0;
    Py_XDECREF(outcome);
    return failed ? -1 : CALL(session, end);
}

/* The writer of this step, opened if need be. */
static PyObject *writer_of(PyObject *session)
{
    PyObject *writer = GET(session, _writer);
    if (writer == Py_None) {
        Py_DECREF(writer);
        writer = PyObject_CallMethodNoArgs(session, attribute__open);
    }
    return writer;
}

/* Session.put; `stack` NULL: none, `parent` NULL: no place in the hierarchy. */
static int put_record(PyObject *session, PyObject *name, PyObject *tree, PyObject *stack, PyObject *parent)
{
    PyObject *lock = GET(session, lock);
    if (lock == NULL || lock_take(lock) < 0) {
        Py_XDECREF(lock);
        return -1;
    }
    PyObject *writer = writer_of(session);
    const int failed = writer == NULL ? -1 : put_in_order(session, writer, name, tree, stack, parent);
    Py_XDECREF(writer);
    lock_give(lock);
    Py_DECREF(lock);
    return failed;
}

/* Session.reserve. 1: the name has its place; 0: it cannot have one yet; -1: error. */
static int reserve_record(PyObject *session, PyObject *name)
{
    PyObject *lock = GET(session, lock);
    if (lock == NULL || lock_take(lock) < 0) {
        Py_XDECREF(lock);
        return -1;
    }
    PyObject *writer = NULL, *records = NULL, *key = NULL, *zero = NULL, *done = NULL;
    int result = waits_for_numbers(session);
    if (result != 0) {
        result = result < 0 ? -1 : 0;
        goto end;
    }
    result = -1;
    const int64_t count = INT_OF(session, records_in_step);
    if ((count < 0 && PyErr_Occurred()) || set_int(session, attribute_records_in_step, count + 1) < 0) {
        goto end;
    }
    writer = writer_of(session);
    const int usual = writer == NULL ? -1 : is_usual(writer);
    if (usual > 0) {
        /* One step of the interpreter: no lock of the writer is needed. */
        records = GET(writer, _records);
        key = records == NULL ? NULL : quoted(name);
        zero = key == NULL ? NULL : PyLong_FromLong(0);
        if (zero != NULL && PyDict_CheckExact(records) && PyDict_SetDefault(records, key, zero) != NULL) {
            result = 1;
        }
    } else if (usual == 0) {
        done = PyObject_CallMethodOneArg(writer, attribute_reserve, name);
        result = done == NULL ? -1 : 1;
    }
end:
    Py_XDECREF(writer);
    Py_XDECREF(records);
    Py_XDECREF(key);
    Py_XDECREF(zero);
    Py_XDECREF(done);
    lock_give(lock);
    Py_DECREF(lock);
    return result;
}

/* put(session, name, tree, stack=None, parent=False) */
static PyObject *native_put(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 3 || nargs > 5) {
        PyErr_SetString(PyExc_TypeError, "put() takes a session, a name, a tree, a stack and a parent");
        return NULL;
    }
    PyObject *stack = nargs > 3 && args[3] != Py_None ? args[3] : NULL;
    PyObject *parent = nargs > 4 && args[4] != Py_False ? args[4] : NULL;
    if (put_record(args[0], args[1], args[2], stack, parent) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* stand_for(put_call, define_stack, encode, digest): what of the store is built in here, so that it is not, where that is replaced */
static PyObject *native_stand_for(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "stand_for() takes four functions");
        return NULL;
    }
    Py_XSETREF(usual_put_call, Py_NewRef(args[0]));
    Py_XSETREF(usual_define_stack, Py_NewRef(args[1]));
    Py_XSETREF(usual_encode, Py_NewRef(args[2]));
    Py_XSETREF(journal_digest, Py_NewRef(args[3]));
    Py_RETURN_NONE;
}

static int records_begin(void)
{
    quoted_parents = PyDict_New();
    return quoted_parents == NULL ? -1 : 0;
}

#endif
