/* What a memo of descriptions consists of: storages, views of them, sets of elements, element types, settings; and what
 * is read of one tensor. */
#ifndef MSPROBE_NATIVE_MEMO_STATE_H
#define MSPROBE_NATIVE_MEMO_STATE_H

#include "exchange.h"
#include "info.h"
#include "layout.h"
#include "numbers.h"
#include "row_table.h"

typedef struct MspView {
    struct MspView *next;
    uint64_t address, fingerprint;
    PyObject *dtype; /* borrowed from the memo's types */
    PyObject *info;
    int requires_grad;
    int dimensions;
    Py_ssize_t sizes[]; /* and strides behind them */
} MspView;

/* The statistics of a set of elements, in whatever order a view shows them. */
typedef struct MspBlock {
    struct MspBlock *next;
    uint64_t address, fingerprint;
    PyObject *dtype;
    int scalar;
    int answer;
    int ordered; /* the hashes below are known: those of the elements as they lie in memory */
    uint32_t crc;
    PyObject *digest; /* text, or NULL */
    Py_ssize_t row; /* of the elements as they lie in memory, or -1 */
    MspRowExtremes extremes; /* known where a row was made */
    int has_extremes;
    int dimensions;
    Py_ssize_t *pattern; /* sizes and strides behind them; in the same piece of memory */
    int text_size, counts_size;
    char text[];
} MspBlock;

/* The statistics of a tensor as text: the usual ones have room, and so have twice as many. */
enum { MSP_HOLDERS = 3, MSP_MOST_TEXT = 8 * MSP_NUMBER_ROOM + 128 };

/* Whether torch knows of all that is written to a storage. */
typedef enum {
    MSP_COUNTED,
    MSP_UNSET,   /* nobody has written what is meant to stand there; so until torch counts a write */
    MSP_EXPOSED, /* others know the address, or have written there already */
} MspTrust;

/* What is known of the elements in one storage. Something must tell when that storage is gone and its address may mean
 * another. Usually a weak reference of torch's, which keeps the address from being used again. It takes a storage
 * object, though, and in newer versions of torch one that was made counts as a user of the storage for good: the engine
 * would no longer add in place to a gradient that passes through. So gradients are known by tensors that have this
 * storage: as long as one of them lives, the storage does.
 */
typedef struct {
    uint64_t storage;               /* address of the StorageImpl; 0: no entry */
    PyObject *weak;                 /* torch's weak reference; NULL: the tensors tell */
    PyObject *holders[MSP_HOLDERS]; /* Python's weak references to tensors, the newest first */
    int64_t version, epoch;
    MspTrust trust;
    int unset; /* at this version nobody may have written it: Python knows which of it */
    MspView *views;
    MspBlock *blocks;
    int count; /* of views: one buffer for everything must not become a long search */
} MspEntry;

typedef struct {
    PyObject *dtype;
    MspKind kind;
    int hashed; /* a digest whatever the mode */
    PyObject *table;
    uint16_t code; /* of the exchange with other frameworks, see below; 0: none */
    char name[32];
} MspType;

enum { MSP_MAX_TYPES = 48, MSP_MAX_VIEWS = 256, MSP_FIRST_SWEEP = 64 };

typedef enum { MSP_STATISTICS, MSP_XOR, MSP_STRUCTURE } MspMode; /* what is said of the elements */

