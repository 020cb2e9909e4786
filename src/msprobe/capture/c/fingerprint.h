/* Whether the elements of a view are still those that were read: a hash of all of them, or of many places among them.
 *
 * Not every write is counted by torch: kernels that other code compiled are given an address and write there. What was
 * said of some elements may only be said again while they are the same.
 */
#ifndef MSPROBE_NATIVE_FINGERPRINT_H
#define MSPROBE_NATIVE_FINGERPRINT_H

#include "layout.h"

#include <stdint.h>
#include <string.h>

enum {
    MSP_STRIPE = 64,            /* bytes */
    MSP_HASHED_WHOLE = 1 << 13, /* bytes; of larger views only some places are looked at */
    MSP_PLACES = 32,
};

typedef struct {
    uint64_t lanes[8], keys[8];
} MspFingerprint;

/* So many stripes more, in words of 8 bytes or vectors of them: the result is the same. Compilers make vectors of the
 * plain words by themselves, wide ones badly. */
#define MSP_STRIPES(SUFFIX, ATTRIBUTE, WORD)                                                                          \
    ATTRIBUTE static void msp_stripes_##SUFFIX(MspFingerprint *print, const char *bytes, size_t count)                \
    {                                                                                                                 \
        enum { WORDS = MSP_STRIPE / sizeof(WORD) };                                                                   \
        WORD lanes[WORDS], keys[WORDS];                                                                               \
        memcpy(lanes, print->lanes, sizeof(lanes));                                                                   \
        memcpy(keys, print->keys, sizeof(keys));                                                                      \
        for (; count > 0; count--, bytes += MSP_STRIPE) {                                                             \
            for (size_t i = 0; i < WORDS; i++) {                                                                      \
                WORD word;                                                                                            \
                memcpy(&word, bytes + i * sizeof(WORD), sizeof(WORD));                                                \
                const WORD mixed = word ^ keys[i];                                                                    \
                lanes[i] += word + (mixed & 0xFFFFFFFFu) * (mixed >> 32);                                             \
                /* other keys for each stripe: exchanged elements change the result */                                \
                keys[i] += 0x9E3779B97F4A7C15ull;                                                                     \
            }                                                                                                         \
        }                                                                                                             \
        memcpy(print->lanes, lanes, sizeof(lanes));                                                                   \
        memcpy(print->keys, keys, sizeof(keys));                                                                      \
    }

MSP_STRIPES(baseline, , uint64_t)

#if defined(__GNUC__) && defined(__x86_64__)
#define MSP_HAVE_X86_STRIPES
typedef uint64_t MspStripe32 __attribute__((vector_size(32)));
typedef uint64_t MspStripe64 __attribute__((vector_size(64)));
MSP_STRIPES(avx2, __attribute__((target("avx2"))), MspStripe32)
MSP_STRIPES(avx512, __attribute__((target("avx512f,avx2"))), MspStripe64)
#endif

static void (*msp_fingerprint_stripes)(MspFingerprint *print, const char *bytes, size_t count) = msp_stripes_baseline;

/* Take the version for an instruction set; 0 if this machine or this build does not have it. */
static int msp_choose_stripes(const char *name)
{
    if (strcmp(name, "baseline") == 0) {
        msp_fingerprint_stripes = msp_stripes_baseline;
        return 1;
    }
#ifdef MSP_HAVE_X86_STRIPES
    __builtin_cpu_init();
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f")) {
        msp_fingerprint_stripes = msp_stripes_avx512;
        return 1;
    }
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2")) {
        msp_fingerprint_stripes = msp_stripes_avx2;
        return 1;
    }
#endif
    return 0;
}

static void msp_fingerprint_begin(void)
{
    if (!msp_choose_stripes("avx512")) {
        msp_choose_stripes("avx2");
    }
}

