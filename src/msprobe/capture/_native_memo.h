/* Descriptions of everyday tensors - strided, on the CPU, of a type that `statistics` knows - and the memory of those
 * already given. What TensorStatistics does in Python for all others is done here for nearly all.
 *
 * Knows of torch only the names of a tensor's attributes. A tensor that answers any of them with an error, or is in any
 * way unusual, is handed to `otherwise`, a Python function, with the same arguments.
 */
#ifndef MSPROBE_NATIVE_MEMO_H
#define MSPROBE_NATIVE_MEMO_H

#include "_native_exchange.h"
#include "_native_fingerprint.h"
#include "_native_hash.h"
#include "_native_info.h"
#include "_native_layout.h"
#include "_native_numbers.h"

/* One description that was given: exactly this view, in this version of the elements. */
typedef struct View {
    struct View *next;
    uint64_t address, fingerprint;
    PyObject *dtype; /* borrowed from the memo's types */
    PyObject *info;
    int requires_grad;
    int dimensions;
    Py_ssize_t sizes[]; /* and strides behind them */
} View;

/* The statistics of a set of elements, in whatever order a view shows them. */
typedef struct Block {
    struct Block *next;
    uint64_t address, fingerprint;
    PyObject *dtype;
    int scalar;
    int answer;
    int ordered;      /* the hashes below are known: those of the elements as they lie in memory */
    uint32_t crc;
    PyObject *digest; /* text, or NULL */
    int dimensions;
    Py_ssize_t *pattern; /* sizes and strides behind them; in the same piece of memory */
    int text_size, counts_size;
    char text[];
} Block;

/* The statistics of a tensor as text: the usual ones have room, and so have twice as many. */
enum { HOLDERS = 3, MOST_TEXT = 8 * NUMBER_ROOM + 128 };

/* Whether torch knows of all that is written to a storage. */
typedef enum {
    COUNTED,
    UNSET,   /* nobody has written what is meant to stand there; so until torch counts a write */
    EXPOSED, /* others know the address, or have written there already */
} Trust;

/* What is known of the elements in one storage. Something must tell when that storage is gone and its address may mean
 * another. Usually a weak reference of torch's, which keeps the address from being used again. It takes a storage
 * object, though, and in newer versions of torch one that was made counts as a user of the storage for good: the engine
 * would no longer add in place to a gradient that passes through. So gradients are known by tensors that have this
 * storage: as long as one of them lives, the storage does.
 */
typedef struct {
    uint64_t storage; /* address of the StorageImpl; 0: no entry */
    PyObject *weak;   /* torch's weak reference; NULL: the tensors tell */
    PyObject *holders[HOLDERS]; /* Python's weak references to tensors, the newest first */
    int64_t version, epoch;
    Trust trust;
    int unset; /* at this version nobody may have written it: Python knows which of it */
    View *views;
    Block *blocks;
    int count; /* of views: one buffer for everything must not become a long search */
} Entry;

typedef struct {
    PyObject *dtype;
    Kind kind;
    int hashed; /* a digest whatever the mode */
    PyObject *table;
    uint16_t code; /* of the exchange with other frameworks, see below; 0: none */
    char name[32];
} Type;

enum { MAX_TYPES = 48, MAX_VIEWS = 256 };

typedef enum { STATISTICS, XOR, STRUCTURE } Mode; /* what is said of the elements */

typedef struct {
    PyObject_HEAD
    PyObject *ordinary;   /* tuple of exact classes */
    PyObject *info_class; /* called with text, cut, nonfinite */
    PyObject *address_of; /* tensor -> address of its first element */
    PyObject *digest;     /* (address, shape, stride, itemsize, contiguous) -> text of the digest */
    PyObject *otherwise;  /* (tensor, remember) -> description */
    PyObject *render;     /* numbers -> (text, counts, answer); NULL: the usual statistics, written here */
    int further;          /* which numbers it needs, beside those of the first pass */
    PyObject *free_weak, *is_expired; /* of torch's weak references */
    PyObject *parameter;              /* the class */
    PyObject *storage_of;  /* tensor -> address of its StorageImpl; NULL: torch is so old that no storage object harms */
    PyObject *in_backward; /* () -> number of the backward pass that runs in this thread, or -1 */
    PyObject *is_lazy;     /* tensor -> whether it would copy itself on being exchanged; NULL: no telling */
    int (*to_exchanged)(void *object, Exchanged *out); /* NULL: none that we know */
    int flags;
    Mode mode;
    int exact;      /* hash all elements before they are taken for those that were read */
    int64_t epoch;  /* what was learned in an earlier one is not used any more */
    int plain_info; /* info_class is an Info that adds nothing */
    int crc; /* wanted beside the statistics */
    Py_ssize_t limit;
    Type types[MAX_TYPES];
    int type_count;
    Entry *entries; /* open addressing, a power of two of them */
    Py_ssize_t capacity, used;
    Py_ssize_t reads; /* how often elements were read for what is said of them */
} Memo;

static PyObject *name_untyped_storage, *name_cdata, *name_version, *name_dtype, *name_shape, *name_stride,
    *name_requires_grad, *name_is_neg, *name_is_cpu, *name_storage_offset, *name_nbytes, *name_weak_ref,
    *name_resizable;

static int memo_begin(void)
{
    const struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_untyped_storage, "untyped_storage"}, {&name_cdata, "_cdata"},
        {&name_version, "_version"},                {&name_dtype, "dtype"},
        {&name_shape, "shape"},                     {&name_stride, "stride"},
        {&name_requires_grad, "requires_grad"},     {&name_is_neg, "is_neg"},
        {&name_is_cpu, "is_cpu"},                   {&name_storage_offset, "storage_offset"},
        {&name_nbytes, "nbytes"},                   {&name_weak_ref, "_weak_ref"},
        {&name_resizable, "resizable"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *names[i].name = PyUnicode_InternFromString(names[i].text);
        if (*names[i].name == NULL) {
            return -1;
        }
    }
    return 0;
}

/* ---- entries ---- */

static void entry_release(Entry *entry)
{
    for (int i = 0; i < HOLDERS; i++) {
        Py_CLEAR(entry->holders[i]);
    }
}

static void entry_forget(Entry *entry)
{
    View *views = entry->views;
    Block *blocks = entry->blocks;
    entry->views = NULL;
    entry->blocks = NULL;
    entry->count = 0;
    while (views != NULL) {
        View *next = views->next;
        Py_DECREF(views->info);
        PyMem_Free(views);
        views = next;
    }
    while (blocks != NULL) {
        Block *next = blocks->next;
        Py_XDECREF(blocks->digest);
        PyMem_Free(blocks->pattern);
        PyMem_Free(blocks);
        blocks = next;
    }
}

