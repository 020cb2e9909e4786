/* What is known of the elements in each storage: a table by address, what may still be believed, and what is
 * forgotten. */
#ifndef MSPROBE_NATIVE_MEMO_ENTRIES_H
#define MSPROBE_NATIVE_MEMO_ENTRIES_H

#include "memo_state.h"

static void msp_entry_release(MspEntry *entry)
{
    for (int i = 0; i < MSP_HOLDERS; i++) {
        Py_CLEAR(entry->holders[i]);
    }
}

static void msp_entry_forget(MspEntry *entry)
{
    MspView *views = entry->views;
    MspBlock *blocks = entry->blocks;
    entry->views = NULL;
    entry->blocks = NULL;
    entry->count = 0;
    while (views != NULL) {
        MspView *next = views->next;
        Py_DECREF(views->info);
        PyMem_Free(views);
        views = next;
    }
    while (blocks != NULL) {
        MspBlock *next = blocks->next;
        Py_XDECREF(blocks->digest);
        PyMem_Free(blocks->pattern);
        PyMem_Free(blocks);
        blocks = next;
    }
}

static Py_ssize_t msp_memo_place(const MspEntry *entries, Py_ssize_t capacity, uint64_t storage)
{
    Py_ssize_t place = (Py_ssize_t)((storage * 0x9E3779B97F4A7C15ull) >> 20) & (capacity - 1);
    while (entries[place].storage != 0 && entries[place].storage != storage) {
        place = (place + 1) & (capacity - 1);
    }
    return place;
}

static MspEntry *msp_memo_find(const MspMemo *memo, uint64_t storage)
{
    if (memo->capacity == 0) {
        return NULL;
    }
    MspEntry *entry = &memo->entries[msp_memo_place(memo->entries, memo->capacity, storage)];
    return entry->storage != 0 ? entry : NULL;
}

/* A new reference to what `weak` refers to; NULL if it is gone. */
static PyObject *msp_holder_of(PyObject *weak)
{
    PyObject *tensor = NULL;
#if PY_VERSION_HEX >= 0x030d0000
    if (PyWeakref_GetRef(weak, &tensor) < 0) {
        PyErr_Clear();
    }
#else
    tensor = PyWeakref_GetObject(weak);
    tensor = tensor == Py_None ? NULL : Py_XNewRef(tensor);
#endif
    return tensor;
}

/* Whether the entry is of the storage that has its address now: that of `tensor`. */
static int msp_entry_lives(const MspMemo *memo, const MspEntry *entry, PyObject *tensor)
{
    if (entry->weak != NULL) {
        return 1;
    }
    /* Asking may let another thread change the memo, and move the entry. */
    const uint64_t expected = entry->storage;
    PyObject *living[MSP_HOLDERS] = {NULL};
    int lives = 0;
    for (int i = 0; i < MSP_HOLDERS && entry->holders[i] != NULL; i++) {
        living[i] = msp_holder_of(entry->holders[i]);
    }
    for (int i = 0; i < MSP_HOLDERS; i++) {
        PyObject *holder = living[i];
        if (holder == NULL || lives) {
            Py_XDECREF(holder);
            continue;
        }
        uint64_t storage = expected;
        if (holder != tensor) {
            /* It may have been given another storage meanwhile. */
            PyObject *answer = memo->storage_of == NULL ? NULL : PyObject_CallOneArg(memo->storage_of, holder);
            storage = answer == NULL ? 0 : PyLong_AsUnsignedLongLong(answer);
            Py_XDECREF(answer);
            PyErr_Clear();
        }
        Py_DECREF(holder);
        lives = storage == expected;
    }
    return lives;
}

