/* A finished record on its way into the journal: what Session.put, DumpWriter.put_call and MappedJournal.append do, for
 * the usual case. Whatever is unusual - a writer that has failed or does not yet exist, strict JSON, a journal that has
 * to grow or is not mapped - is left to these. The writer's own lock is not taken: whoever has the session's lock is
 * alone with its writer, and nothing here lets another thread run meanwhile.
 */
#ifndef MSPROBE_NATIVE_RECORDS_H
#define MSPROBE_NATIVE_RECORDS_H

#include "_native_journal.h"

/* The frames of a stack as stack.json has them. Their text is kept from the second step on that has the stack, empty
 * after the first: stacks of code that comes once and goes would pile up texts of ten thousand bytes each.
 */
static PyObject *frames_of(PyObject *stack)
{
    PyObject *known = GET(stack, text);
    if (known == NULL) {
        return NULL;
    }
    const int again = PyBytes_Check(known);
    if (again && PyBytes_GET_SIZE(known) > 0) {
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
    PyObject *kept = result == NULL ? NULL : again ? Py_NewRef(result) : PyBytes_FromStringAndSize(NULL, 0);
    if (result != NULL && (kept == NULL || PyObject_SetAttr(stack, attribute_text, kept) < 0)) {
        Py_CLEAR(result);
    }
    Py_XDECREF(kept);
    return result;
}

/* Write the frames of a stack that is new in this step. 1: written; 0: left to the writer's own method. */
static int define_frames(PyObject *writer, PyObject *id, PyObject *stack)
{
    const int kind = writer_kind(writer), wanted = DEFINES_STACKS | WITH_STACKS;
    if (kind < 0 || (kind & wanted) != wanted) {
        return kind < 0 ? -1 : 0;
    }
    char key[32], head[KEY_HEAD];
    const size_t key_size = (size_t)(put_signed(key, PyLong_AsLongLong(id)) - key);
    *head = FRAMES_KIND;
    put_little(head + 1, key_size, 4);
    PyObject *frames = frames_of(stack), *body = NULL;
    if (frames != NULL) {
        body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(KEY_HEAD + key_size) + PyBytes_GET_SIZE(frames));
    }
    int done = -1;
    if (body != NULL) {
        char *out = PyBytes_AS_STRING(body);
        memcpy(out, head, KEY_HEAD);
        memcpy(out + KEY_HEAD, key, key_size);
        memcpy(out + KEY_HEAD + key_size, PyBytes_AS_STRING(frames), (size_t)PyBytes_GET_SIZE(frames));
        const int64_t start = writer_append(writer, body);
        done = start <= 0 ? (int)start : note(writer, attribute__frames, id, frames) < 0 ? -1 : 1;
    }
    Py_XDECREF(frames);
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
    if (!PyDict_CheckExact(numbers)) {
        PyErr_SetString(PyExc_TypeError, "the numbers of stacks are no dict");
        Py_DECREF(numbers);
        return -1;
    }
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
    PyObject *ask = GET(session, has_late), *answer = NULL;
    if (ask != NULL && PyMethod_Check(ask) && PyMethod_GET_FUNCTION(ask) == usual_has_late) {
        const int late = IS_TRUE(PyMethod_GET_SELF(ask), _late);
        Py_DECREF(ask);
        return late;
    }
    answer = ask == NULL ? NULL : PyObject_CallNoArgs(ask);
    Py_XDECREF(ask);
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
    const int kind = writer == NULL ? -1 : writer_kind(writer);
    if (kind > 0 && kind & IS_USUAL) {
        records = GET(writer, _records);
        key = records == NULL ? NULL : quoted(name);
        zero = key == NULL ? NULL : PyLong_FromLong(0);
        if (zero != NULL && !PyDict_CheckExact(records)) {
            PyErr_SetString(PyExc_TypeError, "the records of a writer are no dict");
        } else if (zero != NULL && PyDict_SetDefault(records, key, zero) != NULL) {
            result = 1;
        }
    } else if (kind >= 0) {
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

/* late_list_of(function): this method answers whether the attribute _late of its object is not empty */
static PyObject *native_late_list_of(PyObject *self, PyObject *function)
{
    Py_XSETREF(usual_has_late, Py_NewRef(function));
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
