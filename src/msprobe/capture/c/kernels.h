/* Max, min, sum, sum of squares and the count of zeros of adjacent elements, in one read; and passes that count NaN and
 * infinity, taken only where the first met some.
 *
 * Sums run in double over fixed lanes, so their error is that of a double sum, and they are the same on every machine,
 * whatever the width of its vectors (if multiplications and additions are not fused: see setup.py).
 * The kernels are written on compiler vectors and compiled for several instruction sets of x86-64, chosen once at
 * import; other machines and compilers get one version each.
 */
#ifndef MSPROBE_NATIVE_KERNELS_H
#define MSPROBE_NATIVE_KERNELS_H

#include "row_state.h"

#include <float.h>
#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>
#include <string.h>

/* ---- one element at a time: the tails of the vector loops, and everything where there are no vectors ---- */

static inline float msp_bfloat16_value(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof(value));
    return value;
}

static inline float msp_float16_value(uint16_t bits)
{
    const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
    float value = (float)fraction * (1.0f / 16777216.0f); /* subnormal: fraction * 2^-24 */
    if (exponent != 0) {
        uint32_t word = ((exponent == 31 ? 255u : exponent + 112u) << 23) | (fraction << 13);
        memcpy(&value, &word, sizeof(value));
    }
    return bits & 0x8000 ? -value : value;
}

static inline void msp_add_float(MspSummary *s, double value)
{
    s->least = value < s->least ? value : s->least;
    s->greatest = value > s->greatest ? value : s->greatest;
    s->sum += value;
    s->squares += value * value;
    s->zeros += value == 0;
}

static inline void msp_add_signed(MspSummary *s, int64_t value)
{
    s->int_least = value < s->int_least ? value : s->int_least;
    s->int_greatest = value > s->int_greatest ? value : s->int_greatest;
    s->sum += (double)value;
    s->squares += (double)value * (double)value;
    s->zeros += value == 0;
}

static inline void msp_add_unsigned(MspSummary *s, uint64_t value)
{
    s->uint_least = value < s->uint_least ? value : s->uint_least;
    s->uint_greatest = value > s->uint_greatest ? value : s->uint_greatest;
    s->sum += (double)value;
    s->squares += (double)value * (double)value;
    s->zeros += value == 0;
}

static void msp_bytes_kernel(const void *elements, Py_ssize_t count, MspSummary *s)
{
    const uint8_t *p = elements;
    if (count < 512) {
        for (Py_ssize_t i = 0; i < count; i++) {
            s->bytes[p[i]]++;
        }
        return;
    }
    uint32_t seen[4][256]; /* four tables, so that equal neighbours do not wait for each other */
    while (count > 0) {
        const Py_ssize_t part = count < (Py_ssize_t)1 << 30 ? count : (Py_ssize_t)1 << 30;
        Py_ssize_t i = 0;
        memset(seen, 0, sizeof(seen));
        for (; i + 4 <= part; i += 4) {
            seen[0][p[i]]++;
            seen[1][p[i + 1]]++;
            seen[2][p[i + 2]]++;
            seen[3][p[i + 3]]++;
        }
        for (; i < part; i++) {
            seen[0][p[i]]++;
        }
        for (int b = 0; b < 256; b++) {
            s->bytes[b] += (int64_t)seen[0][b] + seen[1][b] + seen[2][b] + seen[3][b];
        }
        p += part;
        count -= part;
    }
}

static void msp_complex64_kernel(const void *elements, Py_ssize_t count, MspSummary *s)
{
    const float *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        const double re = p[2 * i], im = p[2 * i + 1];
        msp_add_float(s, (float)sqrt(re * re + im * im));
    }
}

static void msp_complex128_kernel(const void *elements, Py_ssize_t count, MspSummary *s)
{
    const double *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        msp_add_float(s, hypot(p[2 * i], p[2 * i + 1]));
    }
}

/* Second passes, taken only when the first met NaN, an infinity, or a float64 beyond the range of its squares. */

