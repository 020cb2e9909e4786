/* How many elements of a float type have a magnitude below a bound: an extra pass, taken where it is asked for.
 *
 * The bits of a float without its sign are a whole number that grows with its magnitude, NaN above all others: so the
 * loops compare whole numbers. */
#ifndef MSPROBE_NATIVE_BELOW_H
#define MSPROBE_NATIVE_BELOW_H

#include "kernels.h"

#define MSP_COUNT_BELOW(name, ATTRIBUTE, TYPE, PART)                                      \
    ATTRIBUTE static int64_t name(const char *address, Py_ssize_t count, TYPE limit)      \
    {                                                                                     \
        const TYPE *p = (const TYPE *)(const void *)address, magnitude = (TYPE)-1 >> 1;   \
        int64_t found = 0;                                                                \
        while (count > 0) {                                                               \
            /* As many as a counter of this type can count. */                            \
            const Py_ssize_t part = count < (PART) ? count : (PART);                      \
            TYPE some = 0;                                                                \
            for (Py_ssize_t i = 0; i < part; i++) {                                       \
                some = (TYPE)(some + (TYPE)((TYPE)(p[i] & magnitude) < limit));           \
            }                                                                             \
            found += (int64_t)some;                                                       \
            p += part;                                                                    \
            count -= part;                                                                \
        }                                                                                 \
        return found;                                                                     \
    }

#define MSP_COUNTS_BELOW(SUFFIX, ATTRIBUTE)                                          \
    MSP_COUNT_BELOW(msp_below16_##SUFFIX, ATTRIBUTE, uint16_t, (Py_ssize_t)1 << 15)  \
    MSP_COUNT_BELOW(msp_below32_##SUFFIX, ATTRIBUTE, uint32_t, (Py_ssize_t)1 << 30)  \
    MSP_COUNT_BELOW(msp_below64_##SUFFIX, ATTRIBUTE, uint64_t, (Py_ssize_t)1 << 30)

#if defined(__GNUC__) && !defined(__clang__)
#define MSP_OPTIMIZED __attribute__((optimize("O3")))
#else
#define MSP_OPTIMIZED
#endif
MSP_COUNTS_BELOW(baseline, MSP_OPTIMIZED)
#ifdef MSP_HAVE_X86_VERSIONS
MSP_COUNTS_BELOW(avx2, MSP_OPTIMIZED __attribute__((target("avx2"))))
#define MSP_BELOW(bits, ...)                                                      \
    (msp_kernels == msp_baseline_kernels ? msp_below##bits##_baseline(__VA_ARGS__) \
                                         : msp_below##bits##_avx2(__VA_ARGS__))
#else
#define MSP_BELOW(bits, ...) msp_below##bits##_baseline(__VA_ARGS__)
#endif

/* The least bits of a half type whose value is not below the bound. */
static uint16_t msp_half_limit(float (*value)(uint16_t), uint16_t infinity, double bound)
{
    uint16_t below = 0, limit = (uint16_t)(infinity + 1); /* values at `limit` and above are not below */
    while (below < limit) {
        const uint16_t middle = (uint16_t)(below + (limit - below) / 2);
        if ((double)value(middle) < bound) {
            below = (uint16_t)(middle + 1);
        } else {
            limit = middle;
        }
    }
    return limit;
}

/* Needs no GIL. Elements are adjacent and aligned; a NaN is below nothing. */
static int64_t msp_count_below(MspKind kind, const char *address, Py_ssize_t count, double bound)
{
    if (!(bound > 0)) {
        return 0;
    }
    switch (kind) {
    case MSP_FLOAT32: {
        float limit = (float)bound; /* the least float that is not below */
        uint32_t bits;
        if ((double)limit < bound) {
            limit = nextafterf(limit, INFINITY);
        }
        memcpy(&bits, &limit, sizeof(bits));
        return MSP_BELOW(32, address, count, bits);
    }
    case MSP_FLOAT64: {
        uint64_t bits;
        memcpy(&bits, &bound, sizeof(bits));
        return MSP_BELOW(64, address, count, bits);
    }
    case MSP_FLOAT16: return MSP_BELOW(16, address, count, msp_half_limit(msp_float16_value, 0x7C00, bound));
    case MSP_BFLOAT16: return MSP_BELOW(16, address, count, msp_half_limit(msp_bfloat16_value, 0x7F80, bound));
    default: return 0;
    }
}

#endif
