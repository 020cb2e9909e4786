/* The kinds of elements that are known, and what one read of them finds. */
#ifndef MSPROBE_NATIVE_KINDS_H
#define MSPROBE_NATIVE_KINDS_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    MSP_FLOAT32,
    MSP_FLOAT64,
    MSP_FLOAT16,
    MSP_BFLOAT16,
    MSP_FLOAT8, /* any one-byte float: the caller gives its 256 values */
    MSP_INT8,
    MSP_INT16,
    MSP_INT32,
    MSP_INT64,
    MSP_UINT8,
    MSP_UINT16,
    MSP_UINT32,
    MSP_UINT64,
    MSP_BOOL,
    MSP_COMPLEX64,
    MSP_COMPLEX128,
    MSP_KIND_COUNT
} MspKind;

static const struct {
    const char *name;
    int itemsize;
} msp_kinds[MSP_KIND_COUNT] = {
    {"float32", 4}, {"float64", 8}, {"float16", 2},   {"bfloat16", 2},    {"float8", 1}, {"int8", 1},
    {"int16", 2},   {"int32", 4},   {"int64", 8},     {"uint8", 1},       {"uint16", 2}, {"uint32", 4},
    {"uint64", 8},  {"bool", 1},    {"complex64", 8}, {"complex128", 16},
};

enum { MSP_HIGH_PRECISION = 1, MSP_SCALAR = 2, MSP_UNROUNDED = 4 }; /* flags given */
enum { MSP_HAS_NAN = 1, MSP_HAS_INF = 2 };       /* flags answered */

typedef struct MspRowState MspRowState; /* see _native_row_state.h */

typedef struct {
    double least, greatest; /* of floats, NaN left out; of magnitudes for complex kinds */
    int64_t int_least, int_greatest;
    uint64_t uint_least, uint_greatest;
    double sum, squares;
    int64_t zeros, nans, infs;
    MspRowState *row; /* given what is read, which is all of a tensor in logical order; or NULL */
    double scale;                        /* second pass over float64 only: a power of two */
    double center, unit, second, fourth; /* see deviations.h */
    int64_t bytes[256];                  /* one-byte kinds: how often each byte occurs */
} MspSummary;

typedef void (*MspKernel)(const void *elements, Py_ssize_t count, MspSummary *summary);

static int msp_is_float(MspKind kind)
{
    return kind <= MSP_BFLOAT16;
}
static int msp_is_complex(MspKind kind)
{
    return kind == MSP_COMPLEX64 || kind == MSP_COMPLEX128;
}

/* What a byte stands for. */
static double msp_byte_value(MspKind kind, const float *table, int byte)
{
    return kind == MSP_FLOAT8 ? (double)table[byte] : kind == MSP_INT8 ? (double)(int8_t)byte : (double)byte;
}

#endif