#define MSP_COUNT_NONFINITE(name, TYPE, VALUE)                              \
    static void name(const void *elements, Py_ssize_t count, MspSummary *s) \
    {                                                                       \
        const TYPE *p = elements;                                           \
        int64_t nans = 0, infs = 0;                                         \
        for (Py_ssize_t i = 0; i < count; i++) {                            \
            const float value = VALUE(p[i]);                                \
            nans += value != value;                                         \
            infs += value > FLT_MAX || value < -FLT_MAX;                    \
        }                                                                   \
        s->nans += nans;                                                    \
        s->infs += infs;                                                    \
    }

#define MSP_ITSELF(value) (value)
MSP_COUNT_NONFINITE(msp_float32_nonfinite, float, MSP_ITSELF)
MSP_COUNT_NONFINITE(msp_float16_nonfinite, uint16_t, msp_float16_value)
MSP_COUNT_NONFINITE(msp_bfloat16_nonfinite, uint16_t, msp_bfloat16_value)

static void msp_float64_again(const void *elements, Py_ssize_t count, MspSummary *s)
{
    const double *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        const double value = p[i] * s->scale;
        s->nans += p[i] != p[i];
        s->infs += isinf(p[i]) != 0;
        s->sum += value;
        s->squares += value * value;
    }
}

/* With a NaN in one part and an infinity in the other the magnitude counts as NaN. */
static void msp_complex64_nonfinite(const void *elements, Py_ssize_t count, MspSummary *s)
{
    const float *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        const int nan = isnan(p[2 * i]) || isnan(p[2 * i + 1]);
        s->nans += nan;
        s->infs += !nan && (isinf(p[2 * i]) || isinf(p[2 * i + 1]));
    }
}

static void msp_complex128_nonfinite(const void *elements, Py_ssize_t count, MspSummary *s)
{
    const double *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        const int nan = isnan(p[2 * i]) || isnan(p[2 * i + 1]);
        s->nans += nan;
        s->infs += !nan && (isinf(p[2 * i]) || isinf(p[2 * i + 1]));
    }
}

/* ---- vectors ---- */

#if defined(__GNUC__) /* GCC and Clang */

/* Elements are taken sixteen at a time (MSP_LANES), whatever the width of the machine's vectors: lane n of the sums holds
 * the elements n, n + 16, n + 32, ... on every machine. */

#define MSP_INLINE static inline __attribute__((always_inline))
#define MSP_UNROLL _Pragma("GCC unroll 8")

/* mask ? a : b, lane by lane */
#define MSP_CHOOSE(TYPE, MASK, mask, a, b) ((TYPE)(((mask) & (MASK)(a)) | (~(mask) & (MASK)(b))))

/* For vectors of W bytes: loads of one vector of 4-byte lanes, and conversions of half of one, or of one of 8-byte
 * lanes, to doubles. Integers of 64 bits and unsigned ones have no conversion on most machines: their halves are put
 * into the fractions of 2^52 and 2^84, whose difference rounds once, as a conversion would. */
