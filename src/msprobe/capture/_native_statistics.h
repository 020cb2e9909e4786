/* Max, min, mean, L2 norm and the counts of NaN, infinity and zero of a tensor's elements, in one read.
 *
 * Sums run in double over fixed lanes, so their error is that of a double sum, and they are the same on every machine,
 * whatever the width of its vectors (if multiplications and additions are not fused: see setup.py). Mean and norm are
 * then rounded to the type the framework would answer in.
 * The kernels are written on compiler vectors and compiled for several instruction sets of x86-64, chosen once at
 * import; other machines and compilers get one version each.
 */
#ifndef MSPROBE_NATIVE_STATISTICS_H
#define MSPROBE_NATIVE_STATISTICS_H

#include "_native_layout.h"

#include <float.h>
#include <stddef.h>

typedef enum {
    FLOAT32, FLOAT64, FLOAT16, BFLOAT16, FLOAT8, /* any one-byte float: the caller gives its 256 values */
    INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, BOOL, COMPLEX64, COMPLEX128,
    KIND_COUNT
} Kind;

static const struct {
    const char *name;
    int itemsize;
} kinds[KIND_COUNT] = {
    {"float32", 4}, {"float64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float8", 1},
    {"int8", 1}, {"int16", 2}, {"int32", 4}, {"int64", 8},
    {"uint8", 1}, {"uint16", 2}, {"uint32", 4}, {"uint64", 8},
    {"bool", 1}, {"complex64", 8}, {"complex128", 16},
};

enum { HIGH_PRECISION = 1, SCALAR = 2 }; /* flags given */
enum { HAS_NAN = 1, HAS_INF = 2 };       /* flags answered */

typedef struct {
    double least, greatest; /* of floats, NaN left out; of magnitudes for complex kinds */
    int64_t int_least, int_greatest;
    uint64_t uint_least, uint_greatest;
    double sum, squares;
    int64_t zeros, nans, infs;
    double scale;          /* second pass over float64 only: a power of two */
    double center, unit, second, fourth; /* see _native_deviations.h */
    int64_t bytes[256];    /* one-byte kinds: how often each byte occurs */
} Summary;

typedef void (*Kernel)(const void *elements, Py_ssize_t count, Summary *summary);

/* ---- one element at a time: the tails of the vector loops, and everything where there are no vectors ---- */

static inline float bfloat16_value(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof(value));
    return value;
}

static inline float float16_value(uint16_t bits)
{
    const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
    float value = (float)fraction * (1.0f / 16777216.0f); /* subnormal: fraction * 2^-24 */
    if (exponent != 0) {
        uint32_t word = ((exponent == 31 ? 255u : exponent + 112u) << 23) | (fraction << 13);
        memcpy(&value, &word, sizeof(value));
    }
    return bits & 0x8000 ? -value : value;
}

static inline void add_float(Summary *s, double value)
{
    s->least = value < s->least ? value : s->least;
    s->greatest = value > s->greatest ? value : s->greatest;
    s->sum += value;
    s->squares += value * value;
    s->zeros += value == 0;
}

static inline void add_signed(Summary *s, int64_t value)
{
    s->int_least = value < s->int_least ? value : s->int_least;
    s->int_greatest = value > s->int_greatest ? value : s->int_greatest;
    s->sum += (double)value;
    s->squares += (double)value * (double)value;
    s->zeros += value == 0;
}

static inline void add_unsigned(Summary *s, uint64_t value)
{
    s->uint_least = value < s->uint_least ? value : s->uint_least;
    s->uint_greatest = value > s->uint_greatest ? value : s->uint_greatest;
    s->sum += (double)value;
    s->squares += (double)value * (double)value;
    s->zeros += value == 0;
}

static void bytes_kernel(const void *elements, Py_ssize_t count, Summary *s)
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

static void complex64_kernel(const void *elements, Py_ssize_t count, Summary *s)
{
    const float *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        const double re = p[2 * i], im = p[2 * i + 1];
        add_float(s, (float)sqrt(re * re + im * im));
    }
}

static void complex128_kernel(const void *elements, Py_ssize_t count, Summary *s)
{
    const double *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        add_float(s, hypot(p[2 * i], p[2 * i + 1]));
    }
}

