/* Sums of the squares and fourth powers of (element - mean), for the kurtosis: a second pass, taken if it is asked for.
 *
 * In double, over fixed lanes as the first pass, and in a unit that is a power of two near the largest magnitude, so that
 * nothing overflows or vanishes.
 */
#ifndef MSPROBE_NATIVE_DEVIATIONS_H
#define MSPROBE_NATIVE_DEVIATIONS_H

#include "_native_statistics.h"

enum { DEVIATION_LANES = 8 };

static inline void add_deviation(double value, const Summary *s, double *second, double *fourth)
{
    const double apart = value * s->unit - s->center, square = apart * apart;
    *second += square;
    *fourth += square * square;
}

#define DEVIATION_KERNEL(name, TYPE, VALUE)                                                                 \
    static void name(const void *elements, Py_ssize_t count, Summary *s)                                    \
    {                                                                                                       \
        const TYPE *p = elements;                                                                           \
        double second[DEVIATION_LANES] = {0}, fourth[DEVIATION_LANES] = {0};                                \
        Py_ssize_t i = 0;                                                                                   \
        for (; i + DEVIATION_LANES <= count; i += DEVIATION_LANES) {                                        \
            for (int lane = 0; lane < DEVIATION_LANES; lane++) {                                            \
                add_deviation(VALUE(p[i + lane]), s, &second[lane], &fourth[lane]);                         \
            }                                                                                               \
        }                                                                                                   \
        for (; i < count; i++) {                                                                            \
            add_deviation(VALUE(p[i]), s, &second[0], &fourth[0]);                                          \
        }                                                                                                   \
        for (int lane = 0; lane < DEVIATION_LANES; lane++) {                                                \
            s->second += second[lane];                                                                      \
            s->fourth += fourth[lane];                                                                      \
        }                                                                                                   \
    }

#define AS_DOUBLE(value) ((double)(value))
DEVIATION_KERNEL(float32_deviations, float, AS_DOUBLE)
DEVIATION_KERNEL(float64_deviations, double, AS_DOUBLE)
DEVIATION_KERNEL(float16_deviations, uint16_t, float16_value)
DEVIATION_KERNEL(bfloat16_deviations, uint16_t, bfloat16_value)
DEVIATION_KERNEL(int16_deviations, int16_t, AS_DOUBLE)
DEVIATION_KERNEL(int32_deviations, int32_t, AS_DOUBLE)
DEVIATION_KERNEL(int64_deviations, int64_t, AS_DOUBLE)
DEVIATION_KERNEL(uint16_deviations, uint16_t, AS_DOUBLE)
DEVIATION_KERNEL(uint32_deviations, uint32_t, AS_DOUBLE)
DEVIATION_KERNEL(uint64_deviations, uint64_t, AS_DOUBLE)

/* Of complex numbers the magnitudes, rounded as in the first pass. */
static void complex64_deviations(const void *elements, Py_ssize_t count, Summary *s)
{
    const float *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        const double re = p[2 * i], im = p[2 * i + 1];
        add_deviation((float)sqrt(re * re + im * im), s, &s->second, &s->fourth);
    }
}

static void complex128_deviations(const void *elements, Py_ssize_t count, Summary *s)
{
    const double *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        add_deviation(hypot(p[2 * i], p[2 * i + 1]), s, &s->second, &s->fourth);
    }
}

static double largest_magnitude(Kind kind, const Summary *s)
{
    if (kind == UINT64) {
        return (double)s->uint_greatest;
    }
    if (is_float(kind) || is_complex(kind) || kind == FLOAT8) {
        return fmax(fabs(s->least), fabs(s->greatest));
    }
    return fmax(fabs((double)s->int_least), fabs((double)s->int_greatest));
}

/* After summarise(). Of elements that are not all finite the sums stay 0. Needs no GIL. */
static void sum_deviations(Kind kind, const char *address, const Layout *layout, const float *table, Summary *s)
{
    static const Kernel deviations[KIND_COUNT] = {
        [FLOAT32] = float32_deviations,     [FLOAT64] = float64_deviations,     [FLOAT16] = float16_deviations,
        [BFLOAT16] = bfloat16_deviations,   [INT16] = int16_deviations,         [INT32] = int32_deviations,
        [INT64] = int64_deviations,         [UINT16] = uint16_deviations,       [UINT32] = uint32_deviations,
        [UINT64] = uint64_deviations,       [COMPLEX64] = complex64_deviations, [COMPLEX128] = complex128_deviations,
    };
    const double largest = largest_magnitude(kind, s);
    if (s->nans > 0 || s->infs > 0 || largest == 0 || kind == BOOL) {
        return;
    }
    const int exponent = ilogb(largest);
    s->unit = ldexp(1.0, exponent > 1000 ? -1000 : exponent < -1000 ? 1000 : -exponent);
    s->center = s->sum * (s->unit / s->scale) / (double)layout->count; /* both are powers of two */
    if (kinds[kind].itemsize > 1) {
        run_kernel(deviations[kind], address, layout, kinds[kind].itemsize, s);
        return;
    }
    for (int b = 0; b < 256; b++) {
        double second = 0, fourth = 0;
        if (s->bytes[b] > 0) {
            add_deviation(byte_value(kind, table, b), s, &second, &fourth);
        }
        s->second += second * (double)s->bytes[b];
        s->fourth += fourth * (double)s->bytes[b];
    }
}

#endif