typedef struct {
    PyObject_HEAD PyObject *ordinary; /* tuple of exact classes */
    PyObject *info_class;             /* called with text, cut, nonfinite */
    PyObject *address_of;             /* tensor -> address of its first element */
    PyObject *digest;                 /* (address, shape, stride, itemsize, contiguous) -> text of the digest */
    PyObject *otherwise;              /* (tensor, remember) -> description */
    PyObject *fault;                  /* error -> whether nothing more is to be done here */
    PyObject *rows;                   /* a RowTable, or NULL */
    PyObject *render;                 /* numbers -> (text, counts, answer); NULL: the usual statistics, written here */
    int further;                      /* which numbers it needs, beside those of the first pass */
    PyObject *free_weak, *is_expired; /* of torch's weak references */
    PyObject *parameter;              /* the class */
    PyObject *storage_of; /* tensor -> address of its StorageImpl; NULL: torch is so old that no storage object harms */
    PyObject *in_backward; /* () -> number of the backward pass that runs in this thread, or -1 */
    PyObject *is_lazy;     /* tensor -> whether it would copy itself on being exchanged; NULL: no telling */
    int (*to_exchanged)(void *object, MspExchanged *out); /* NULL: none that we know */
    int flags;
    MspMode mode;
    int exact;      /* hash all elements before they are taken for those that were read */
    int64_t epoch;  /* what was learned in an earlier one is not used any more */
    int plain_info; /* info_class is an Info that adds nothing */
    int crc;        /* wanted beside the statistics */
    int off;        /* too many faults: everything is left to `otherwise` */
    Py_ssize_t limit;
    MspType types[MSP_MAX_TYPES];
    int type_count;
    MspEntry *entries; /* open addressing, a power of two of them */
    Py_ssize_t capacity, used;
    Py_ssize_t sweep_at; /* so many entries are looked through for those of storages that are gone */
    Py_ssize_t reads; /* how often elements were read for what is said of them */
} MspMemo;

static PyObject *msp_name_untyped_storage, *msp_name_cdata, *msp_name_version, *msp_name_dtype, *msp_name_shape,
    *msp_name_stride, *msp_name_requires_grad, *msp_name_is_neg, *msp_name_is_cpu, *msp_name_storage_offset,
    *msp_name_nbytes, *msp_name_weak_ref, *msp_name_resizable;

static int msp_memo_begin(void)
{
    const struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&msp_name_untyped_storage, "untyped_storage"},
        {&msp_name_cdata, "_cdata"},
        {&msp_name_version, "_version"},
        {&msp_name_dtype, "dtype"},
        {&msp_name_shape, "shape"},
        {&msp_name_stride, "stride"},
        {&msp_name_requires_grad, "requires_grad"},
        {&msp_name_is_neg, "is_neg"},
        {&msp_name_is_cpu, "is_cpu"},
        {&msp_name_storage_offset, "storage_offset"},
        {&msp_name_nbytes, "nbytes"},
        {&msp_name_weak_ref, "_weak_ref"},
        {&msp_name_resizable, "resizable"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *names[i].name = PyUnicode_InternFromString(names[i].text);
        if (*names[i].name == NULL) {
            return -1;
        }
    }
    return 0;
}

/* ---- one tensor ---- */

typedef struct {
    PyObject *dtype, *shape, *stride; /* owned; the sizes NULL until somebody asks */
    int on_cpu;                       /* 1: it is; -1: not asked */
    PyObject *storage;                /* owned; NULL: not asked for, because the tensor must not notice */
    uint64_t cell, address;
    int64_t version;
    int requires_grad, negated;
    int complete; /* the tensor was asked for all; an error from here on is a fault of ours */
    int dimensions;
    Py_ssize_t sizes[MSP_MAX_DIMENSIONS], strides[MSP_MAX_DIMENSIONS];
} MspFacts;

/* What is said of the elements: statistics or XOR, counts, and the hashes. */
typedef struct {
    int text_size, counts_size, answer;
    int has_crc;
    uint32_t crc;
    uint64_t fingerprint;
    PyObject *digest; /* owned */
    Py_ssize_t row;   /* or -1 */
    MspRowExtremes extremes;
    int has_extremes;
    char text[MSP_MOST_TEXT], counts[3 * MSP_NUMBER_ROOM + 64]; /* last: not to be cleared for each tensor */
} MspContent;

static const MspType *msp_memo_type(const MspMemo *memo, PyObject *dtype)
{
    for (int i = 0; i < memo->type_count; i++) {
        if (memo->types[i].dtype == dtype) {
            return &memo->types[i];
        }
    }
    return NULL;
}

#endif