/* Second passes, taken only when the first met NaN, an infinity, or a float64 beyond the range of its squares. */

#define COUNT_NONFINITE(name, TYPE, VALUE)                                          \
    static void name(const void *elements, Py_ssize_t count, Summary *s)            \
    {                                                                               \
        const TYPE *p = elements;                                                   \
        int64_t nans = 0, infs = 0;                                                 \
        for (Py_ssize_t i = 0; i < count; i++) {                                    \
            const float value = VALUE(p[i]);                                        \
            nans += value != value;                                                 \
            infs += value > FLT_MAX || value < -FLT_MAX;                            \
        }                                                                           \
        s->nans += nans;                                                            \
        s->infs += infs;                                                            \
    }

#define ITSELF(value) (value)
COUNT_NONFINITE(float32_nonfinite, float, ITSELF)
COUNT_NONFINITE(float16_nonfinite, uint16_t, float16_value)
COUNT_NONFINITE(bfloat16_nonfinite, uint16_t, bfloat16_value)

static void float64_again(const void *elements, Py_ssize_t count, Summary *s)
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
static void complex64_nonfinite(const void *elements, Py_ssize_t count, Summary *s)
{
    const float *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        const int nan = isnan(p[2 * i]) || isnan(p[2 * i + 1]);
        s->nans += nan;
        s->infs += !nan && (isinf(p[2 * i]) || isinf(p[2 * i + 1]));
    }
}

static void complex128_nonfinite(const void *elements, Py_ssize_t count, Summary *s)
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

/* Elements are taken sixteen at a time, whatever the width of the machine's vectors: lane n of the sums holds the
 * elements n, n + 16, n + 32, ... on every machine. */
enum { LANES = 16 };

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* mask ? a : b, lane by lane */
#define CHOOSE(TYPE, MASK, mask, a, b) ((TYPE)(((mask) & (MASK)(a)) | (~(mask) & (MASK)(b))))

/* For vectors of W bytes: loads of one vector of 4-byte lanes, and conversions of half of one, or of one of 8-byte
 * lanes, to doubles. Integers of 64 bits and unsigned ones have no conversion on most machines: their halves are put
 * into the fractions of 2^52 and 2^84, whose difference rounds once, as a conversion would. */