static void msp_fingerprint_bytes(MspFingerprint *print, const char *bytes, size_t size)
{
    msp_fingerprint_stripes(print, bytes, size / MSP_STRIPE);
    if (size % MSP_STRIPE != 0) {
        char last[MSP_STRIPE] = {0};
        memcpy(last, bytes + size / MSP_STRIPE * MSP_STRIPE, size % MSP_STRIPE);
        msp_fingerprint_stripes(print, last, 1);
    }
}

/* `count` elements, so many bytes after each other. */
static void msp_fingerprint_run(MspFingerprint *print, const char *bytes, Py_ssize_t count, Py_ssize_t step,
                                int itemsize)
{
    enum { AT_ONCE = 4096 };
    char gathered[AT_ONCE];
    if (step == itemsize) {
        msp_fingerprint_bytes(print, bytes, (size_t)(count * itemsize));
        return;
    }
    const Py_ssize_t most = AT_ONCE / itemsize;
    for (Py_ssize_t done = 0; done < count; done += most) {
        const Py_ssize_t part = count - done < most ? count - done : most;
        const char *from = bytes + done * step;
        for (Py_ssize_t i = 0; i < part; i++) {
            memcpy(gathered + i * itemsize, from + i * step, (size_t)itemsize);
        }
        msp_fingerprint_bytes(print, gathered, (size_t)(part * itemsize));
    }
}

static void msp_fingerprint_whole(MspFingerprint *print, const char *bytes, const MspLayout *layout, int dimension,
                                  int itemsize)
{
    const Py_ssize_t step = layout->stride[dimension] * itemsize;
    const Py_ssize_t count = step == 0 ? 1 : layout->size[dimension]; /* repeats are the same elements */
    if (dimension == 0) {
        msp_fingerprint_run(print, bytes, count, step == 0 ? itemsize : step, itemsize);
        return;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        msp_fingerprint_whole(print, bytes + i * step, layout, dimension - 1, itemsize);
    }
}

/* Evenly spread, the first and the last element among them, and a little off the even places: columns of a matrix lie
 * evenly too. */
static void msp_fingerprint_places(MspFingerprint *print, const char *bytes, const MspLayout *layout, int itemsize)
{
    const Py_ssize_t step = layout->stride[0] * itemsize, distance = layout->count / MSP_PLACES;
    for (Py_ssize_t k = 0; k <= MSP_PLACES; k++) {
        Py_ssize_t place = k == 0 ? 0
                           : k == MSP_PLACES
                               ? layout->count - 1
                               : k * distance + (Py_ssize_t)((uint64_t)k * 2654435761u % (uint64_t)distance);
        const Py_ssize_t along = layout->dimensions == 1 ? place : place % layout->size[0];
        const Py_ssize_t rest = layout->size[0] - along;
        const Py_ssize_t count = rest < MSP_STRIPE / itemsize ? rest : MSP_STRIPE / itemsize;
        const char *at = bytes + along * step;
        for (int i = 1; i < layout->dimensions; i++) {
            place /= layout->size[i - 1];
            at += place % layout->size[i] * layout->stride[i] * itemsize;
        }
        msp_fingerprint_run(print, at, count, step, itemsize);
    }
}

/* Reads the elements; `whole`: all of them, however many. */
static uint64_t msp_fingerprint_of(const char *bytes, const MspLayout *layout, int itemsize, int whole)
{
    MspFingerprint print;
    uint64_t result = (uint64_t)layout->count;
    if (layout->count == 0) {
        return 0;
    }
    for (int i = 0; i < 8; i++) {
        print.lanes[i] = 0;
        print.keys[i] = 0xC2B2AE3D27D4EB4Full * (uint64_t)(i + 1);
    }
    if (whole || layout->count <= MSP_HASHED_WHOLE / itemsize) {
        msp_fingerprint_whole(&print, bytes, layout, layout->dimensions - 1, itemsize);
    } else {
        msp_fingerprint_places(&print, bytes, layout, itemsize);
    }
    for (int i = 0; i < 8; i++) {
        result = (result ^ print.lanes[i]) * 0xFF51AFD7ED558CCDull;
        result ^= result >> 32;
    }
    return result;
}

#endif
