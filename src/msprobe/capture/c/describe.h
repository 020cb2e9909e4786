/* The description of one tensor: an earlier one, or the elements read and the text written. */
#ifndef MSPROBE_NATIVE_DESCRIBE_H
#define MSPROBE_NATIVE_DESCRIBE_H

#include "fingerprint.h"
#include "gather.h"
#include "hash.h"
#include "memo_entries.h"
#include "tensor.h"

static int msp_put_sizes(MspText *text, const char *key, const Py_ssize_t *sizes, int count)
{
    if (msp_text_put(text, key, strlen(key)) < 0 ||
        MSP_TEXT_RESERVE(text, (size_t)count * (MSP_NUMBER_ROOM + 4) + 8) < 0) {
        return -1;
    }
    char *out = text->data + text->size;
    *out++ = '[';
    for (int i = 0; i < count; i++) {
        out = msp_put_literal(out, i == 0 ? "" : ",");
        out = msp_put_signed(out, sizes[i]);
    }
    *out++ = ']';
    text->size = (size_t)(out - text->data);
    return 0;
}

static int msp_put_bytes(MspText *text, PyObject *bytes)
{
    return msp_text_put(text, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
}

/* The CRC-32 the reference takes: half and one-byte floats are widened to float32 before. */
static uint32_t msp_crc_of(const MspType *type, const char *bytes, Py_ssize_t count)
{
    uint32_t crc = msp_crc_begin();
    if (type->kind != MSP_BFLOAT16 && type->kind != MSP_FLOAT8) {
        return msp_crc_end(msp_crc_more(crc, bytes, (size_t)(count * msp_kinds[type->kind].itemsize)));
    }
    enum { AT_ONCE = 2048 };
    const float *table = type->table == NULL ? NULL : (const float *)(const void *)PyBytes_AS_STRING(type->table);
    float wide[AT_ONCE];
    for (Py_ssize_t done = 0; done < count;) {
        const int part = (int)(count - done < AT_ONCE ? count - done : AT_ONCE);
        for (int i = 0; i < part; i++) {
            if (table != NULL) {
                wide[i] = table[(uint8_t)bytes[done + i]];
            } else {
                uint16_t half;
                memcpy(&half, bytes + 2 * (done + i), sizeof(half));
                wide[i] = msp_bfloat16_value(half);
            }
        }
        crc = msp_crc_more(crc, wide, (size_t)part * sizeof(float));
        done += part;
    }
    return msp_crc_end(crc);
}

/* What was found in the elements. */
typedef struct {
    MspSummary summary;
    uint64_t words, fingerprint;
    uint32_t crc;
    MspRow row;
    MspRowExtremes extremes;
} MspReading;

/* The numbers of the elements, and their row: in one pass where they are adjacent and in logical order. */
static void msp_read_with_row(const MspMemo *memo, const MspFacts *facts, const MspType *type, const MspLayout *layout,
                              int contiguous, const float *table, MspReading *reading)
{
    const char *address = (const char *)(uintptr_t)facts->address;
    if (!contiguous) {
        msp_read_numbers(type->kind, address, layout, table, memo->further, NULL, &reading->summary);
        msp_row_take_extremes(type->kind, &reading->summary, &reading->extremes);
        msp_row_of(type->kind, address, facts->sizes, facts->strides, facts->dimensions, layout->count, table,
                   &reading->extremes, &reading->row);
        return;
    }
    MspRowState state;
    msp_row_begin(&state, layout->count);
    msp_read_numbers(type->kind, address, layout, table, memo->further, &state, &reading->summary);
    msp_row_after(type->kind, address, layout->count, table, &reading->summary, &state, &reading->extremes,
                  &reading->row);
}

/* Read the elements; needs no GIL. -1 when there is no memory for a copy. */
static int msp_read_elements(const MspMemo *memo, const MspFacts *facts, const MspType *type, const MspLayout *layout,
                             int contiguous, int numbers_known, int remember, int with_row,
                             const MspRowExtremes *extremes, MspReading *reading)
{
    const char *address = (const char *)(uintptr_t)facts->address, *ordered = address;
    const int itemsize = msp_kinds[type->kind].itemsize;
    char *copy = NULL;
    if ((memo->crc || memo->mode == MSP_XOR) && !contiguous) {
        if (layout->count > PY_SSIZE_T_MAX / itemsize) {
            return -1;
        }
        ordered = copy = PyMem_RawMalloc((size_t)(layout->count * itemsize));
        if (copy == NULL) {
            return -1;
        }
        msp_gather_elements(address, facts->sizes, facts->strides, facts->dimensions, itemsize, copy);
    }
    const float *table = type->table == NULL ? NULL : (const float *)(const void *)PyBytes_AS_STRING(type->table);
    if (with_row && !numbers_known) {
        msp_read_with_row(memo, facts, type, layout, contiguous, table, reading);
    } else if (with_row) {
        if (extremes == NULL) {
            msp_summarise(type->kind, address, layout, table, NULL, &reading->summary);
            msp_row_take_extremes(type->kind, &reading->summary, &reading->extremes);
        } else {
            reading->extremes = *extremes;
        }
        msp_row_of(type->kind, address, facts->sizes, facts->strides, facts->dimensions, layout->count, table,
                   &reading->extremes, &reading->row);
    } else if (memo->mode == MSP_STATISTICS && !numbers_known && layout->count > 0) {
        msp_read_numbers(type->kind, address, layout, table, memo->further, NULL, &reading->summary);
    }
    if (memo->mode == MSP_XOR) {
        reading->words = msp_xor_words(ordered, (size_t)(layout->count * itemsize));
    }
    if (memo->crc) {
        reading->crc = msp_crc_of(type, ordered, layout->count);
    }
    if (!numbers_known && remember) {
        reading->fingerprint = msp_fingerprint_of(address, layout, itemsize, memo->exact);
    }
    PyMem_RawFree(copy);
    return 0;
}

/* The text of other statistics than the usual ones is made in Python. -1 with an error set. */
static int msp_render_reading(const MspMemo *memo, const MspType *type, int flags, const MspLayout *layout,
                              const MspReading *reading, MspContent *content)
{
    PyObject *found = msp_statistic_numbers_of(type->kind, flags, layout->count, memo->further, &reading->summary);
    PyObject *rendered = found == NULL ? NULL : PyObject_CallOneArg(memo->render, found);
    const char *text, *counts;
    Py_ssize_t text_size, counts_size;
    int failed = rendered == NULL ||
                 !PyArg_ParseTuple(rendered, "y#y#i", &text, &text_size, &counts, &counts_size, &content->answer);
    if (!failed &&
        (text_size > (Py_ssize_t)sizeof(content->text) || counts_size > (Py_ssize_t)sizeof(content->counts))) {
        PyErr_SetString(PyExc_ValueError, "more statistics than the memo has room for");
        failed = 1;
    }
    if (!failed) {
        memcpy(content->text, text, (size_t)text_size);
        memcpy(content->counts, counts, (size_t)counts_size);
        content->text_size = (int)text_size;
        content->counts_size = (int)counts_size;
    }
    Py_XDECREF(found);
    Py_XDECREF(rendered);
    return failed ? -1 : 0;
}

static int msp_write_reading(const MspMemo *memo, const MspFacts *facts, const MspType *type, const MspLayout *layout,
                             int numbers_known, int remember, const MspReading *reading, MspContent *content)
{
    char *text = content->text, *counts = content->counts;
    if (memo->mode == MSP_XOR) {
        if (layout->count == 0) {
            text = msp_put_literal(text, "\"md5\":null");
        } else {
            text += PyOS_snprintf(text, sizeof(content->text), "\"md5\":\"0x%08x%08x\"",
                                  (unsigned)(reading->words >> 32), (unsigned)reading->words);
        }
        content->text_size = (int)(text - content->text);
    } else if (!numbers_known) {
        const int flags = memo->flags | (facts->dimensions == 0 ? MSP_SCALAR : 0);
        if (memo->render != NULL && msp_render_reading(memo, type, flags, layout, reading, content) < 0) {
            return -1;
        }
        if (memo->render == NULL) {
            content->answer = msp_write_summary(type->kind, flags, layout->count, &reading->summary, &text, &counts);
            content->text_size = (int)(text - content->text);
            content->counts_size = (int)(counts - content->counts);
        }
    }
    content->has_crc = memo->crc;
    content->crc = memo->crc ? reading->crc : 0;
    if (!numbers_known && remember) {
        content->fingerprint = reading->fingerprint;
    }
    return 0;
}

static PyObject *msp_put_together(const MspMemo *memo, const MspFacts *facts, const MspType *type, int contiguous,
                                  const MspContent *content)
{
    PyObject *bytes = NULL, *cut = NULL, *info = NULL;
    char md5[32], row[MSP_NUMBER_ROOM];
    MspText text;
    md5[0] = row[0] = 0;
    if (content->row >= 0) {
        PyOS_snprintf(row, sizeof(row), MSP_SEPARATOR "\"row\":%zd", content->row);
    }
    if (content->has_crc) {
        PyOS_snprintf(md5, sizeof(md5), MSP_SEPARATOR "\"md5\":\"%08x\"", (unsigned)content->crc);
    }
    msp_text_begin(&text);
    if (MSP_TEXT_LITERAL(&text, "{\"type\":\"torch.Tensor\",\"dtype\":\"") < 0 ||
        msp_text_put(&text, type->name, strlen(type->name)) < 0 ||
        msp_put_sizes(&text, "\",\"shape\":", facts->sizes, facts->dimensions) < 0 ||
        MSP_TEXT_LITERAL(&text, MSP_SEPARATOR) < 0 ||
        msp_text_put(&text, content->text, (size_t)content->text_size) < 0 ||
        (content->text_size > 0 && MSP_TEXT_LITERAL(&text, MSP_SEPARATOR) < 0) ||
        (facts->requires_grad ? MSP_TEXT_LITERAL(&text, "\"requires_grad\":true")
                              : MSP_TEXT_LITERAL(&text, "\"requires_grad\":false")) < 0 ||
        msp_text_put(&text, md5, strlen(md5)) < 0) {
        goto done;
    }
    cut = PyLong_FromSize_t(text.size);
    if (cut == NULL ||
        (!contiguous && msp_put_sizes(&text, MSP_SEPARATOR "\"stride\":", facts->strides, facts->dimensions) < 0) ||
        (content->counts_size > 0 && (MSP_TEXT_LITERAL(&text, MSP_SEPARATOR) < 0 ||
                                      msp_text_put(&text, content->counts, (size_t)content->counts_size) < 0)) ||
        (content->digest != NULL && (MSP_TEXT_LITERAL(&text, MSP_SEPARATOR "\"digest\":\"") < 0 ||
                                     msp_put_bytes(&text, content->digest) < 0 || MSP_TEXT_LITERAL(&text, "\"") < 0)) ||
        msp_text_put(&text, row, strlen(row)) < 0 || MSP_TEXT_LITERAL(&text, "}") < 0) {
        goto done;
    }
    bytes = PyBytes_FromStringAndSize(text.data, (Py_ssize_t)text.size);
    if (bytes != NULL) {
        PyObject *nonfinite = memo->mode != MSP_STATISTICS ? Py_None : content->answer != 0 ? Py_True : Py_False;
        PyObject *arguments[] = {NULL, bytes, cut, nonfinite};
        info = memo->plain_info
                   ? msp_info_new((PyTypeObject *)memo->info_class, bytes, cut, nonfinite)
                   : PyObject_Vectorcall(memo->info_class, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
done:
    msp_text_end(&text);
    Py_XDECREF(bytes);
    Py_XDECREF(cut);
    return info;
}

/* The digest is computed in Python: xxhash is a library of its own. NULL with an error set. */
static PyObject *msp_take_digest(const MspMemo *memo, PyObject *tensor, MspFacts *facts, const MspType *type,
                                 int contiguous)
{
    if (msp_facts_ask_sizes(tensor, facts) < 0) {
        return NULL;
    }
    PyObject *digest =
        PyObject_CallFunction(memo->digest, "KOOiO", (unsigned long long)facts->address, facts->shape, facts->stride,
                              msp_kinds[type->kind].itemsize, contiguous ? Py_True : Py_False);
    if (digest != NULL && !PyBytes_Check(digest)) {
        Py_DECREF(digest);
        PyErr_SetString(PyExc_TypeError, "expected the text of a digest");
        return NULL;
    }
    return digest;
}

/* The description that was given of these elements, if they are still the same. NULL, maybe with an error set: none. */
static PyObject *msp_describe_known(const MspMemo *memo, PyObject *tensor, MspFacts *facts)
{
    const MspEntry *entry = msp_memo_find(memo, facts->cell);
    const MspType *type = msp_memo_type(memo, facts->dtype);
    if (entry == NULL || type == NULL || facts->negated || !msp_entry_is_current(memo, entry, facts->version)) {
        return NULL;
    }
    const MspView *view = msp_find_view(entry, facts);
    if (view == NULL) {
        return NULL;
    }
    const uint64_t expected = view->fingerprint;
    PyObject *info = Py_NewRef(view->info);
    if (!msp_entry_lives(memo, entry, tensor)) {
        Py_CLEAR(info);
    } else if (memo->mode != MSP_STRUCTURE) {
        const int itemsize = msp_kinds[type->kind].itemsize;
        MspLayout layout;
        msp_arrange(facts->sizes, facts->strides, facts->dimensions, &layout);
        if (msp_is_readable(memo, tensor, facts, &layout, itemsize) <= 0) {
            Py_CLEAR(info);
        } else if (msp_fingerprint_of((const char *)(uintptr_t)facts->address, &layout, itemsize, memo->exact) !=
                   expected) {
            Py_CLEAR(info);
            msp_memo_expose(memo, facts->cell);
        }
    }
    return info;
}

/* Whether the elements belong to somebody else, who may write them: an array of numpy, a file. -1: error. Weights that
 * were loaded lie in memory of others as well, which nobody writes. */
static int msp_is_shared(const MspMemo *memo, PyObject *tensor, const MspFacts *facts)
{
    if (facts->storage == NULL || (PyObject *)Py_TYPE(tensor) == memo->parameter) {
        return 0;
    }
    const int resizable = msp_take_truth(PyObject_CallMethodNoArgs(facts->storage, msp_name_resizable));
    return resizable < 0 ? -1 : !resizable;
}

/* The row of elements that were known. */
static int msp_note_row(MspEntry *entry, const MspFacts *facts, const MspLayout *layout, int contiguous,
                        const MspContent *content)
{
    MspBlock *block = msp_find_block(entry, facts, layout);
    if (block != NULL) {
        block->row = contiguous ? content->row : block->row;
        block->extremes = content->extremes;
        block->has_extremes = 1;
    }
    return 0;
}

/* A new description; NULL, with or without an error set, where the tensor is not an everyday one. */
static PyObject *msp_describe_new(MspMemo *memo, PyObject *tensor, MspFacts *facts, int remember)
{
    const MspType *type = msp_memo_type(memo, facts->dtype);
    if (type == NULL || facts->negated || type->kind == MSP_COMPLEX64 || type->kind == MSP_COMPLEX128) {
        return NULL;
    }
    if (memo->mode == MSP_XOR && facts->dimensions == 0 && (msp_is_float(type->kind) || type->kind == MSP_FLOAT8)) {
        return NULL; /* its value stands for it */
    }
    if (facts->on_cpu < 0 && msp_take_truth(PyObject_GetAttr(tensor, msp_name_is_cpu)) <= 0) {
        return NULL;
    }
    MspLayout layout;
    msp_arrange(facts->sizes, facts->strides, facts->dimensions, &layout);
    if (msp_is_readable(memo, tensor, facts, &layout, msp_kinds[type->kind].itemsize) <= 0) {
        return NULL;
    }
    const int shared = remember ? msp_is_shared(memo, tensor, facts) : 0;
    if (shared < 0) {
        return NULL;
    }
    remember = remember && !shared;
    facts->complete = 1;
    const int contiguous = msp_is_contiguous(facts);
    MspContent content;
    memset(&content, 0, offsetof(MspContent, text));
    content.row = -1;
    MspEntry *entry = msp_memo_find(memo, facts->cell);
    MspRowTable *rows = (MspRowTable *)memo->rows;
    const int with_row = rows != NULL && rows->on && memo->mode == MSP_STATISTICS && layout.count > 0;
    int known = 0;
    if (memo->mode == MSP_STATISTICS && entry != NULL && msp_entry_is_current(memo, entry, facts->version) &&
        msp_entry_lives(memo, entry, tensor) && (entry = msp_memo_find(memo, facts->cell)) != NULL) {
        const MspBlock *block = msp_find_block(entry, facts, &layout);
        const uint64_t found = block == NULL ? 0
                                             : msp_fingerprint_of((const char *)(uintptr_t)facts->address, &layout,
                                                                  msp_kinds[type->kind].itemsize, memo->exact);
        if (block != NULL && block->fingerprint != found) {
            msp_memo_expose(memo, facts->cell);
        } else if (block != NULL) {
            known = 1;
            content.fingerprint = found;
            content.text_size = block->text_size;
            content.counts_size = block->counts_size;
            content.answer = block->answer;
            content.row = contiguous && with_row ? block->row : -1;
            content.extremes = block->extremes;
            content.has_extremes = block->has_extremes;
            memcpy(content.text, block->text, (size_t)block->text_size);
            memcpy(content.counts, block->text + block->text_size, (size_t)block->counts_size);
            if (contiguous && block->ordered) {
                content.has_crc = memo->crc;
                content.crc = block->crc;
                content.digest = Py_XNewRef(block->digest);
            }
        }
    }
    const int new_row = with_row && content.row < 0, hashes = content.has_crc != memo->crc;
    if (memo->mode != MSP_STRUCTURE && (!known || hashes || new_row)) {
        MspReading reading;
        memo->reads += !known || hashes;
        PyThreadState *released = layout.count > MSP_GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
        const int failed = msp_read_elements(memo, facts, type, &layout, contiguous, known, remember, new_row,
                                             content.has_extremes ? &content.extremes : NULL, &reading);
        if (released != NULL) {
            PyEval_RestoreThread(released);
        }
        if (failed) {
            Py_XDECREF(content.digest);
            return PyErr_NoMemory();
        }
        if (new_row) {
            content.row = msp_row_table_add(rows, &reading.row);
            content.extremes = reading.extremes;
            content.has_extremes = 1;
        }
        if ((new_row && content.row < 0) ||
            msp_write_reading(memo, facts, type, &layout, known, remember, &reading, &content) < 0) {
            Py_XDECREF(content.digest);
            return NULL;
        }
    }
    if (type->hashed && content.digest == NULL && memo->mode != MSP_STRUCTURE) {
        content.digest = msp_take_digest(memo, tensor, facts, type, contiguous);
        if (content.digest == NULL) {
            return NULL;
        }
    }
    PyObject *info = msp_put_together(memo, facts, type, contiguous, &content);
    if (info != NULL && remember &&
        !((entry = msp_memo_find(memo, facts->cell)) != NULL && msp_entry_is_distrusted(entry, facts->version))) {
        /* Found again: the calls above may have let another thread change the memo. */
        entry = msp_memo_entry(memo, tensor, facts);
        if (entry == NULL ||
            (!known && memo->mode == MSP_STATISTICS &&
             msp_keep_block(entry, facts, type, &layout, contiguous, &content) < 0) ||
            (known && new_row && msp_note_row(entry, facts, &layout, contiguous, &content) < 0) ||
            msp_keep_view(entry, facts, type, content.fingerprint, info) < 0) {
            Py_CLEAR(info);
        }
    }
    Py_XDECREF(content.digest);
    return info;
}

static int msp_is_ordinary(const MspMemo *memo, PyObject *tensor)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(memo->ordinary); i++) {
        if ((PyObject *)Py_TYPE(tensor) == PyTuple_GET_ITEM(memo->ordinary, i)) {
            return 1;
        }
    }
    return 0;
}

/* Whether the tensor may lie in memory that nobody has written: which of it, Python knows. */
static int msp_is_unset(const MspMemo *memo, PyObject *tensor, const MspFacts *facts)
{
    const MspEntry *entry = msp_memo_find(memo, facts->cell);
    return entry != NULL && entry->unset && entry->version == facts->version && msp_entry_lives(memo, entry, tensor);
}

#endif