#define VECTORS(W)                                                                                          \
    typedef float Floats##W __attribute__((vector_size(W)));                                                \
    typedef float HalfFloats##W __attribute__((vector_size(W / 2)));                                        \
    typedef int32_t Ints##W __attribute__((vector_size(W)));                                                \
    typedef int32_t HalfInts##W __attribute__((vector_size(W / 2)));                                        \
    typedef uint32_t Words##W __attribute__((vector_size(W)));                                              \
    typedef uint32_t HalfWords##W __attribute__((vector_size(W / 2)));                                      \
    typedef int16_t Shorts##W __attribute__((vector_size(W / 2)));                                          \
    typedef uint16_t ShortWords##W __attribute__((vector_size(W / 2)));                                     \
    typedef double Doubles##W __attribute__((vector_size(W)));                                              \
    typedef int64_t Longs##W __attribute__((vector_size(W)));                                               \
    typedef uint64_t LongWords##W __attribute__((vector_size(W)));                                          \
                                                                                                            \
    INLINE void load_float32_##W(const float *p, Floats##W *v) { memcpy(v, p, W); }                         \
    INLINE void load_int32_##W(const int32_t *p, Ints##W *v) { memcpy(v, p, W); }                           \
    INLINE void load_uint32_##W(const uint32_t *p, Words##W *v) { memcpy(v, p, W); }                        \
    INLINE void load_float64_##W(const double *p, Doubles##W *v) { memcpy(v, p, W); }                       \
    INLINE void load_int64_##W(const int64_t *p, Longs##W *v) { memcpy(v, p, W); }                          \
    INLINE void load_uint64_##W(const uint64_t *p, LongWords##W *v) { memcpy(v, p, W); }                    \
                                                                                                            \
    INLINE void load_int16_##W(const int16_t *p, Ints##W *v)                                                \
    {                                                                                                       \
        Shorts##W half;                                                                                     \
        memcpy(&half, p, W / 2);                                                                            \
        *v = __builtin_convertvector(half, Ints##W);                                                        \
    }                                                                                                       \
                                                                                                            \
    INLINE void load_words_##W(const uint16_t *p, Words##W *v)                                              \
    {                                                                                                       \
        ShortWords##W half;                                                                                 \
        memcpy(&half, p, W / 2);                                                                            \
        *v = __builtin_convertvector(half, Words##W);                                                       \
    }                                                                                                       \
                                                                                                            \
    INLINE void load_uint16_##W(const uint16_t *p, Ints##W *v)                                              \
    {                                                                                                       \
        Words##W wide;                                                                                      \
        load_words_##W(p, &wide);                                                                           \
        *v = (Ints##W)wide;                                                                                 \
    }                                                                                                       \
                                                                                                            \
    INLINE void load_bfloat16_##W(const uint16_t *p, Floats##W *v)                                          \
    {                                                                                                       \
        Words##W wide;                                                                                      \
        load_words_##W(p, &wide);                                                                           \
        *v = (Floats##W)(wide << 16);                                                                       \
    }                                                                                                       \
                                                                                                            \
    /* Normal numbers: exponent and fraction moved to their float32 places and re-biased. Subnormal ones: the \
     * fraction put into the last bits of 0.5, and 0.5 subtracted, which stays right where the program flushes \
     * subnormals to zero. */                                                                               \
    INLINE void load_float16_##W(const uint16_t *p, Floats##W *v)                                           \
    {                                                                                                       \
        Words##W wide;                                                                                      \
        load_words_##W(p, &wide);                                                                           \
        const Words##W magnitude = wide & 0x7FFF;                                                           \
        const Words##W special = (Words##W)((Ints##W)magnitude >= 0x7C00) & (255u << 23);                   \
        const Words##W normal = ((magnitude << 13) + (112u << 23)) | special;                               \
        const Words##W tiny = (Words##W)((Floats##W)(magnitude | (126u << 23)) - 0.5f);                     \
        const Words##W is_tiny = (Words##W)((Ints##W)magnitude < 0x0400);                                   \
        *v = (Floats##W)((is_tiny & tiny) | (~is_tiny & normal) | ((wide & 0x8000) << 16));                 \
    }                                                                                                       \
                                                                                                            \
    INLINE void widen_floats_##W(const Floats##W *v, int half, Doubles##W *wide)                            \
    {                                                                                                       \
        HalfFloats##W part;                                                                                 \
        memcpy(&part, (const char *)v + half * (W / 2), W / 2);                                             \
        *wide = __builtin_convertvector(part, Doubles##W);                                                  \
    }                                                                                                       \
                                                                                                            \
    INLINE void widen_ints_##W(const Ints##W *v, int half, Doubles##W *wide)                                \
    {                                                                                                       \
        HalfInts##W part;                                                                                   \
        memcpy(&part, (const char *)v + half * (W / 2), W / 2);                                             \
        *wide = __builtin_convertvector(part, Doubles##W);                                                  \
    }                                                                                                       \
                                                                                                            \
    INLINE void widen_words_##W(const Words##W *v, int half, Doubles##W *wide)                              \
    {                                                                                                       \
        HalfWords##W part;                                                                                  \
        memcpy(&part, (const char *)v + half * (W / 2), W / 2);                                             \
        const LongWords##W in_fraction = __builtin_convertvector(part, LongWords##W) | 0x4330000000000000u; \
        *wide = (Doubles##W)in_fraction - 0x1p52;                                                           \
    }                                                                                                       \
                                                                                                            \
    INLINE void widen_doubles_##W(const Doubles##W *v, int half, Doubles##W *wide) { *wide = *v; }          \
                                                                                                            \
    INLINE void widen_longs_##W(const Longs##W *v, int half, Doubles##W *wide)                              \
    {                                                                                                       \
        const LongWords##W high = ((LongWords##W)*v >> 32) ^ 0x4530000080000000u;                           \
        const LongWords##W low = ((LongWords##W)*v & 0xFFFFFFFFu) | 0x4330000000000000u;                    \
        *wide = ((Doubles##W)high - (0x1p84 + 0x1p63 + 0x1p52)) + (Doubles##W)low;                          \
    }                                                                                                       \
                                                                                                            \
    INLINE void widen_longwords_##W(const LongWords##W *v, int half, Doubles##W *wide)                      \
    {                                                                                                       \
        const LongWords##W high = (*v >> 32) | 0x4530000000000000u;                                         \
        const LongWords##W low = (*v & 0xFFFFFFFFu) | 0x4330000000000000u;                                  \
        *wide = ((Doubles##W)high - (0x1p84 + 0x1p52)) + (Doubles##W)low;                                   \
    }

/* BYTES: of a lane; a vector of 4-byte lanes makes two of doubles. */
#define VECTOR_KERNEL(name, ATTRIBUTE, W, BYTES, TYPE, LOAD, WIDEN, VECTOR, MASK, LEAST, GREATEST, TOP, BOTTOM, ADD, VALUE) \
    ATTRIBUTE static void name(const void *elements, Py_ssize_t count, Summary *s)                          \
    {                                                                                                       \
        enum { EACH = W / BYTES, VECTORS = LANES / EACH, PARTS = 8 / BYTES, WIDES = VECTORS * PARTS };      \
        const TYPE *p = elements;                                                                           \
        Py_ssize_t i = 0;                                                                                   \
        if (count >= LANES) {                                                                               \
            VECTOR least[VECTORS], greatest[VECTORS];                                                       \
            Doubles##W sum[WIDES], squares[WIDES];                                                          \
            UNROLL for (int k = 0; k < VECTORS; k++) {                                                      \
                least[k] = (VECTOR){0} + TOP;                                                               \
                greatest[k] = (VECTOR){0} + BOTTOM;                                                         \
            }                                                                                               \
            UNROLL for (int k = 0; k < WIDES; k++) {                                                        \
                sum[k] = squares[k] = (Doubles##W){0};                                                      \
            }                                                                                               \
            while (i + LANES <= count) {                                                                    \
                /* counters of zeros are as wide as the lanes: emptied in time */                           \
                const Py_ssize_t rest = (count - i) / LANES;                                                \
                const Py_ssize_t stop = i + (rest < (1 << 28) ? rest : (1 << 28)) * LANES;                  \
                MASK zeros = {0};                                                                           \
                for (; i < stop; i += LANES) {                                                              \
                    UNROLL for (int k = 0; k < VECTORS; k++) {                                              \
                        VECTOR v;                                                                           \
                        LOAD(p + i + k * EACH, &v);                                                         \
                        const MASK below = (MASK)(v < least[k]), above = (MASK)(v > greatest[k]);           \
                        least[k] = CHOOSE(VECTOR, MASK, below, v, least[k]);                                \
                        greatest[k] = CHOOSE(VECTOR, MASK, above, v, greatest[k]);                          \
                        zeros -= (MASK)(v == 0);                                                            \
                        UNROLL for (int part = 0; part < PARTS; part++) {                                   \
                            Doubles##W wide;                                                                \
                            WIDEN(&v, part, &wide);                                                         \
                            sum[k * PARTS + part] += wide;                                                  \
                            squares[k * PARTS + part] += wide * wide;                                       \
                        }                                                                                   \
                    }                                                                                       \
                }                                                                                           \
                for (int lane = 0; lane < EACH; lane++) {                                                   \
                    s->zeros += zeros[lane];                                                                \
                }                                                                                           \
            }                                                                                               \
            for (int k = 0; k < VECTORS; k++) {                                                             \
                for (int lane = 0; lane < EACH; lane++) {                                                   \
                    s->LEAST = least[k][lane] < s->LEAST ? least[k][lane] : s->LEAST;                       \
                    s->GREATEST = greatest[k][lane] > s->GREATEST ? greatest[k][lane] : s->GREATEST;        \
                }                                                                                           \
            }                                                                                               \
            double sums[LANES], squared[LANES];                                                             \
            memcpy(sums, sum, sizeof(sums));                                                                \
            memcpy(squared, squares, sizeof(squared));                                                      \
            for (int width = LANES / 2; width > 0; width /= 2) {                                            \
                for (int lane = 0; lane < width; lane++) {                                                  \
                    sums[lane] += sums[lane + width];                                                       \
                    squared[lane] += squared[lane + width];                                                 \
                }                                                                                           \
            }                                                                                               \
            s->sum += sums[0];                                                                              \
            s->squares += squared[0];                                                                       \
        }                                                                                                   \
        for (; i < count; i++) {                                                                            \
            ADD(s, VALUE(p[i]));                                                                            \
        }                                                                                                   \
    }

#else /* no compiler vectors */

#define VECTORS(W)
#define VECTOR_KERNEL(name, ATTRIBUTE, W, BYTES, TYPE, LOAD, WIDEN, VECTOR, MASK, LEAST, GREATEST, TOP, BOTTOM, ADD, VALUE) \
    static void name(const void *elements, Py_ssize_t count, Summary *s)                                    \
    {                                                                                                       \
        const TYPE *p = elements;                                                                           \
        for (Py_ssize_t i = 0; i < count; i++) {                                                            \
            ADD(s, VALUE(p[i]));                                                                            \
        }                                                                                                   \
    }

#endif

#define FLOAT_KERNEL(SUFFIX, ATTRIBUTE, W, name, TYPE, VALUE)                                               \
    VECTOR_KERNEL(name##_##SUFFIX, ATTRIBUTE, W, 4, TYPE, load_##name##_##W, widen_floats_##W, Floats##W,   \
                  Ints##W, least, greatest, INFINITY, -INFINITY, add_float, VALUE)

#define INT_KERNEL(SUFFIX, ATTRIBUTE, W, name, TYPE)                                                        \
    VECTOR_KERNEL(name##_##SUFFIX, ATTRIBUTE, W, 4, TYPE, load_##name##_##W, widen_ints_##W, Ints##W,       \
                  Ints##W, int_least, int_greatest, INT32_MAX, INT32_MIN, add_signed, ITSELF)

#define KERNELS(SUFFIX, ATTRIBUTE, W)                                                                       \
    VECTORS(W)                                                                                              \
    FLOAT_KERNEL(SUFFIX, ATTRIBUTE, W, float32, float, ITSELF)                                              \
    FLOAT_KERNEL(SUFFIX, ATTRIBUTE, W, float16, uint16_t, float16_value)                                    \
    FLOAT_KERNEL(SUFFIX, ATTRIBUTE, W, bfloat16, uint16_t, bfloat16_value)                                  \
    INT_KERNEL(SUFFIX, ATTRIBUTE, W, int16, int16_t)                                                        \
    INT_KERNEL(SUFFIX, ATTRIBUTE, W, uint16, uint16_t)                                                      \
    INT_KERNEL(SUFFIX, ATTRIBUTE, W, int32, int32_t)                                                        \
    VECTOR_KERNEL(uint32_##SUFFIX, ATTRIBUTE, W, 4, uint32_t, load_uint32_##W, widen_words_##W, Words##W,   \
                  Ints##W, int_least, int_greatest, UINT32_MAX, 0u, add_signed, ITSELF)                     \
    VECTOR_KERNEL(float64_##SUFFIX, ATTRIBUTE, W, 8, double, load_float64_##W, widen_doubles_##W, Doubles##W, \
                  Longs##W, least, greatest, INFINITY, -INFINITY, add_float, ITSELF)                        \
    VECTOR_KERNEL(int64_##SUFFIX, ATTRIBUTE, W, 8, int64_t, load_int64_##W, widen_longs_##W, Longs##W,      \
                  Longs##W, int_least, int_greatest, INT64_MAX, INT64_MIN, add_signed, ITSELF)              \
    VECTOR_KERNEL(uint64_##SUFFIX, ATTRIBUTE, W, 8, uint64_t, load_uint64_##W, widen_longwords_##W,         \
                  LongWords##W, Longs##W, uint_least, uint_greatest, UINT64_MAX, 0u, add_unsigned, ITSELF)  \
    static const Kernel SUFFIX##_kernels[KIND_COUNT] = {                                                    \
        float32_##SUFFIX, float64_##SUFFIX, float16_##SUFFIX, bfloat16_##SUFFIX, bytes_kernel,              \
        bytes_kernel, int16_##SUFFIX, int32_##SUFFIX, int64_##SUFFIX,                                       \
        bytes_kernel, uint16_##SUFFIX, uint32_##SUFFIX, uint64_##SUFFIX,                                    \
        bytes_kernel, complex64_kernel, complex128_kernel,                                                  \
    };

KERNELS(baseline, , 16)

#if defined(__GNUC__) && defined(__x86_64__)
#define HAVE_X86_VERSIONS
KERNELS(avx2, __attribute__((target("avx2,fma"))), 32)
KERNELS(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), 64)
#endif

static const Kernel *kernels = baseline_kernels;

/* Take the version for an instruction set; 0 if this machine or this build does not have it. */
static int choose_kernels(const char *name)
{
    if (strcmp(name, "baseline") == 0) {
        kernels = baseline_kernels;
        return 1;
    }
#ifdef HAVE_X86_VERSIONS
    __builtin_cpu_init();
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")) {
        kernels = avx512_kernels;
        return 1;
    }
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        kernels = avx2_kernels;
        return 1;
    }
#endif
    return 0;
}

static void statistics_begin(void)
{
    if (!choose_kernels("avx512") && !choose_kernels("avx2")) {
        choose_kernels("baseline");
    }
}

/* ---- from elements in memory to a summary ---- */

enum { ROW_BYTES = 8192, GIL_WORTH_RELEASING = 65536 /* elements */ };

static void copy_strided(char *to, const char *from, Py_ssize_t count, Py_ssize_t step, int itemsize)
{
#define COPY_AS(TYPE)                                                               \
    for (Py_ssize_t i = 0; i < count; i++) {                                        \
        memcpy(to + i * (Py_ssize_t)sizeof(TYPE), from + i * step, sizeof(TYPE));   \
    }                                                                               \
    break
    switch (itemsize) {
    case 1: COPY_AS(uint8_t);
    case 2: COPY_AS(uint16_t);
    case 4: COPY_AS(uint32_t);
    case 8: COPY_AS(uint64_t);
    default:
        for (Py_ssize_t i = 0; i < count; i++) {
            memcpy(to + i * itemsize, from + i * step, (size_t)itemsize);
        }
    }
#undef COPY_AS
}

/* Move to the next row (all dimensions but the first); 0 when there is none. */
static int next_row(const Layout *layout, Py_ssize_t *index, const char **row, int itemsize)
{
    for (int d = 1; d < layout->dimensions; d++) {
        *row += layout->stride[d] * itemsize;
        if (++index[d] < layout->size[d]) {
            return 1;
        }
        *row -= layout->stride[d] * itemsize * layout->size[d];
        index[d] = 0;
    }
    return 0;
}

static void run_kernel(Kernel kernel, const char *address, const Layout *layout, int itemsize, Summary *summary)
{
    if (layout->count == 0) {
        return;
    }
    if (layout->dimensions == 0) {
        kernel(address, 1, summary);
        return;
    }
    if (layout->dimensions == 1 && layout->stride[0] == 1) {
        kernel(address, layout->size[0], summary);
        return;
    }
    uint64_t buffer[ROW_BYTES / 8];
    char *const gathered = (char *)buffer;
    const Py_ssize_t room = ROW_BYTES / itemsize, step = layout->stride[0] * itemsize, length = layout->size[0];
    Py_ssize_t index[MAX_DIMENSIONS] = {0}, held = 0;
    const char *row = address;
    do {
        if (layout->stride[0] == 1 && length >= room) {
            kernel(row, length, summary);
            continue;
        }
        for (Py_ssize_t done = 0; done < length;) {
            const Py_ssize_t part = length - done < room - held ? length - done : room - held;
            if (layout->stride[0] == 1) {
                memcpy(gathered + held * itemsize, row + done * step, (size_t)(part * itemsize));
            } else {
                copy_strided(gathered + held * itemsize, row + done * step, part, step, itemsize);
            }
            done += part;
            held += part;
            if (held == room) {
                kernel(gathered, held, summary);
                held = 0;
            }
        }
    } while (next_row(layout, index, &row, itemsize));
    kernel(gathered, held, summary);
}

/* The elements' bytes in C order; `sizes` and `strides` as the view has them, none of the sizes zero. */
static void gather_elements(const char *address, const Py_ssize_t *sizes, const Py_ssize_t *strides, int dimensions,
                            int itemsize, char *to)
{
    /* Last dimension first, as next_row has them. */
    Layout layout = {.dimensions = dimensions > 0 ? dimensions : 1, .count = 1, .size = {1}, .stride = {1}};
    Py_ssize_t index[MAX_DIMENSIONS] = {0};
    for (int i = 0; i < dimensions; i++) {
        layout.size[i] = sizes[dimensions - 1 - i];
        layout.stride[i] = strides[dimensions - 1 - i];
    }
    do {
        if (layout.stride[0] == 1) {
            memcpy(to, address, (size_t)(layout.size[0] * itemsize));
        } else {
            copy_strided(to, address, layout.size[0], layout.stride[0] * itemsize, itemsize);
        }
        to += layout.size[0] * itemsize;
    } while (next_row(&layout, index, &address, itemsize));
}

static int is_float(Kind kind) { return kind <= BFLOAT16; }
static int is_complex(Kind kind) { return kind == COMPLEX64 || kind == COMPLEX128; }

/* What a byte stands for. */
static double byte_value(Kind kind, const float *table, int byte)
{
    return kind == FLOAT8 ? (double)table[byte] : kind == INT8 ? (double)(int8_t)byte : (double)byte;
}

static void sum_bytes(Kind kind, const float *table, Summary *s)
{
    for (int b = 0; b < 256; b++) {
        const int64_t times = s->bytes[b];
        if (times == 0) {
            continue;
        }
        const double value = byte_value(kind, table, b);
        if (isnan(value)) {
            s->nans += times;
            continue;
        }
        s->least = value < s->least ? value : s->least;
        s->greatest = value > s->greatest ? value : s->greatest;
        s->infs += isinf(value) ? times : 0;
        s->zeros += value == 0 ? times : 0;
        s->sum += value * (double)times;
        s->squares += value * value * (double)times;
    }
    if (s->nans > 0) {
        s->squares = NAN;
    }
    s->int_least = kind == FLOAT8 ? 0 : (int64_t)s->least;
    s->int_greatest = kind == FLOAT8 ? 0 : (int64_t)s->greatest;
}

/* Needs no GIL. */
static void summarise(Kind kind, const char *address, const Layout *layout, const float *table, Summary *s)
{
    static const Kernel again[KIND_COUNT] = {
        [FLOAT32] = float32_nonfinite,     [FLOAT64] = float64_again,          [FLOAT16] = float16_nonfinite,
        [BFLOAT16] = bfloat16_nonfinite,   [COMPLEX64] = complex64_nonfinite,  [COMPLEX128] = complex128_nonfinite,
    };
    const int itemsize = kinds[kind].itemsize;
    memset(s, 0, itemsize == 1 ? sizeof(*s) : offsetof(Summary, bytes));
    s->least = INFINITY;
    s->greatest = -INFINITY;
    s->int_least = INT64_MAX;
    s->int_greatest = INT64_MIN;
    s->uint_least = UINT64_MAX;
    s->scale = 1;
    run_kernel(kernels[kind], address, layout, itemsize, s);
    if (itemsize == 1) {
        sum_bytes(kind, table, s);
        return;
    }
    if (kind == FLOAT64) {
        const double largest = s->greatest > -s->least ? s->greatest : -s->least;
        const int outside = !isfinite(s->squares) || (s->squares < 1e-270 && largest > 0);
        if (outside) {
            if (isfinite(largest) && largest > 0) {
                int exponent = ilogb(largest);
                s->scale = ldexp(1.0, exponent > 1000 ? -1000 : exponent < -1000 ? 1000 : -exponent);
            }
            s->sum = s->squares = 0;
            run_kernel(again[kind], address, layout, itemsize, s);
        }
    } else if ((is_float(kind) && !isfinite(s->squares)) || (is_complex(kind) && !isfinite(s->sum))) {
        run_kernel(again[kind], address, layout, itemsize, s);
    }
}

#endif