/* The weak reference to a tensor is taken over. */
static void msp_entry_hold(MspEntry *entry, PyObject *weak)
{
    int place = 0; /* where a place is free: behind the living */
    for (int i = 0; i < MSP_HOLDERS; i++) {
        PyObject *known = entry->holders[i];
        entry->holders[i] = NULL;
        if (known == weak || place == MSP_HOLDERS - 1) {
            Py_XDECREF(known);
        } else if (known != NULL) {
            PyObject *holder = msp_holder_of(known);
            if (holder == NULL) {
                Py_DECREF(known);
            } else {
                entry->holders[place++] = known;
                Py_DECREF(holder);
            }
        }
    }
    memmove(entry->holders + 1, entry->holders, (MSP_HOLDERS - 1) * sizeof(PyObject *));
    entry->holders[0] = weak;
}

/* Whether what the entry holds is true of a tensor with these facts. */
static int msp_entry_is_current(const MspMemo *memo, const MspEntry *entry, int64_t version)
{
    return entry->version == version && entry->epoch == memo->epoch && entry->trust == MSP_COUNTED;
}

static int msp_entry_is_distrusted(const MspEntry *entry, int64_t version)
{
    return entry->trust == MSP_EXPOSED || (entry->trust == MSP_UNSET && entry->version == version);
}

static int msp_memo_grow(MspMemo *memo)
{
    const Py_ssize_t capacity = memo->capacity == 0 ? 256 : memo->capacity * 2;
    MspEntry *entries = PyMem_Calloc((size_t)capacity, sizeof(MspEntry));
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < memo->capacity; i++) {
        if (memo->entries[i].storage != 0) {
            entries[msp_memo_place(entries, capacity, memo->entries[i].storage)] = memo->entries[i];
        }
    }
    PyMem_Free(memo->entries);
    memo->entries = entries;
    memo->capacity = capacity;
    return 0;
}

/* 1: the storage of a torch's weak reference is still there. */
static int msp_storage_lives(const MspMemo *memo, PyObject *weak)
{
    PyObject *expired = memo->is_expired == NULL ? NULL : PyObject_CallOneArg(memo->is_expired, weak);
    const int lives = expired == Py_False;
    Py_XDECREF(expired);
    PyErr_Clear();
    return lives;
}

/* Let go of what an entry has, which is in no table. */
static void msp_entry_drop(const MspMemo *memo, MspEntry *entry)
{
    msp_entry_forget(entry);
    msp_entry_release(entry);
    if (entry->weak == NULL) {
        return;
    }
    PyObject *done = PyObject_CallOneArg(memo->free_weak, entry->weak);
    if (done == NULL) {
        PyErr_WriteUnraisable(memo->free_weak);
    }
    Py_XDECREF(done);
    Py_CLEAR(entry->weak);
}

/* Put an entry into the table; 0: it has no place there. */
static int msp_memo_put(MspMemo *memo, const MspEntry *entry)
{
    if (4 * (memo->used + 1) > 3 * memo->capacity && msp_memo_grow(memo) < 0) {
        return 0;
    }
    MspEntry *place = &memo->entries[msp_memo_place(memo->entries, memo->capacity, entry->storage)];
    if (place->storage != 0) {
        return 0; /* of another thread, meanwhile */
    }
    *place = *entry;
    memo->used++;
    return 1;
}

/* The next look through all entries comes when there are twice as many; none where nothing tells which are gone. */
static void msp_memo_plan_sweep(MspMemo *memo)
{
    if (memo->is_expired == NULL) {
        memo->sweep_at = memo->limit;
    } else {
        memo->sweep_at = 2 * memo->used > MSP_FIRST_SWEEP ? 2 * memo->used : MSP_FIRST_SWEEP;
    }
}

/* Drop the entries of storages that are gone. A weak reference of torch's keeps a few bytes for each, in the midst of
 * the memory of tensors: what was freed around them is of no use for the next ones. */
static void msp_memo_sweep(MspMemo *memo)
{
    MspEntry *entries = memo->entries;
    const Py_ssize_t capacity = memo->capacity;
    memo->entries = NULL;
    memo->capacity = memo->used = 0;
    for (Py_ssize_t i = 0; i < capacity; i++) {
        if (entries[i].storage == 0) {
            continue;
        }
        int lives = entries[i].weak != NULL && msp_storage_lives(memo, entries[i].weak);
        for (int k = 0; k < MSP_HOLDERS && !lives && entries[i].holders[k] != NULL; k++) {
            PyObject *holder = msp_holder_of(entries[i].holders[k]);
            lives = holder != NULL;
            Py_XDECREF(holder);
        }
        if (!lives || !msp_memo_put(memo, &entries[i])) {
            msp_entry_drop(memo, &entries[i]);
        }
    }
    PyErr_Clear();
    PyMem_Free(entries);
    msp_memo_plan_sweep(memo);
}