static Py_ssize_t memo_place(const Entry *entries, Py_ssize_t capacity, uint64_t storage)
{
    Py_ssize_t place = (Py_ssize_t)((storage * 0x9E3779B97F4A7C15ull) >> 20) & (capacity - 1);
    while (entries[place].storage != 0 && entries[place].storage != storage) {
        place = (place + 1) & (capacity - 1);
    }
    return place;
}

static Entry *memo_find(const Memo *memo, uint64_t storage)
{
    if (memo->capacity == 0) {
        return NULL;
    }
    Entry *entry = &memo->entries[memo_place(memo->entries, memo->capacity, storage)];
    return entry->storage != 0 ? entry : NULL;
}

/* A new reference to what `weak` refers to; NULL if it is gone. */
static PyObject *holder_of(PyObject *weak)
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
static int entry_lives(const Memo *memo, const Entry *entry, PyObject *tensor)
{
    if (entry->weak != NULL) {
        return 1;
    }
    /* Asking may let another thread change the memo, and move the entry. */
    const uint64_t expected = entry->storage;
    PyObject *living[HOLDERS] = {NULL};
    int lives = 0;
    for (int i = 0; i < HOLDERS && entry->holders[i] != NULL; i++) {
        living[i] = holder_of(entry->holders[i]);
    }
    for (int i = 0; i < HOLDERS; i++) {
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
static void entry_hold(Entry *entry, PyObject *weak)
{
    int place = 0; /* where a place is free: behind the living */
    for (int i = 0; i < HOLDERS; i++) {
        PyObject *known = entry->holders[i];
        entry->holders[i] = NULL;
        if (known == weak || place == HOLDERS - 1) {
            Py_XDECREF(known);
        } else if (known != NULL) {
            PyObject *holder = holder_of(known);
            if (holder == NULL) {
                Py_DECREF(known);
            } else {
                entry->holders[place++] = known;
                Py_DECREF(holder);
            }
        }
    }
    memmove(entry->holders + 1, entry->holders, (HOLDERS - 1) * sizeof(PyObject *));
    entry->holders[0] = weak;
}

/* Whether what the entry holds is true of a tensor with these facts. */
static int entry_is_current(const Memo *memo, const Entry *entry, int64_t version)
{
    return entry->version == version && entry->epoch == memo->epoch && entry->trust == COUNTED;
}

static int entry_is_distrusted(const Entry *entry, int64_t version)
{
    return entry->trust == EXPOSED || (entry->trust == UNSET && entry->version == version);
}

static int memo_grow(Memo *memo)
{
    const Py_ssize_t capacity = memo->capacity == 0 ? 256 : memo->capacity * 2;
    Entry *entries = PyMem_Calloc((size_t)capacity, sizeof(Entry));
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < memo->capacity; i++) {
        if (memo->entries[i].storage != 0) {
            entries[memo_place(entries, capacity, memo->entries[i].storage)] = memo->entries[i];
        }
    }
    PyMem_Free(memo->entries);
    memo->entries = entries;
    memo->capacity = capacity;
    return 0;
}

/* 1: the storage of a torch's weak reference is still there. */
static int storage_lives(const Memo *memo, PyObject *weak)
{
    PyObject *expired = memo->is_expired == NULL ? NULL : PyObject_CallOneArg(memo->is_expired, weak);
    const int lives = expired == Py_False;
    Py_XDECREF(expired);
    PyErr_Clear();
    return lives;
}

/* Forget everything and give the weak references back; with `keep_exposed` not which living storages are exposed. */
static void memo_empty(Memo *memo, int keep_exposed)
{
    Entry *entries = memo->entries;
    const Py_ssize_t capacity = memo->capacity;
    memo->entries = NULL;
    memo->capacity = memo->used = 0;
    for (Py_ssize_t i = 0; i < capacity; i++) {
        if (entries[i].storage == 0) {
            continue;
        }
        entry_forget(&entries[i]);
        entry_release(&entries[i]);
        if (entries[i].weak == NULL) {
            continue;
        }
        if (keep_exposed && entries[i].trust == EXPOSED && storage_lives(memo, entries[i].weak) &&
            (4 * (memo->used + 1) <= 3 * memo->capacity || memo_grow(memo) == 0)) {
            Entry *place = &memo->entries[memo_place(memo->entries, memo->capacity, entries[i].storage)];
            if (place->storage == 0) {
                *place = entries[i];
                memo->used++;
                continue;
            }
        }
        PyObject *done = PyObject_CallOneArg(memo->free_weak, entries[i].weak);
        if (done == NULL) {
            PyErr_WriteUnraisable(memo->free_weak);
        }
        Py_XDECREF(done);
        Py_DECREF(entries[i].weak);
    }
    PyErr_Clear();
    PyMem_Free(entries);
}

/* ---- one tensor ---- */

typedef struct {
    PyObject *dtype, *shape, *stride; /* owned; the sizes NULL until somebody asks */
    int on_cpu;                       /* 1: it is; -1: not asked */
    PyObject *storage;                /* owned; NULL: not asked for, because the tensor must not notice */
    uint64_t cell, address;
    int64_t version;
    int requires_grad, negated;
    int dimensions;
    Py_ssize_t sizes[MAX_DIMENSIONS], strides[MAX_DIMENSIONS];
} Facts;

/* The entry of a tensor's storage, made if there is none, at this version. */
static Entry *memo_entry(Memo *memo, PyObject *tensor, const Facts *facts)
{
    Entry *entry = memo_find(memo, facts->cell);
    PyObject *weak = NULL, *holder = NULL;
    const int gone = entry != NULL && !entry_lives(memo, entry, tensor);
    entry = memo_find(memo, facts->cell); /* again: that was a call into Python */
    if (entry == NULL || entry->weak == NULL) {
        weak = facts->storage == NULL ? NULL : PyObject_CallMethodNoArgs(facts->storage, name_weak_ref);
        holder = facts->storage == NULL ? PyWeakref_NewRef(tensor, NULL) : NULL;
        if (weak == NULL && holder == NULL) {
            return NULL;
        }
    }
    if (entry == NULL && memo->used >= memo->limit) {
        memo_empty(memo, 0);
    }
    /* Found again: the calls above may have let another thread change the memo, and move the entry. */
    entry = memo_find(memo, facts->cell);
    if (entry == NULL) {
        if ((weak == NULL && holder == NULL) ||
            (4 * (memo->used + 1) > 3 * memo->capacity && memo_grow(memo) < 0)) {
            Py_XDECREF(holder);
            Py_XDECREF(weak); /* a few bytes of torch's are lost with it */
            return NULL;
        }
        entry = &memo->entries[memo_place(memo->entries, memo->capacity, facts->cell)];
        *entry = (Entry){.storage = facts->cell, .version = facts->version, .epoch = memo->epoch};
        memo->used++;
    } else if (gone || entry->version != facts->version || entry->epoch != memo->epoch || entry->count >= MAX_VIEWS) {
        entry_forget(entry);
        if (gone || (entry->trust == UNSET && entry->version != facts->version)) {
            entry->trust = COUNTED;
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
        entry_release(entry);
    } else if (holder != NULL) {
        entry_hold(entry, holder);
    } else {
        entry_forget(entry);
        return NULL;
    }
    return entry;
}

static void facts_end(Facts *facts)
{
    Py_XDECREF(facts->storage);
    Py_XDECREF(facts->dtype);
    Py_XDECREF(facts->shape);
    Py_XDECREF(facts->stride);
}

static int take_unsigned(PyObject *number, uint64_t *value)
{
    if (number == NULL) {
        return -1;
    }
    *value = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return *value == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

static int take_signed(PyObject *number, int64_t *value)
{
    if (number == NULL) {
        return -1;
    }
    *value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int take_truth(PyObject *truth)
{
    if (truth == NULL) {
        return -1;
    }
    const int value = PyObject_IsTrue(truth);
    Py_DECREF(truth);
    return value;
}

static int facts_read_storage(PyObject *tensor, Facts *facts)
{
    facts->storage = PyObject_CallMethodNoArgs(tensor, name_untyped_storage);
    return facts->storage == NULL ? -1 : take_unsigned(PyObject_GetAttr(facts->storage, name_cdata), &facts->cell);
}

/* Whether this may be a gradient on its way through the backward pass of this thread. */
static int is_passing(const Memo *memo, const Facts *facts)
{
    int64_t number = -1;
    if (!facts->requires_grad && take_signed(PyObject_CallNoArgs(memo->in_backward), &number) < 0) {
        return -1;
    }
    return number != -1;
}

/* Shape and strides as objects of Python. */
static int facts_ask_sizes(PyObject *tensor, Facts *facts)
{
    if (facts->stride == NULL) {
        Py_XDECREF(facts->shape);
        facts->shape = PyObject_GetAttr(tensor, name_shape);
        facts->stride = facts->shape == NULL ? NULL : PyObject_CallMethodNoArgs(tensor, name_stride);
    }
    return facts->stride == NULL ? -1 : 0;
}

/* Address, type, shape and strides in one call. 1: known; 0: they have to be asked for one by one; -1: error. */
static int facts_exchange(const Memo *memo, PyObject *tensor, Facts *facts)
{
    Exchanged found;
    if (memo->to_exchanged == NULL || memo->is_lazy == NULL) {
        return 0;
    }
    const int lazy = take_truth(PyObject_CallOneArg(memo->is_lazy, tensor));
    if (lazy != 0) {
        return lazy < 0 ? -1 : 0;
    }
    if (memo->to_exchanged(tensor, &found) != 0) {
        PyErr_Clear(); /* another kind of memory, a type that nobody else knows */
        return 0;
    }
    const uint16_t code = (uint16_t)(found.code << 8 | found.bits);
    if (found.device_type != ON_CPU || found.lanes != 1 || found.dimensions < 0 || found.dimensions > MAX_DIMENSIONS ||
        code == 0 || (found.dimensions > 0 && (found.shape == NULL || found.strides == NULL))) {
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

static int facts_read(const Memo *memo, PyObject *tensor, Facts *facts)
{
    facts->requires_grad = take_truth(PyObject_GetAttr(tensor, name_requires_grad));
    if (facts->requires_grad < 0) {
        return -1;
    }
    if ((memo->storage_of == NULL ? facts_read_storage(tensor, facts)
                                  : take_unsigned(PyObject_CallOneArg(memo->storage_of, tensor), &facts->cell)) < 0) {
        return -1;
    }
    facts->on_cpu = -1;
    if (take_signed(PyObject_GetAttr(tensor, name_version), &facts->version) < 0) {
        return -1;
    }
    const int known = facts_exchange(memo, tensor, facts);
    if (known < 0 || (!known && take_unsigned(PyObject_CallOneArg(memo->address_of, tensor), &facts->address) < 0)) {
        return -1;
    }
    if (!known) {
        facts->dtype = PyObject_GetAttr(tensor, name_dtype);
        if (facts->dtype == NULL || facts_ask_sizes(tensor, facts) < 0) {
            return -1;
        }
        facts->dimensions = read_sizes(facts->shape, facts->sizes);
        if (facts->dimensions < 0 || read_sizes(facts->stride, facts->strides) != facts->dimensions) {
            return -1;
        }
    }
    facts->negated = take_truth(PyObject_CallMethodNoArgs(tensor, name_is_neg));
    return facts->negated < 0 ? -1 : 0;
}

static const Type *memo_type(const Memo *memo, PyObject *dtype)
{
    for (int i = 0; i < memo->type_count; i++) {
        if (memo->types[i].dtype == dtype) {
            return &memo->types[i];
        }
    }
    return NULL;
}

static View *find_view(const Entry *entry, const Facts *facts)
{
    const size_t bytes = (size_t)facts->dimensions * sizeof(Py_ssize_t);
    for (View *view = entry->views; view != NULL; view = view->next) {
        if (view->address == facts->address && view->dtype == facts->dtype && view->dimensions == facts->dimensions &&
            view->requires_grad == facts->requires_grad && memcmp(view->sizes, facts->sizes, bytes) == 0 &&
            memcmp(view->sizes + facts->dimensions, facts->strides, bytes) == 0) {
            return view;
        }
    }
    return NULL;
}

static int keep_view(Entry *entry, const Facts *facts, const Type *type, uint64_t fingerprint, PyObject *info)
{
    const size_t count = (size_t)facts->dimensions;
    View *view = PyMem_Malloc(sizeof(View) + 2 * count * sizeof(Py_ssize_t));
    if (view == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *view = (View){entry->views, facts->address, fingerprint, type->dtype, Py_NewRef(info), facts->requires_grad,
                   facts->dimensions};
    memcpy(view->sizes, facts->sizes, count * sizeof(Py_ssize_t));
    memcpy(view->sizes + count, facts->strides, count * sizeof(Py_ssize_t));
    entry->views = view;
    entry->count++;
    return 0;
}

static Block *find_block(const Entry *entry, const Facts *facts, const Layout *layout)
{
    const size_t bytes = (size_t)layout->dimensions * sizeof(Py_ssize_t);
    for (Block *block = entry->blocks; block != NULL; block = block->next) {
        if (block->address == facts->address && block->dtype == facts->dtype &&
            block->scalar == (facts->dimensions == 0) && block->dimensions == layout->dimensions &&
            memcmp(block->pattern, layout->size, bytes) == 0 &&
            memcmp(block->pattern + layout->dimensions, layout->stride, bytes) == 0) {
            return block;
        }
    }
    return NULL;
}

/* What is said of the elements: statistics or XOR, counts, and the hashes. */
typedef struct {
    int text_size, counts_size, answer;
    int has_crc;
    uint32_t crc;
    uint64_t fingerprint;
    PyObject *digest; /* owned */
    char text[MOST_TEXT], counts[3 * NUMBER_ROOM + 64]; /* last: not to be cleared for each tensor */
} Content;

static int keep_block(Entry *entry, const Facts *facts, const Type *type, const Layout *layout, int contiguous,
                      const Content *content)
{
    const size_t count = (size_t)layout->dimensions;
    Block *block = PyMem_Malloc(sizeof(Block) + (size_t)(content->text_size + content->counts_size));
    Py_ssize_t *pattern = PyMem_Malloc(2 * count * sizeof(Py_ssize_t));
    if (block == NULL || pattern == NULL) {
        PyMem_Free(block);
        PyMem_Free(pattern);
        PyErr_NoMemory();
        return -1;
    }
    *block = (Block){.next = entry->blocks,
                     .address = facts->address,
                     .fingerprint = content->fingerprint,
                     .dtype = type->dtype,
                     .scalar = facts->dimensions == 0,
                     .answer = content->answer,
                     .ordered = contiguous,
                     .crc = content->crc,
                     .digest = contiguous ? Py_XNewRef(content->digest) : NULL,
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

static int is_contiguous(const Facts *facts)
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
static int lies_inside(PyObject *tensor, const Facts *facts, const Layout *layout, int itemsize)
{
    int64_t last, bytes;
    if (layout->count == 0) {
        return 1;
    }
    if (facts->address == 0 || facts->storage == NULL) {
        return facts->address != 0;
    }
    if (take_signed(PyObject_CallMethodNoArgs(tensor, name_storage_offset), &last) < 0 ||
        take_signed(PyObject_CallMethodNoArgs(facts->storage, name_nbytes), &bytes) < 0) {
        return -1;
    }
    for (int i = 0; i < layout->dimensions; i++) {
        last += (layout->size[i] - 1) * layout->stride[i];
    }
    return (last + 1) * itemsize <= bytes;
}

/* Whether the elements may be read: as lies_inside(). */
static int is_readable(const Memo *memo, PyObject *tensor, Facts *facts, const Layout *layout, int itemsize)
{
    if (facts->storage == NULL) {
        const int passing = is_passing(memo, facts);
        if (passing < 0 || (!passing && facts_read_storage(tensor, facts) < 0)) {
            return -1;
        }
    }
    return lies_inside(tensor, facts, layout, itemsize);
}

static int put_sizes(Text *text, const char *key, const Py_ssize_t *sizes, int count)
{
    if (text_put(text, key, strlen(key)) < 0 || TEXT_RESERVE(text, (size_t)count * (NUMBER_ROOM + 4) + 8) < 0) {
        return -1;
    }
    char *out = text->data + text->size;
    *out++ = '[';
    for (int i = 0; i < count; i++) {
        out = put_literal(out, i == 0 ? "\n  " : ",\n  ");
        out = put_signed(out, sizes[i]);
    }
    out = put_literal(out, count == 0 ? "]" : "\n ]");
    text->size = (size_t)(out - text->data);
    return 0;
}

static int put_bytes(Text *text, PyObject *bytes)
{
    return text_put(text, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
}

/* The CRC-32 the reference takes: half and one-byte floats are widened to float32 before. */
static uint32_t crc_of(const Type *type, const char *bytes, Py_ssize_t count)
{
    uint32_t crc = crc_begin();
    if (type->kind != BFLOAT16 && type->kind != FLOAT8) {
        return crc_end(crc_more(crc, bytes, (size_t)(count * kinds[type->kind].itemsize)));
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
                wide[i] = bfloat16_value(half);
            }
        }
        crc = crc_more(crc, wide, (size_t)part * sizeof(float));
        done += part;
    }
    return crc_end(crc);
}

/* What was found in the elements. */
typedef struct {
    Summary summary;
    uint64_t words, fingerprint;
    uint32_t crc;
} Reading;

/* Read the elements; needs no GIL. -1 when there is no memory for a copy. */
static int read_elements(const Memo *memo, const Facts *facts, const Type *type, const Layout *layout, int contiguous,
                         int numbers_known, int remember, Reading *reading)
{
    const char *address = (const char *)(uintptr_t)facts->address, *ordered = address;
    const int itemsize = kinds[type->kind].itemsize;
    char *copy = NULL;
    if ((memo->crc || memo->mode == XOR) && !contiguous) {
        if (layout->count > PY_SSIZE_T_MAX / itemsize) {
            return -1;
        }
        ordered = copy = PyMem_RawMalloc((size_t)(layout->count * itemsize));
        if (copy == NULL) {
            return -1;
        }
        gather_elements(address, facts->sizes, facts->strides, facts->dimensions, itemsize, copy);
    }
    if (memo->mode == STATISTICS && !numbers_known && layout->count > 0) {
        const float *table = type->table == NULL ? NULL : (const float *)(const void *)PyBytes_AS_STRING(type->table);
        read_numbers(type->kind, address, layout, table, memo->further, &reading->summary);
    }
    if (memo->mode == XOR) {
        reading->words = xor_words(ordered, (size_t)(layout->count * itemsize));
    }
    if (memo->crc) {
        reading->crc = crc_of(type, ordered, layout->count);
    }
    if (!numbers_known && remember) {
        reading->fingerprint = fingerprint_of(address, layout, itemsize, memo->exact);
    }
    PyMem_RawFree(copy);
    return 0;
}

/* The text of other statistics than the usual ones is made in Python. -1 with an error set. */
static int render_reading(const Memo *memo, const Type *type, int flags, const Layout *layout, const Reading *reading,
                          Content *content)
{
    PyObject *found = statistic_numbers_of(type->kind, flags, layout->count, memo->further, &reading->summary);
    PyObject *rendered = found == NULL ? NULL : PyObject_CallOneArg(memo->render, found);
    const char *text, *counts;
    Py_ssize_t text_size, counts_size;
    int failed = rendered == NULL ||
                 !PyArg_ParseTuple(rendered, "y#y#i", &text, &text_size, &counts, &counts_size, &content->answer);
    if (!failed && (text_size > (Py_ssize_t)sizeof(content->text) || counts_size > (Py_ssize_t)sizeof(content->counts))) {
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

static int write_reading(const Memo *memo, const Facts *facts, const Type *type, const Layout *layout,
                          int numbers_known, int remember, const Reading *reading, Content *content)
{
    char *text = content->text, *counts = content->counts;
    if (memo->mode == XOR) {
        if (layout->count == 0) {
            text = put_literal(text, "\"md5\": null");
        } else {
            text += PyOS_snprintf(text, sizeof(content->text), "\"md5\": \"0x%08x%08x\"",
                                  (unsigned)(reading->words >> 32), (unsigned)reading->words);
        }
        content->text_size = (int)(text - content->text);
    } else if (!numbers_known) {
        const int flags = memo->flags | (facts->dimensions == 0 ? SCALAR : 0);
        if (memo->render != NULL && render_reading(memo, type, flags, layout, reading, content) < 0) {
            return -1;
        }
        if (memo->render == NULL) {
            content->answer = write_summary(type->kind, flags, layout->count, &reading->summary, &text, &counts);
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

static PyObject *put_together(const Memo *memo, const Facts *facts, const Type *type, int contiguous,
                              const Content *content)
{
    PyObject *bytes = NULL, *cut = NULL, *info = NULL;
    char md5[32];
    Text text;
    md5[0] = 0;
    if (content->has_crc) {
        PyOS_snprintf(md5, sizeof(md5), SEPARATOR "\"md5\": \"%08x\"", (unsigned)content->crc);
    }
    text_begin(&text);
    if (TEXT_LITERAL(&text, "{\n \"type\": \"torch.Tensor\",\n \"dtype\": \"") < 0 ||
        text_put(&text, type->name, strlen(type->name)) < 0 ||
        put_sizes(&text, "\",\n \"shape\": ", facts->sizes, facts->dimensions) < 0 ||
        TEXT_LITERAL(&text, SEPARATOR) < 0 || text_put(&text, content->text, (size_t)content->text_size) < 0 ||
        (content->text_size > 0 && TEXT_LITERAL(&text, SEPARATOR) < 0) ||
        (facts->requires_grad ? TEXT_LITERAL(&text, "\"requires_grad\": true")
                              : TEXT_LITERAL(&text, "\"requires_grad\": false")) < 0 ||
        text_put(&text, md5, strlen(md5)) < 0) {
        goto done;
    }
    cut = PyLong_FromSize_t(text.size);
    if (cut == NULL ||
        (!contiguous && put_sizes(&text, SEPARATOR "\"stride\": ", facts->strides, facts->dimensions) < 0) ||
        (content->counts_size > 0 && (TEXT_LITERAL(&text, SEPARATOR) < 0 ||
                                      text_put(&text, content->counts, (size_t)content->counts_size) < 0)) ||
        (content->digest != NULL &&
         (TEXT_LITERAL(&text, SEPARATOR "\"digest\": \"") < 0 || put_bytes(&text, content->digest) < 0 ||
          TEXT_LITERAL(&text, "\"") < 0)) ||
        TEXT_LITERAL(&text, "\n}") < 0) {
        goto done;
    }
    bytes = PyBytes_FromStringAndSize(text.data, (Py_ssize_t)text.size);
    if (bytes != NULL) {
        PyObject *nonfinite = memo->mode != STATISTICS ? Py_None : content->answer != 0 ? Py_True : Py_False;
        PyObject *arguments[] = {NULL, bytes, cut, nonfinite};
        info = memo->plain_info ? info_new((PyTypeObject *)memo->info_class, bytes, cut, nonfinite) : PyObject_Vectorcall(memo->info_class, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
done:
    text_end(&text);
    Py_XDECREF(bytes);
    Py_XDECREF(cut);
    return info;
}

/* The digest is computed in Python: xxhash is a library of its own. NULL with an error set. */
static PyObject *take_digest(const Memo *memo, PyObject *tensor, Facts *facts, const Type *type, int contiguous)
{
    if (facts_ask_sizes(tensor, facts) < 0) {
        return NULL;
    }
    PyObject *digest =
        PyObject_CallFunction(memo->digest, "KOOiO", (unsigned long long)facts->address, facts->shape, facts->stride,
                              kinds[type->kind].itemsize, contiguous ? Py_True : Py_False);
    if (digest != NULL && !PyBytes_Check(digest)) {
        Py_DECREF(digest);
        PyErr_SetString(PyExc_TypeError, "expected the text of a digest");
        return NULL;
    }
    return digest;
}

/* Something wrote there that torch does not know of: nothing is remembered of this storage any more. */
static void memo_expose(const Memo *memo, uint64_t cell)
{
    Entry *entry = memo_find(memo, cell);
    if (entry != NULL) {
        entry_forget(entry);
        entry->trust = EXPOSED;
    }
}

/* The description that was given of these elements, if they are still the same. NULL, maybe with an error set: none. */
static PyObject *describe_known(const Memo *memo, PyObject *tensor, Facts *facts)
{
    const Entry *entry = memo_find(memo, facts->cell);
    const Type *type = memo_type(memo, facts->dtype);
    if (entry == NULL || type == NULL || facts->negated || !entry_is_current(memo, entry, facts->version)) {
        return NULL;
    }
    const View *view = find_view(entry, facts);
    if (view == NULL) {
        return NULL;
    }
    const uint64_t expected = view->fingerprint;
    PyObject *info = Py_NewRef(view->info);
    if (!entry_lives(memo, entry, tensor)) {
        Py_CLEAR(info);
    } else if (memo->mode != STRUCTURE) {
        const int itemsize = kinds[type->kind].itemsize;
        Layout layout;
        arrange(facts->sizes, facts->strides, facts->dimensions, &layout);
        if (is_readable(memo, tensor, facts, &layout, itemsize) <= 0) {
            Py_CLEAR(info);
        } else if (fingerprint_of((const char *)(uintptr_t)facts->address, &layout, itemsize, memo->exact) != expected) {
            Py_CLEAR(info);
            memo_expose(memo, facts->cell);
        }
    }
    return info;
}

/* Whether the elements belong to somebody else, who may write them: an array of numpy, a file. -1: error. Weights that
 * were loaded lie in memory of others as well, which nobody writes. */
static int is_shared(const Memo *memo, PyObject *tensor, const Facts *facts)
{
    if (facts->storage == NULL || (PyObject *)Py_TYPE(tensor) == memo->parameter) {
        return 0;
    }
    const int resizable = take_truth(PyObject_CallMethodNoArgs(facts->storage, name_resizable));
    return resizable < 0 ? -1 : !resizable;
}

/* A new description; NULL, with or without an error set, where the tensor is not an everyday one. */
static PyObject *describe_new(Memo *memo, PyObject *tensor, Facts *facts, int remember)
{
    const Type *type = memo_type(memo, facts->dtype);
    if (type == NULL || facts->negated || type->kind == COMPLEX64 || type->kind == COMPLEX128) {
        return NULL;
    }
    if (memo->mode == XOR && facts->dimensions == 0 && (is_float(type->kind) || type->kind == FLOAT8)) {
        return NULL; /* its value stands for it */
    }
    if (facts->on_cpu < 0 && take_truth(PyObject_GetAttr(tensor, name_is_cpu)) <= 0) {
        return NULL;
    }
    Layout layout;
    arrange(facts->sizes, facts->strides, facts->dimensions, &layout);
    if (is_readable(memo, tensor, facts, &layout, kinds[type->kind].itemsize) <= 0) {
        return NULL;
    }
    const int shared = remember ? is_shared(memo, tensor, facts) : 0;
    if (shared < 0) {
        return NULL;
    }
    remember = remember && !shared;
    const int contiguous = is_contiguous(facts);
    Content content;
    memset(&content, 0, offsetof(Content, text));
    Entry *entry = memo_find(memo, facts->cell);
    int known = 0;
    if (memo->mode == STATISTICS && entry != NULL && entry_is_current(memo, entry, facts->version) &&
        entry_lives(memo, entry, tensor) && (entry = memo_find(memo, facts->cell)) != NULL) {
        const Block *block = find_block(entry, facts, &layout);
        const uint64_t found = block == NULL ? 0
                                             : fingerprint_of((const char *)(uintptr_t)facts->address, &layout,
                                                              kinds[type->kind].itemsize, memo->exact);
        if (block != NULL && block->fingerprint != found) {
            memo_expose(memo, facts->cell);
        } else if (block != NULL) {
            known = 1;
            content.fingerprint = found;
            content.text_size = block->text_size;
            content.counts_size = block->counts_size;
            content.answer = block->answer;
            memcpy(content.text, block->text, (size_t)block->text_size);
            memcpy(content.counts, block->text + block->text_size, (size_t)block->counts_size);
            if (contiguous && block->ordered) {
                content.has_crc = memo->crc;
                content.crc = block->crc;
                content.digest = Py_XNewRef(block->digest);
            }
        }
    }
    if (memo->mode != STRUCTURE && (!known || content.has_crc != memo->crc)) {
        Reading reading;
        memo->reads++;
        PyThreadState *released = layout.count > GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
        const int failed = read_elements(memo, facts, type, &layout, contiguous, known, remember, &reading);
        if (released != NULL) {
            PyEval_RestoreThread(released);
        }
        if (failed) {
            Py_XDECREF(content.digest);
            return PyErr_NoMemory();
        }
        if (write_reading(memo, facts, type, &layout, known, remember, &reading, &content) < 0) {
            Py_XDECREF(content.digest);
            return NULL;
        }
    }
    if (type->hashed && content.digest == NULL && memo->mode != STRUCTURE) {
        content.digest = take_digest(memo, tensor, facts, type, contiguous);
        if (content.digest == NULL) {
            return NULL;
        }
    }
    PyObject *info = put_together(memo, facts, type, contiguous, &content);
    if (info != NULL && remember && !((entry = memo_find(memo, facts->cell)) != NULL && entry_is_distrusted(entry, facts->version))) {
        /* Found again: the calls above may have let another thread change the memo. */
        entry = memo_entry(memo, tensor, facts);
        if (entry == NULL ||
            (!known && memo->mode == STATISTICS && keep_block(entry, facts, type, &layout, contiguous, &content) < 0) ||
            keep_view(entry, facts, type, content.fingerprint, info) < 0) {
            Py_CLEAR(info);
        }
    }
    Py_XDECREF(content.digest);
    return info;
}

static int is_ordinary(const Memo *memo, PyObject *tensor)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(memo->ordinary); i++) {
        if ((PyObject *)Py_TYPE(tensor) == PyTuple_GET_ITEM(memo->ordinary, i)) {
            return 1;
        }
    }
    return 0;
}

/* Whether the tensor may lie in memory that nobody has written: which of it, Python knows. */
static int is_unset(const Memo *memo, PyObject *tensor, const Facts *facts)
{
    const Entry *entry = memo_find(memo, facts->cell);
    return entry != NULL && entry->unset && entry->version == facts->version && entry_lives(memo, entry, tensor);
}

static PyObject *memo_describe(Memo *memo, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    int remember = 1;
    PyObject *info = NULL;
    const Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (nargs < 1 || nargs + named > 2 ||
        (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "remember") != 0)) {
        PyErr_SetString(PyExc_TypeError, "describe() takes a tensor and remember");
        return NULL;
    }
    if (nargs + named == 2) {
        remember = PyObject_IsTrue(args[1]);
        if (remember < 0) {
            return NULL;
        }
    }
    if (is_ordinary(memo, args[0])) {
        Facts facts;
        facts.storage = facts.dtype = facts.shape = facts.stride = NULL;
        if (facts_read(memo, args[0], &facts) == 0 && !is_unset(memo, args[0], &facts)) {
            info = describe_known(memo, args[0], &facts);
            if (info == NULL) {
                PyErr_Clear();
                info = describe_new(memo, args[0], &facts, remember);
            }
        }
        facts_end(&facts);
    }
    if (info == NULL) {
        if (memo->otherwise == NULL || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_RuntimeError, "the garbage collector took the memo apart");
            }
            return NULL; /* or an interrupt, which is none of ours */
        }
        PyErr_Clear();
        PyObject *arguments[] = {NULL, args[0], remember ? Py_True : Py_False};
        info = PyObject_Vectorcall(memo->otherwise, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    return info;
}

/* The elements in C order into `buffer`; their type, sizes and CRC-32. None where the tensor is not an everyday one. */
static PyObject *copy_elements(const Memo *memo, PyObject *tensor, Facts *facts, Py_buffer *buffer)
{
    const Type *type = memo_type(memo, facts->dtype);
    if (type == NULL || facts->negated || type->kind == COMPLEX64 || type->kind == COMPLEX128) {
        return NULL;
    }
    if (facts->on_cpu < 0 && take_truth(PyObject_GetAttr(tensor, name_is_cpu)) <= 0) {
        return NULL;
    }
    const int itemsize = kinds[type->kind].itemsize;
    Layout layout;
    arrange(facts->sizes, facts->strides, facts->dimensions, &layout);
    if (lies_inside(tensor, facts, &layout, itemsize) <= 0 || layout.count > buffer->len / itemsize ||
        layout.count * itemsize != buffer->len) {
        return NULL;
    }
    const char *address = (const char *)(uintptr_t)facts->address;
    const int contiguous = is_contiguous(facts);
    char *to = buffer->buf;
    const size_t size = (size_t)buffer->len;
    uint32_t crc = crc_begin();
    PyThreadState *released = layout.count > GIL_WORTH_RELEASING ? PyEval_SaveThread() : NULL;
    if (contiguous) {
        enum { IN_CACHE = 1 << 15 };
        for (size_t done = 0; done < size; done += IN_CACHE) {
            const size_t part = size - done < IN_CACHE ? size - done : IN_CACHE;
            memcpy(to + done, address + done, part);
            crc = crc_more(crc, to + done, part);
        }
    } else {
        gather_elements(address, facts->sizes, facts->strides, facts->dimensions, itemsize, to);
        crc = crc_more(crc, to, size);
    }
    crc = crc_end(crc);
    if (released != NULL) {
        PyEval_RestoreThread(released);
    }
    const char *name = strncmp(type->name, "torch.", 6) == 0 ? type->name + 6 : type->name;
    return facts_ask_sizes(tensor, facts) < 0 ? NULL : Py_BuildValue("sOk", name, facts->shape, (unsigned long)crc);
}

static PyObject *memo_copy(Memo *memo, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer buffer;
    Facts facts;
    PyObject *result = NULL;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "copy() takes a tensor and a buffer");
        return NULL;
    }
    if (!is_ordinary(memo, args[0])) {
        Py_RETURN_NONE;
    }
    if (PyObject_GetBuffer(args[1], &buffer, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    facts.storage = facts.dtype = facts.shape = facts.stride = NULL;
    if (facts_read(memo, args[0], &facts) == 0) {
        result = copy_elements(memo, args[0], &facts, &buffer);
    }
    facts_end(&facts);
    PyBuffer_Release(&buffer);
    if (result == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return result;
}

static PyObject *memo_forget(Memo *memo, PyObject *storage)
{
    const uint64_t cell = PyLong_AsUnsignedLongLong(storage);
    if (cell == (uint64_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    Entry *entry = memo_find(memo, cell);
    if (entry != NULL) {
        entry_forget(entry);
    }
    Py_RETURN_NONE;
}

static PyObject *memo_forget_all(Memo *memo, PyObject *nothing)
{
    memo->epoch++;
    Py_RETURN_NONE;
}

static PyObject *memo_distrust(Memo *memo, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "distrust() takes a tensor and for_good");
        return NULL;
    }
    const int for_good = PyObject_IsTrue(args[1]);
    if (for_good < 0) {
        return NULL;
    }
    Facts facts;
    facts.storage = facts.dtype = facts.shape = facts.stride = NULL;
    int failed = !is_ordinary(memo, args[0]) || facts_read(memo, args[0], &facts) < 0;
    if (!failed && facts.storage == NULL) {
        const int passing = is_passing(memo, &facts);
        failed = passing < 0 || (!passing && facts_read_storage(args[0], &facts) < 0);
    }
    Entry *entry = failed ? NULL : memo_entry(memo, args[0], &facts);
    if (entry != NULL) {
        entry_forget(entry);
        if (entry->trust != EXPOSED) {
            entry->trust = for_good ? EXPOSED : UNSET;
        }
        entry->unset = entry->unset || !for_good;
    }
    facts_end(&facts);
    PyErr_Clear(); /* not an everyday tensor: nothing is remembered of it here */
    Py_RETURN_NONE;
}

static PyObject *memo_clear(Memo *memo, PyObject *const *args, Py_ssize_t nargs)
{
    const int keep_exposed = nargs == 1 ? PyObject_IsTrue(args[0]) : 0;
    if (nargs > 1 || keep_exposed < 0) {
        PyErr_SetString(PyExc_TypeError, "clear() takes at most keep_exposed");
        return NULL;
    }
    memo_empty(memo, keep_exposed);
    Py_RETURN_NONE;
}

static int memo_add_types(Memo *memo, PyObject *types)
{
    PyObject *dtype, *facts;
    Py_ssize_t position = 0;
    while (PyDict_Next(types, &position, &dtype, &facts)) {
        int kind, hashed;
        const char *name;
        PyObject *table;
        if (memo->type_count == MAX_TYPES) {
            PyErr_SetString(PyExc_ValueError, "too many element types");
            return -1;
        }
        if (!PyArg_ParseTuple(facts, "sipO", &name, &kind, &hashed, &table)) {
            return -1;
        }
        Type *type = &memo->types[memo->type_count];
        if (kind < 0 || kind >= KIND_COUNT || strlen(name) >= sizeof(type->name) ||
            (kind == FLOAT8) != (PyBytes_Check(table) && PyBytes_GET_SIZE(table) == 1024)) {
            PyErr_Format(PyExc_ValueError, "element type %.100s is not described right", name);
            return -1;
        }
        *type = (Type){Py_NewRef(dtype), (Kind)kind, hashed, kind == FLOAT8 ? Py_NewRef(table) : NULL, 0, ""};
        strcpy(type->name, name);
        for (size_t i = 0; i < sizeof(exchange_codes) / sizeof(exchange_codes[0]); i++) {
            if (strcmp(exchange_codes[i].name, name) == 0) {
                type->code = exchange_codes[i].code;
            }
        }
        memo->type_count++;
    }
    return 0;
}

static PyObject *memo_new(PyTypeObject *class, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"ordinary", "types", "info_class", "address_of", "digest", "otherwise",
                            "free_weak", "is_expired", "parameter", "storage_of", "in_backward", "is_lazy", "exchange",
                            "flags", "render", "further", "mode", "crc", "exact", "limit", NULL};
    PyObject *ordinary, *types, *info_class, *address_of, *digest, *otherwise, *free_weak, *is_expired, *parameter,
        *storage_of, *in_backward, *is_lazy, *exchange, *render;
    int flags, further, mode, crc, exact;
    Py_ssize_t limit;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O!O!OOOOOOOOOOOiOiippn", words, &PyTuple_Type, &ordinary,
                                     &PyDict_Type, &types, &info_class, &address_of, &digest, &otherwise, &free_weak,
                                     &is_expired, &parameter, &storage_of, &in_backward, &is_lazy, &exchange, &flags,
                                     &render, &further, &mode, &crc, &exact, &limit)) {
        return NULL;
    }
    if (mode < STATISTICS || mode > STRUCTURE) {
        return PyErr_Format(PyExc_ValueError, "no mode has the number %d", mode);
    }
    Memo *memo = (Memo *)class->tp_alloc(class, 0);
    if (memo == NULL) {
        return NULL;
    }
    memo->ordinary = Py_NewRef(ordinary);
    memo->info_class = Py_NewRef(info_class);
    memo->address_of = Py_NewRef(address_of);
    memo->digest = Py_NewRef(digest);
    memo->otherwise = Py_NewRef(otherwise);
    memo->free_weak = Py_NewRef(free_weak);
    memo->is_expired = is_expired == Py_None ? NULL : Py_NewRef(is_expired);
    memo->parameter = Py_NewRef(parameter);
    memo->storage_of = storage_of == Py_None ? NULL : Py_NewRef(storage_of);
    memo->in_backward = Py_NewRef(in_backward);
    memo->is_lazy = is_lazy == Py_None ? NULL : Py_NewRef(is_lazy);
    if (PyCapsule_IsValid(exchange, "dlpack_exchange_api")) {
        const ExchangeTable *table = PyCapsule_GetPointer(exchange, "dlpack_exchange_api");
        memo->to_exchanged = table->major == 1 ? table->to_exchanged : NULL;
    }
    memo->flags = flags;
    memo->render = render == Py_None ? NULL : Py_NewRef(render);
    memo->further = further;
    memo->exact = exact;
    memo->mode = (Mode)mode;
    memo->plain_info = PyType_Check(info_class) && PyType_IsSubtype((PyTypeObject *)info_class, &InfoType) &&
                       ((PyTypeObject *)info_class)->tp_init == InfoType.tp_init;
    memo->crc = crc && mode == STATISTICS;
    memo->limit = limit;
    if (memo_add_types(memo, types) < 0) {
        Py_DECREF(memo);
        return NULL;
    }
    return (PyObject *)memo;
}

static int memo_traverse(Memo *memo, visitproc visit, void *arg)
{
    Py_VISIT(memo->ordinary);
    Py_VISIT(memo->info_class);
    Py_VISIT(memo->address_of);
    Py_VISIT(memo->digest);
    Py_VISIT(memo->otherwise);
    Py_VISIT(memo->render);
    Py_VISIT(memo->free_weak);
    Py_VISIT(memo->is_expired);
    Py_VISIT(memo->parameter);
    Py_VISIT(memo->storage_of);
    Py_VISIT(memo->in_backward);
    Py_VISIT(memo->is_lazy);
    return 0;
}

static int memo_drop(Memo *memo)
{
    if (memo->free_weak != NULL) {
        memo_empty(memo, 0);
    }
    Py_CLEAR(memo->digest);
    Py_CLEAR(memo->otherwise);
    return 0;
}

static void memo_dealloc(Memo *memo)
{
    PyObject *type, *value, *trace;
    PyObject_GC_UnTrack(memo);
    PyErr_Fetch(&type, &value, &trace);
    memo_drop(memo);
    PyErr_Restore(type, value, trace);
    Py_CLEAR(memo->ordinary);
    Py_CLEAR(memo->info_class);
    Py_CLEAR(memo->address_of);
    Py_CLEAR(memo->free_weak);
    Py_CLEAR(memo->is_expired);
    Py_CLEAR(memo->parameter);
    Py_CLEAR(memo->render);
    Py_CLEAR(memo->storage_of);
    Py_CLEAR(memo->in_backward);
    Py_CLEAR(memo->is_lazy);
    for (int i = 0; i < memo->type_count; i++) {
        Py_CLEAR(memo->types[i].dtype);
        Py_CLEAR(memo->types[i].table);
    }
    Py_TYPE(memo)->tp_free((PyObject *)memo);
}

static Py_ssize_t memo_length(PyObject *memo) { return ((Memo *)memo)->used; }

static PyMethodDef memo_methods[] = {
    {"describe", (PyCFunction)(void (*)(void))memo_describe, METH_FASTCALL | METH_KEYWORDS,
     "describe(tensor, remember=True) -> its description, an earlier one if it was given for the same elements"},
    {"copy", (PyCFunction)(void (*)(void))memo_copy, METH_FASTCALL,
     "copy(tensor, buffer) -> (type, shape, CRC-32) of the elements, now in the buffer; None: not an everyday tensor,\n"
     "or the buffer has another size"},
    {"forget", (PyCFunction)memo_forget, METH_O, "forget(storage): the elements in it were written"},
    {"forget_all", (PyCFunction)memo_forget_all, METH_NOARGS,
     "forget_all(): code that torch does not know may have written anywhere"},
    {"distrust", (PyCFunction)(void (*)(void))memo_distrust, METH_FASTCALL,
     "distrust(tensor, for_good): remember nothing of its storage as long as that lives, or until torch counts a write"},
    {"clear", (PyCFunction)(void (*)(void))memo_clear, METH_FASTCALL,
     "clear(keep_exposed=False): forget everything, or all but the storages that are distrusted for good"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef memo_members[] = {
    {"reads", T_PYSSIZET, offsetof(Memo, reads), READONLY, "how often elements were read"},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods memo_as_sequence = {.sq_length = memo_length};

static PyTypeObject MemoType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "msprobe.capture._native.Memo",
    .tp_basicsize = sizeof(Memo),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Descriptions of everyday tensors, and the memory of those already given.",
    .tp_new = memo_new,
    .tp_dealloc = (destructor)memo_dealloc,
    .tp_traverse = (traverseproc)memo_traverse,
    .tp_clear = (inquiry)memo_drop,
    .tp_methods = memo_methods,
    .tp_members = memo_members,
    .tp_as_sequence = &memo_as_sequence,
};

#endif
