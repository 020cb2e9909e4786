/* Sums of the squares and fourth powers of (element - mean), for the kurtosis: a second pass, taken if it is asked for.
 *
 * In double, over fixed lanes as the first pass, and in a unit that is a power of two near the largest magnitude, so
 * that nothing overflows or vanishes.
 */
#ifndef MSPROBE_NATIVE_DEVIATIONS_H
#define MSPROBE_NATIVE_DEVIATIONS_H

#include "statistics.h"

enum { MSP_DEVIATION_LANES = 8 };

static inline void msp_add_deviation(double value, const MspSummary *s, double *second, double *fourth)
{
    const double apart = value * s->unit - s->center, square = apart * apart;
    *second += square;
    *fourth += square * square;
}

#define MSP_DEVIATION_KERNEL(name, TYPE, VALUE)                                         \
    static void name(const void *elements, Py_ssize_t count, MspSummary *s)             \
    {                                                                                   \
        const TYPE *p = elements;                                                       \
        double second[MSP_DEVIATION_LANES] = {0}, fourth[MSP_DEVIATION_LANES] = {0};    \
        Py_ssize_t i = 0;                                                               \
        for (; i + MSP_DEVIATION_LANES <= count; i += MSP_DEVIATION_LANES) {            \
            for (int lane = 0; lane < MSP_DEVIATION_LANES; lane++) {                    \
                msp_add_deviation(VALUE(p[i + lane]), s, &second[lane], &fourth[lane]); \
            }                                                                           \
        }                                                                               \
        for (; i < count; i++) {                                                        \
            msp_add_deviation(VALUE(p[i]), s, &second[0], &fourth[0]);                  \
        }                                                                               \
        for (int lane = 0; lane < MSP_DEVIATION_LANES; lane++) {                        \
            s->second += second[lane];                                                  \
            s->fourth += fourth[lane];                                                  \
        }                                                                               \
    }

#define MSP_AS_DOUBLE(value) ((double)(value))
MSP_DEVIATION_KERNEL(msp_float32_deviations, float, MSP_AS_DOUBLE)
MSP_DEVIATION_KERNEL(msp_float64_deviations, double, MSP_AS_DOUBLE)
MSP_DEVIATION_KERNEL(msp_float16_deviations, uint16_t, msp_float16_value)
MSP_DEVIATION_KERNEL(msp_bfloat16_deviations, uint16_t, msp_bfloat16_value)
MSP_DEVIATION_KERNEL(msp_int16_deviations, int16_t, MSP_AS_DOUBLE)
MSP_DEVIATION_KERNEL(msp_int32_deviations, int32_t, MSP_AS_DOUBLE)
MSP_DEVIATION_KERNEL(msp_int64_deviations, int64_t, MSP_AS_DOUBLE)
MSP_DEVIATION_KERNEL(msp_uint16_deviations, uint16_t, MSP_AS_DOUBLE)
MSP_DEVIATION_KERNEL(msp_uint32_deviations, uint32_t, MSP_AS_DOUBLE)
MSP_DEVIATION_KERNEL(msp_uint64_deviations, uint64_t, MSP_AS_DOUBLE)

/* Of complex numbers the magnitudes, rounded as in the first pass. */
static void msp_complex64_deviations(const void *elements, Py_ssize_t count, MspSummary *s)
{
    const float *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        const double re = p[2 * i], im = p[2 * i + 1];
        msp_add_deviation((float)sqrt(re * re + im * im), s, &s->second, &s->fourth);
    }
}

static void msp_complex128_deviations(const void *elements, Py_ssize_t count, MspSummary *s)
{
    const double *p = elements;
    for (Py_ssize_t i = 0; i < count; i++) {
        msp_add_deviation(hypot(p[2 * i], p[2 * i + 1]), s, &s->second, &s->fourth);
    }
}

static double msp_largest_magnitude(MspKind kind, const MspSummary *s)
{
    if (kind == MSP_UINT64) {
        return (double)s->uint_greatest;
    }
    if (msp_is_float(kind) || msp_is_complex(kind) || kind == MSP_FLOAT8) {
        return fmax(fabs(s->least), fabs(s->greatest));
    }
    return fmax(fabs((double)s->int_least), fabs((double)s->int_greatest));
}

/* After msp_summarise(). Of elements that are not all finite the sums stay 0. Needs no GIL. */
static void msp_sum_deviations(MspKind kind, const char *address, const MspLayout *layout, const float *table,
                               MspSummary *s)
{
    static const MspKernel deviations[MSP_KIND_COUNT] = {
        [MSP_FLOAT32] = msp_float32_deviations,     [MSP_FLOAT64] = msp_float64_deviations,
        [MSP_FLOAT16] = msp_float16_deviations,     [MSP_BFLOAT16] = msp_bfloat16_deviations,
        [MSP_INT16] = msp_int16_deviations,         [MSP_INT32] = msp_int32_deviations,
        [MSP_INT64] = msp_int64_deviations,         [MSP_UINT16] = msp_uint16_deviations,
        [MSP_UINT32] = msp_uint32_deviations,       [MSP_UINT64] = msp_uint64_deviations,
        [MSP_COMPLEX64] = msp_complex64_deviations, [MSP_COMPLEX128] = msp_complex128_deviations,
    };
    const double largest = msp_largest_magnitude(kind, s);
    if (s->nans > 0 || s->infs > 0 || largest == 0 || kind == MSP_BOOL) {
        return;
    }
    const int exponent = ilogb(largest);
    s->unit = ldexp(1.0, exponent > 1000 ? -1000 : exponent < -1000 ? 1000 : -exponent);
    s->center = s->sum * (s->unit / s->scale) / (double)layout->count; /* both are powers of two */
    if (msp_kinds[kind].itemsize > 1) {
        msp_run_kernel(deviations[kind], address, layout, msp_kinds[kind].itemsize, s);
        return;
    }
    for (int b = 0; b < 256; b++) {
        double second = 0, fourth = 0;
        if (s->bytes[b] > 0) {
            msp_add_deviation(msp_byte_value(kind, table, b), s, &second, &fourth);
        }
        s->second += second * (double)s->bytes[b];
        s->fourth += fourth * (double)s->bytes[b];
    }
}

#endif