/* Forget everything and give the weak references back; with `keep_exposed` not which living storages are exposed. */
static void msp_memo_empty(MspMemo *memo, int keep_exposed)
{
    MspEntry *entries = memo->entries;
    const Py_ssize_t capacity = memo->capacity;
    memo->entries = NULL;
    memo->capacity = memo->used = 0;
    for (Py_ssize_t i = 0; i < capacity; i++) {
        if (entries[i].storage == 0) {
            continue;
        }
        msp_entry_forget(&entries[i]);
        msp_entry_release(&entries[i]);
        const int stays = keep_exposed && entries[i].trust == MSP_EXPOSED && entries[i].weak != NULL &&
                          msp_storage_lives(memo, entries[i].weak);
        if (!stays || !msp_memo_put(memo, &entries[i])) {
            msp_entry_drop(memo, &entries[i]);
        }
    }
    PyErr_Clear();
    PyMem_Free(entries);
    msp_memo_plan_sweep(memo);
}

/* The entry of a tensor's storage, made if there is none, at this version. */
static MspEntry *msp_memo_entry(MspMemo *memo, PyObject *tensor, const MspFacts *facts)
{
    MspEntry *entry = msp_memo_find(memo, facts->cell);
    PyObject *weak = NULL, *holder = NULL;
    const int gone = entry != NULL && !msp_entry_lives(memo, entry, tensor);
    entry = msp_memo_find(memo, facts->cell); /* again: that was a call into Python */
    if (entry == NULL || entry->weak == NULL) {
        weak = facts->storage == NULL ? NULL : PyObject_CallMethodNoArgs(facts->storage, msp_name_weak_ref);
        holder = facts->storage == NULL ? PyWeakref_NewRef(tensor, NULL) : NULL;
        if (weak == NULL && holder == NULL) {
            return NULL;
        }
    }
    if (entry == NULL && memo->used >= memo->limit) {
        msp_memo_empty(memo, 0);
    } else if (entry == NULL && memo->used >= memo->sweep_at) {
        msp_memo_sweep(memo);
    }
    /* Found again: the calls above may have let another thread change the memo, and move the entry. */
    entry = msp_memo_find(memo, facts->cell);
    if (entry == NULL) {
        if ((weak == NULL && holder == NULL) ||
            (4 * (memo->used + 1) > 3 * memo->capacity && msp_memo_grow(memo) < 0)) {
            Py_XDECREF(holder);
            Py_XDECREF(weak); /* a few bytes of torch's are lost with it */
            return NULL;
        }
        entry = &memo->entries[msp_memo_place(memo->entries, memo->capacity, facts->cell)];
        *entry = (MspEntry){.storage = facts->cell, .version = facts->version, .epoch = memo->epoch};
        memo->used++;
    } else if (gone || entry->version != facts->version || entry->epoch != memo->epoch ||
               entry->count >= MSP_MAX_VIEWS) {
        msp_entry_forget(entry);
        if (gone || (entry->trust == MSP_UNSET && entry->version != facts->version)) {
            entry->trust = MSP_COUNTED;
        }
        entry->unset = entry->unset && !gone && entry->version == facts->version;
        entry->version = facts->version;
        entry->epoch = memo->epoch;
    }
    if (entry->weak != NULL) {
        Py_XDECREF(holder);
        Py_XDECREF(weak); /* another thread was faster */
    } else if (weak != NULL) {
        entry->weak = weak;
        msp_entry_release(entry);
    } else if (holder != NULL) {
        msp_entry_hold(entry, holder);
    } else {
        msp_entry_forget(entry);
        return NULL;
    }
    return entry;
}