#define MSP_VECTORS(W)                                                                                            \
    typedef float MspFloats##W __attribute__((vector_size(W)));                                                   \
    typedef float MspHalfFloats##W __attribute__((vector_size(W / 2)));                                           \
    typedef int32_t MspInts##W __attribute__((vector_size(W)));                                                   \
    typedef int32_t MspHalfInts##W __attribute__((vector_size(W / 2)));                                           \
    typedef uint32_t MspWords##W __attribute__((vector_size(W)));                                                 \
    typedef uint32_t MspHalfWords##W __attribute__((vector_size(W / 2)));                                         \
    typedef int16_t MspShorts##W __attribute__((vector_size(W / 2)));                                             \
    typedef uint16_t MspShortWords##W __attribute__((vector_size(W / 2)));                                        \
    typedef double MspDoubles##W __attribute__((vector_size(W)));                                                 \
    typedef int64_t MspLongs##W __attribute__((vector_size(W)));                                                  \
    typedef uint64_t MspLongWords##W __attribute__((vector_size(W)));                                             \
                                                                                                                  \
    MSP_INLINE void msp_load_float32_##W(const float *p, MspFloats##W *v)                                         \
    {                                                                                                             \
        memcpy(v, p, W);                                                                                          \
    }                                                                                                             \
    MSP_INLINE void msp_load_int32_##W(const int32_t *p, MspInts##W *v)                                           \
    {                                                                                                             \
        memcpy(v, p, W);                                                                                          \
    }                                                                                                             \
    MSP_INLINE void msp_load_uint32_##W(const uint32_t *p, MspWords##W *v)                                        \
    {                                                                                                             \
        memcpy(v, p, W);                                                                                          \
    }                                                                                                             \
    MSP_INLINE void msp_load_float64_##W(const double *p, MspDoubles##W *v)                                       \
    {                                                                                                             \
        memcpy(v, p, W);                                                                                          \
    }                                                                                                             \
    MSP_INLINE void msp_load_int64_##W(const int64_t *p, MspLongs##W *v)                                          \
    {                                                                                                             \
        memcpy(v, p, W);                                                                                          \
    }                                                                                                             \
    MSP_INLINE void msp_load_uint64_##W(const uint64_t *p, MspLongWords##W *v)                                    \
    {                                                                                                             \
        memcpy(v, p, W);                                                                                          \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_load_int16_##W(const int16_t *p, MspInts##W *v)                                           \
    {                                                                                                             \
        MspShorts##W half;                                                                                        \
        memcpy(&half, p, W / 2);                                                                                  \
        *v = __builtin_convertvector(half, MspInts##W);                                                           \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_load_words_##W(const uint16_t *p, MspWords##W *v)                                         \
    {                                                                                                             \
        MspShortWords##W half;                                                                                    \
        memcpy(&half, p, W / 2);                                                                                  \
        *v = __builtin_convertvector(half, MspWords##W);                                                          \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_load_uint16_##W(const uint16_t *p, MspInts##W *v)                                         \
    {                                                                                                             \
        MspWords##W wide;                                                                                         \
        msp_load_words_##W(p, &wide);                                                                             \
        *v = (MspInts##W)wide;                                                                                    \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_load_bfloat16_##W(const uint16_t *p, MspFloats##W *v)                                     \
    {                                                                                                             \
        MspWords##W wide;                                                                                         \
        msp_load_words_##W(p, &wide);                                                                             \
        *v = (MspFloats##W)(wide << 16);                                                                          \
    }                                                                                                             \
                                                                                                                  \
    /* Normal numbers: exponent and fraction moved to their float32 places and re-biased. Subnormal ones: the \
     * fraction put into the last bits of 0.5, and 0.5 subtracted, which stays right where the program flushes \
     * subnormals to zero. */   \
    MSP_INLINE void msp_load_float16_##W(const uint16_t *p, MspFloats##W *v)                                      \
    {                                                                                                             \
        MspWords##W wide;                                                                                         \
        msp_load_words_##W(p, &wide);                                                                             \
        const MspWords##W magnitude = wide & 0x7FFF;                                                              \
        const MspWords##W special = (MspWords##W)((MspInts##W)magnitude >= 0x7C00) & (255u << 23);                \
        const MspWords##W normal = ((magnitude << 13) + (112u << 23)) | special;                                  \
        const MspWords##W tiny = (MspWords##W)((MspFloats##W)(magnitude | (126u << 23)) - 0.5f);                  \
        const MspWords##W is_tiny = (MspWords##W)((MspInts##W)magnitude < 0x0400);                                \
        *v = (MspFloats##W)((is_tiny & tiny) | (~is_tiny & normal) | ((wide & 0x8000) << 16));                    \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_widen_ints_##W(const MspInts##W *v, int half, MspDoubles##W *wide)                        \
    {                                                                                                             \
        MspHalfInts##W part;                                                                                      \
        memcpy(&part, (const char *)v + half * (W / 2), W / 2);                                                   \
        *wide = __builtin_convertvector(part, MspDoubles##W);                                                     \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_widen_words_##W(const MspWords##W *v, int half, MspDoubles##W *wide)                      \
    {                                                                                                             \
        MspHalfWords##W part;                                                                                     \
        memcpy(&part, (const char *)v + half * (W / 2), W / 2);                                                   \
        const MspLongWords##W in_fraction = __builtin_convertvector(part, MspLongWords##W) | 0x4330000000000000u; \
        *wide = (MspDoubles##W)in_fraction - 0x1p52;                                                              \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_widen_doubles_##W(const MspDoubles##W *v, int half, MspDoubles##W *wide)                  \
    {                                                                                                             \
        *wide = *v;                                                                                               \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_widen_longs_##W(const MspLongs##W *v, int half, MspDoubles##W *wide)                      \
    {                                                                                                             \
        const MspLongWords##W high = ((MspLongWords##W) * v >> 32) ^ 0x4530000080000000u;                         \
        const MspLongWords##W low = ((MspLongWords##W) * v & 0xFFFFFFFFu) | 0x4330000000000000u;                  \
        *wide = ((MspDoubles##W)high - (0x1p84 + 0x1p63 + 0x1p52)) + (MspDoubles##W)low;                          \
    }                                                                                                             \
                                                                                                                  \
    MSP_INLINE void msp_widen_longwords_##W(const MspLongWords##W *v, int half, MspDoubles##W *wide)              \
    {                                                                                                             \
        const MspLongWords##W high = (*v >> 32) | 0x4530000000000000u;                                            \
        const MspLongWords##W low = (*v & 0xFFFFFFFFu) | 0x4330000000000000u;                                     \
        *wide = ((MspDoubles##W)high - (0x1p84 + 0x1p52)) + (MspDoubles##W)low;                                   \
    }

/* Half of a vector of floats as doubles. What compilers make of it is a way over the stack. */
#define MSP_WIDEN_FLOATS(W)                                                                    \
    MSP_INLINE void msp_widen_floats_##W(const MspFloats##W *v, int half, MspDoubles##W *wide) \
    {                                                                                          \
        MspHalfFloats##W part;                                                                 \
        memcpy(&part, (const char *)v + half * (W / 2), W / 2);                                \
        *wide = __builtin_convertvector(part, MspDoubles##W);                                  \
    }

/* Elements with their signs to lanes, which are aligned. */
#define MSP_ROW_ADD(W) \
    MSP_INLINE void msp_row_add_##W(double *lanes, uint64_t signs, const MspDoubles##W *wide) \
    { \
        static const uint64_t last[8] = {63, 62, 61, 60, 59, 58, 57, 56}; \
        MspLongWords##W shift; \
        MspDoubles##W sum; \
        memcpy(&shift, last, W); \
        memcpy(&sum, lanes, W); \
        const MspLongWords##W flip = (((MspLongWords##W){0} + signs) << shift) & 0x8000000000000000ull; \
        sum += (MspDoubles##W)((MspLongWords##W)*wide ^ flip); \
        memcpy(lanes, &sum, W); \
    }

/* The extremes and zeros of a vector, NaN left out. */
#define MSP_NOTE(VECTOR, MASK)                                                       \
    {                                                                                \
        const MASK below = (MASK)(v < least[k]), above = (MASK)(v > greatest[k]);    \
        least[k] = MSP_CHOOSE(VECTOR, MASK, below, v, least[k]);                     \
        greatest[k] = MSP_CHOOSE(VECTOR, MASK, above, v, greatest[k]);               \
        zeros -= (MASK)(v == 0);                                                     \
    }
#define MSP_NOTE_FLOATS_16 MSP_NOTE

/* Sixteen elements from `at` on. ROW: what is done with each vector of doubles besides, `place` of them behind `at`. */
#define MSP_STEP(W, LOAD, WIDEN, VECTOR, MASK, NOTE, at, ROW)                        \
    MSP_UNROLL for (int k = 0; k < VECTORS; k++)                                     \
    {                                                                                \
        VECTOR v;                                                                    \
        LOAD(p + (at) + k * EACH, &v);                                               \
        NOTE(VECTOR, MASK)                                                           \
        MSP_UNROLL for (int part = 0; part < PARTS; part++)                          \
        {                                                                            \
            enum { BEHIND = W / 8 };                                                 \
            MspDoubles##W wide;                                                      \
            WIDEN(&v, part, &wide);                                                  \
            sum[k * PARTS + part] += wide;                                           \
            squares[k * PARTS + part] += wide * wide;                                \
            ROW;                                                                     \
        }                                                                            \
    }

/* BYTES: of a lane; a vector of 4-byte lanes makes two of doubles. With a row the elements go to it word by word, and it
 * learns at the end of each block what the squares were. */
#define MSP_VECTOR_KERNEL(name, ATTRIBUTE, W, BYTES, TYPE, LOAD, WIDEN, VECTOR, MASK, NOTE, LEAST, GREATEST, TOP,   \
                          BOTTOM, ADD, VALUE)                                                                               \
    ATTRIBUTE static void name(const void *elements, Py_ssize_t count, MspSummary *s)                               \
    {                                                                                                               \
        enum { EACH = W / BYTES, VECTORS = MSP_LANES / EACH, PARTS = 8 / BYTES, WIDES = VECTORS * PARTS };          \
        const TYPE *p = elements;                                                                                   \
        MspRowState *const row = s->row;                                                                            \
        double before[MSP_LANES] = {0}, squared[MSP_LANES] = {0};                                                   \
        Py_ssize_t i = 0, words = row == NULL ? 0 : count / MSP_ROW_WORD * MSP_ROW_WORD;                            \
        if (count >= MSP_LANES) {                                                                                   \
            VECTOR least[VECTORS], greatest[VECTORS];                                                               \
            MspDoubles##W sum[WIDES], squares[WIDES];                                                               \
            MSP_UNROLL for (int k = 0; k < VECTORS; k++)                                                            \
            {                                                                                                       \
                least[k] = (VECTOR){0} + TOP;                                                                       \
                greatest[k] = (VECTOR){0} + BOTTOM;                                                                 \
            }                                                                                                       \
            MSP_UNROLL for (int k = 0; k < WIDES; k++)                                                              \
            {                                                                                                       \
                sum[k] = squares[k] = (MspDoubles##W){0};                                                           \
            }                                                                                                       \
            while (i + MSP_LANES <= count) {                                                                        \
                /* counters of zeros are as wide as the lanes: emptied in time */                                   \
                MASK zeros = {0};                                                                                   \
                if (i < words) {                                                                                    \
                    const Py_ssize_t block = i / row->block, most = i + ((Py_ssize_t)1 << 32);                      \
                    Py_ssize_t stop = (block + 1) * row->block;                                                     \
                    stop = stop < words ? stop : words;                                                             \
                    stop = stop < most ? stop : most;                                                               \
                    for (; i < stop; i += MSP_ROW_WORD) {                                                           \
                        const uint64_t word = (uint64_t)(i / MSP_ROW_WORD), signs = msp_row_hash(word);             \
                        double *const lanes = row->lanes + msp_row_shift(word);                                     \
                        for (int at = 0; at < MSP_ROW_WORD; at += MSP_LANES) {                                      \
                            MSP_STEP(W, LOAD, WIDEN, VECTOR, MASK, NOTE, i + at,                                         \
                                     msp_row_add_##W(lanes + at + k * EACH + part * BEHIND, signs >> (at + k * EACH + part * BEHIND), &wide))             \
                        }                                                                                           \
                    }                                                                                               \
                    memcpy(squared, squares, sizeof(squared));                                                      \
                    row->block_squares[block] += msp_row_between(squared, before);                                  \
                    memcpy(before, squared, sizeof(before));                                                        \
                } else {                                                                                            \
                    const Py_ssize_t rest = (count - i) / MSP_LANES;                                                \
                    const Py_ssize_t stop = i + (rest < (1 << 28) ? rest : (1 << 28)) * MSP_LANES;                  \
                    for (; i < stop; i += MSP_LANES) {                                                              \
                        MSP_STEP(W, LOAD, WIDEN, VECTOR, MASK, NOTE, i, )                                                 \
                    }                                                                                               \
                }                                                                                                   \
                for (int lane = 0; lane < EACH; lane++) {                                                           \
                    s->zeros += zeros[lane];                                                                        \
                }                                                                                                   \
            }                                                                                                       \
            for (int k = 0; k < VECTORS; k++) {                                                                     \
                for (int lane = 0; lane < EACH; lane++) {                                                           \
                    s->LEAST = least[k][lane] < s->LEAST ? least[k][lane] : s->LEAST;                               \
                    s->GREATEST = greatest[k][lane] > s->GREATEST ? greatest[k][lane] : s->GREATEST;                \
                }                                                                                                   \
            }                                                                                                       \
            double sums[MSP_LANES];                                                                                 \
            memcpy(sums, sum, sizeof(sums));                                                                        \
            memcpy(squared, squares, sizeof(squared));                                                              \
            if (row != NULL && words < count) {                                                                     \
                row->block_squares[words / row->block] += msp_row_between(squared, before);                         \
            }                                                                                                       \
            for (int width = MSP_LANES / 2; width > 0; width /= 2) {                                                \
                for (int lane = 0; lane < width; lane++) {                                                          \
                    sums[lane] += sums[lane + width];                                                               \
                    squared[lane] += squared[lane + width];                                                         \
                }                                                                                                   \
            }                                                                                                       \
            s->sum += sums[0];                                                                                      \
            s->squares += squared[0];                                                                               \
        }                                                                                                           \
        if (row != NULL) {                                                                                          \
            double *const lanes = row->lanes + msp_row_shift((uint64_t)(words / MSP_ROW_WORD));                     \
            const uint64_t signs = msp_row_hash((uint64_t)(words / MSP_ROW_WORD));                                  \
            for (Py_ssize_t k = words; k < count; k++) {                                                            \
                const double value = (double)VALUE(p[k]);                                                           \
                lanes[k - words] += msp_row_signed(signs, (int)(k - words), value);                                 \
                row->block_squares[words / row->block] += k < i ? 0 : value * value;                                \
            }                                                                                                       \
        }                                                                                                           \
        for (; i < count; i++) {                                                                                    \
            ADD(s, VALUE(p[i]));                                                                                    \
        }                                                                                                           \
    }

#else /* no compiler vectors */

#define MSP_VECTORS(W)
#define MSP_WIDEN_FLOATS(W)
#define MSP_ROW_ADD(W)
#define MSP_VECTOR_KERNEL(name, ATTRIBUTE, W, BYTES, TYPE, LOAD, WIDEN, VECTOR, MASK, NOTE, LEAST, GREATEST, TOP,   \
                          BOTTOM, ADD, VALUE)                                                                               \
    static void name(const void *elements, Py_ssize_t count, MspSummary *s)                                         \
    {                                                                                                               \
        const TYPE *p = elements;                                                                                   \
        MspRowState *const row = s->row;                                                                            \
        for (Py_ssize_t i = 0; i < count; i++) {                                                                    \
            ADD(s, VALUE(p[i]));                                                                                    \
        }                                                                                                           \
        for (Py_ssize_t i = 0; row != NULL && i < count; i++) {                                                     \
            const uint64_t word = (uint64_t)(i / MSP_ROW_WORD);                                                     \
            const double value = (double)VALUE(p[i]);                                                               \
            const int place = (int)(i % MSP_ROW_WORD);                                                              \
            row->lanes[msp_row_shift(word) + place] += msp_row_signed(msp_row_hash(word), place, value);            \
            row->block_squares[i / row->block] += value * value;                                                    \
        }                                                                                                           \
    }

#endif

#define MSP_FLOAT_KERNEL(SUFFIX, ATTRIBUTE, W, name, TYPE, VALUE)                                                \
    MSP_VECTOR_KERNEL(msp_##name##_##SUFFIX, ATTRIBUTE, W, 4, TYPE, msp_load_##name##_##W, msp_widen_floats_##W, \
                      MspFloats##W, MspInts##W, MSP_NOTE_FLOATS_##W, least, greatest, INFINITY, -INFINITY, msp_add_float, VALUE)

#define MSP_INT_KERNEL(SUFFIX, ATTRIBUTE, W, name, TYPE)                                                       \
    MSP_VECTOR_KERNEL(msp_##name##_##SUFFIX, ATTRIBUTE, W, 4, TYPE, msp_load_##name##_##W, msp_widen_ints_##W, \
                      MspInts##W, MspInts##W, MSP_NOTE, int_least, int_greatest, INT32_MAX, INT32_MIN, msp_add_signed,   \
                      MSP_ITSELF)

#define MSP_KERNELS(SUFFIX, ATTRIBUTE, W)                                                                           \
    MSP_FLOAT_KERNEL(SUFFIX, ATTRIBUTE, W, float32, float, MSP_ITSELF)                                              \
    MSP_FLOAT_KERNEL(SUFFIX, ATTRIBUTE, W, float16, uint16_t, msp_float16_value)                                    \
    MSP_FLOAT_KERNEL(SUFFIX, ATTRIBUTE, W, bfloat16, uint16_t, msp_bfloat16_value)                                  \
    MSP_INT_KERNEL(SUFFIX, ATTRIBUTE, W, int16, int16_t)                                                            \
    MSP_INT_KERNEL(SUFFIX, ATTRIBUTE, W, uint16, uint16_t)                                                          \
    MSP_INT_KERNEL(SUFFIX, ATTRIBUTE, W, int32, int32_t)                                                            \
    MSP_VECTOR_KERNEL(msp_uint32_##SUFFIX, ATTRIBUTE, W, 4, uint32_t, msp_load_uint32_##W, msp_widen_words_##W,     \
                      MspWords##W, MspInts##W, MSP_NOTE, int_least, int_greatest, UINT32_MAX, 0u, msp_add_signed, MSP_ITSELF) \
    MSP_VECTOR_KERNEL(msp_float64_##SUFFIX, ATTRIBUTE, W, 8, double, msp_load_float64_##W, msp_widen_doubles_##W,   \
                      MspDoubles##W, MspLongs##W, MSP_NOTE, least, greatest, INFINITY, -INFINITY, msp_add_float, MSP_ITSELF)  \
    MSP_VECTOR_KERNEL(msp_int64_##SUFFIX, ATTRIBUTE, W, 8, int64_t, msp_load_int64_##W, msp_widen_longs_##W,        \
                      MspLongs##W, MspLongs##W, MSP_NOTE, int_least, int_greatest, INT64_MAX, INT64_MIN, msp_add_signed,      \
                      MSP_ITSELF)                                                                                   \
    MSP_VECTOR_KERNEL(msp_uint64_##SUFFIX, ATTRIBUTE, W, 8, uint64_t, msp_load_uint64_##W, msp_widen_longwords_##W, \
                      MspLongWords##W, MspLongs##W, MSP_NOTE, uint_least, uint_greatest, UINT64_MAX, 0u, msp_add_unsigned,    \
                      MSP_ITSELF)                                                                                   \
    static const MspKernel msp_##SUFFIX##_kernels[MSP_KIND_COUNT] = {                                               \
        msp_float32_##SUFFIX, msp_float64_##SUFFIX, msp_float16_##SUFFIX, msp_bfloat16_##SUFFIX,                    \
        msp_bytes_kernel,     msp_bytes_kernel,     msp_int16_##SUFFIX,   msp_int32_##SUFFIX,                       \
        msp_int64_##SUFFIX,   msp_bytes_kernel,     msp_uint16_##SUFFIX,  msp_uint32_##SUFFIX,                      \
        msp_uint64_##SUFFIX,  msp_bytes_kernel,     msp_complex64_kernel, msp_complex128_kernel,                    \
    };

MSP_VECTORS(16)
MSP_WIDEN_FLOATS(16)
MSP_ROW_ADD(16)
MSP_KERNELS(baseline, , 16)

#if defined(__GNUC__) && defined(__x86_64__)
#define MSP_HAVE_X86_VERSIONS
#define MSP_AVX2 __attribute__((target("avx2,fma")))
#define MSP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
MSP_VECTORS(32)
MSP_VECTORS(64)

/* As MSP_NOTE: of a NaN, and of two zeros, these instructions answer their second operand. */
#define MSP_NOTE_FLOATS_32(VECTOR, MASK)                                             \
    {                                                                                \
        least[k] = (VECTOR)_mm256_min_ps((__m256)v, (__m256)least[k]);               \
        greatest[k] = (VECTOR)_mm256_max_ps((__m256)v, (__m256)greatest[k]);         \
        zeros -= (MASK)(v == 0);                                                     \
    }
#define MSP_NOTE_FLOATS_64(VECTOR, MASK)                                                                    \
    {                                                                                                       \
        const __mmask16 zero = _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_EQ_OQ);              \
        least[k] = (VECTOR)_mm512_min_ps((__m512)v, (__m512)least[k]);                                      \
        greatest[k] = (VECTOR)_mm512_max_ps((__m512)v, (__m512)greatest[k]);                                \
        zeros = (MASK)_mm512_mask_add_epi32((__m512i)zeros, zero, (__m512i)zeros, _mm512_set1_epi32(1));    \
    }

MSP_AVX2 MSP_INLINE void msp_widen_floats_32(const MspFloats32 *v, int half, MspDoubles32 *wide)
{
    const __m256 all = (__m256)*v;
    *wide = (MspDoubles32)_mm256_cvtps_pd(half ? _mm256_extractf128_ps(all, 1) : _mm256_castps256_ps128(all));
}

MSP_AVX512 MSP_INLINE void msp_widen_floats_64(const MspFloats64 *v, int half, MspDoubles64 *wide)
{
    const __m512 all = (__m512)*v;
    *wide = (MspDoubles64)_mm512_cvtps_pd(half ? _mm512_extractf32x8_ps(all, 1) : _mm512_castps512_ps256(all));
}

MSP_ROW_ADD(32)

MSP_AVX512 MSP_INLINE void msp_row_add_64(double *lanes, uint64_t signs, const MspDoubles64 *wide)
{
    const __m512d value = (__m512d)*wide, flipped = _mm512_mask_xor_pd(value, (__mmask8)signs, value, _mm512_set1_pd(-0.0));
    _mm512_store_pd(lanes, _mm512_add_pd(_mm512_load_pd(lanes), flipped));
}

MSP_KERNELS(avx2, MSP_AVX2, 32)
MSP_KERNELS(avx512, MSP_AVX512, 64)
#endif

static const MspKernel *msp_kernels = msp_baseline_kernels;

/* Take the version for an instruction set; 0 if this machine or this build does not have it. */
static int msp_choose_kernels(const char *name)
{
    if (strcmp(name, "baseline") == 0) {
        msp_kernels = msp_baseline_kernels;
        return 1;
    }
#ifdef MSP_HAVE_X86_VERSIONS
    __builtin_cpu_init();
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")) {
        msp_kernels = msp_avx512_kernels;
        return 1;
    }
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        msp_kernels = msp_avx2_kernels;
        return 1;
    }
#endif
    return 0;
}

static void msp_statistics_begin(void)
{
    if (!msp_choose_kernels("avx512") && !msp_choose_kernels("avx2")) {
        msp_choose_kernels("baseline");
    }
}

#endif