static MspView *msp_find_view(const MspEntry *entry, const MspFacts *facts)
{
    const size_t bytes = (size_t)facts->dimensions * sizeof(Py_ssize_t);
    for (MspView *view = entry->views; view != NULL; view = view->next) {
        if (view->address == facts->address && view->dtype == facts->dtype && view->dimensions == facts->dimensions &&
            view->requires_grad == facts->requires_grad && memcmp(view->sizes, facts->sizes, bytes) == 0 &&
            memcmp(view->sizes + facts->dimensions, facts->strides, bytes) == 0) {
            return view;
        }
    }
    return NULL;
}

static int msp_keep_view(MspEntry *entry, const MspFacts *facts, const MspType *type, uint64_t fingerprint,
                         PyObject *info)
{
    const size_t count = (size_t)facts->dimensions;
    MspView *view = PyMem_Malloc(sizeof(MspView) + 2 * count * sizeof(Py_ssize_t));
    if (view == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *view = (MspView){entry->views,    facts->address,       fingerprint,      type->dtype,
                      Py_NewRef(info), facts->requires_grad, facts->dimensions};
    memcpy(view->sizes, facts->sizes, count * sizeof(Py_ssize_t));
    memcpy(view->sizes + count, facts->strides, count * sizeof(Py_ssize_t));
    entry->views = view;
    entry->count++;
    return 0;
}

static MspBlock *msp_find_block(const MspEntry *entry, const MspFacts *facts, const MspLayout *layout)
{
    const size_t bytes = (size_t)layout->dimensions * sizeof(Py_ssize_t);
    for (MspBlock *block = entry->blocks; block != NULL; block = block->next) {
        if (block->address == facts->address && block->dtype == facts->dtype &&
            block->scalar == (facts->dimensions == 0) && block->dimensions == layout->dimensions &&
            memcmp(block->pattern, layout->size, bytes) == 0 &&
            memcmp(block->pattern + layout->dimensions, layout->stride, bytes) == 0) {
            return block;
        }
    }
    return NULL;
}

static int msp_keep_block(MspEntry *entry, const MspFacts *facts, const MspType *type, const MspLayout *layout,
                          int contiguous, const MspContent *content)
{
    const size_t count = (size_t)layout->dimensions;
    MspBlock *block = PyMem_Malloc(sizeof(MspBlock) + (size_t)(content->text_size + content->counts_size));
    Py_ssize_t *pattern = PyMem_Malloc(2 * count * sizeof(Py_ssize_t));
    if (block == NULL || pattern == NULL) {
        PyMem_Free(block);
        PyMem_Free(pattern);
        PyErr_NoMemory();
        return -1;
    }
    *block = (MspBlock){.next = entry->blocks,
                        .address = facts->address,
                        .fingerprint = content->fingerprint,
                        .dtype = type->dtype,
                        .scalar = facts->dimensions == 0,
                        .answer = content->answer,
                        .ordered = contiguous,
                        .crc = content->crc,
                        .digest = contiguous ? Py_XNewRef(content->digest) : NULL,
                        .row = contiguous ? content->row : -1,
                        .extremes = content->extremes,
                        .has_extremes = content->has_extremes,
                        .dimensions = layout->dimensions,
                        .pattern = pattern,
                        .text_size = content->text_size,
                        .counts_size = content->counts_size};
    memcpy(pattern, layout->size, count * sizeof(Py_ssize_t));
    memcpy(pattern + count, layout->stride, count * sizeof(Py_ssize_t));
    memcpy(block->text, content->text, (size_t)content->text_size);
    memcpy(block->text + content->text_size, content->counts, (size_t)content->counts_size);
    entry->blocks = block;
    return 0;
}

/* Something wrote there that torch does not know of: nothing is remembered of this storage any more. */
static void msp_memo_expose(const MspMemo *memo, uint64_t cell)
{
    MspEntry *entry = msp_memo_find(memo, cell);
    if (entry != NULL) {
        msp_entry_forget(entry);
        entry->trust = MSP_EXPOSED;
    }
}

#endif
