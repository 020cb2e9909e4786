/* From elements in memory to a summary of them. Mean and norm are later rounded to the type the framework answers
 * in. */
#ifndef MSPROBE_NATIVE_STATISTICS_H
#define MSPROBE_NATIVE_STATISTICS_H

#include "gather.h"
#include "kernels.h"

static void msp_sum_bytes(MspKind kind, const float *table, MspSummary *s)
{
    for (int b = 0; b < 256; b++) {
        const int64_t times = s->bytes[b];
        if (times == 0) {
            continue;
        }
        const double value = msp_byte_value(kind, table, b);
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
    s->int_least = kind == MSP_FLOAT8 ? 0 : (int64_t)s->least;
    s->int_greatest = kind == MSP_FLOAT8 ? 0 : (int64_t)s->greatest;
}

/* Needs no GIL. `row`: one that gets all elements but those of one byte, adjacent ones in logical order; or
 * NULL. */
static void msp_summarise(MspKind kind, const char *address, const MspLayout *layout, const float *table,
                          MspRowState *row, MspSummary *s)
{
    static const MspKernel again[MSP_KIND_COUNT] = {
        [MSP_FLOAT32] = msp_float32_nonfinite,     [MSP_FLOAT64] = msp_float64_again,
        [MSP_FLOAT16] = msp_float16_nonfinite,     [MSP_BFLOAT16] = msp_bfloat16_nonfinite,
        [MSP_COMPLEX64] = msp_complex64_nonfinite, [MSP_COMPLEX128] = msp_complex128_nonfinite,
    };
    const int itemsize = msp_kinds[kind].itemsize;
    memset(s, 0, itemsize == 1 ? sizeof(*s) : offsetof(MspSummary, bytes));
    s->least = INFINITY;
    s->greatest = -INFINITY;
    s->int_least = INT64_MAX;
    s->int_greatest = INT64_MIN;
    s->uint_least = UINT64_MAX;
    s->scale = 1;
    s->row = itemsize == 1 ? NULL : row;
    msp_run_kernel(msp_kernels[kind], address, layout, itemsize, s);
    s->row = NULL;
    if (itemsize == 1) {
        msp_sum_bytes(kind, table, s);
        return;
    }
    if (kind == MSP_FLOAT64) {
        const double largest = s->greatest > -s->least ? s->greatest : -s->least;
        const int outside = !isfinite(s->squares) || (s->squares < 1e-270 && largest > 0);
        if (outside) {
            if (isfinite(largest) && largest > 0) {
                int exponent = ilogb(largest);
                s->scale = ldexp(1.0, exponent > 1000 ? -1000 : exponent < -1000 ? 1000 : -exponent);
            }
            s->sum = s->squares = 0;
            msp_run_kernel(again[kind], address, layout, itemsize, s);
        }
    } else if ((msp_is_float(kind) && !isfinite(s->squares)) || (msp_is_complex(kind) && !isfinite(s->sum))) {
        msp_run_kernel(again[kind], address, layout, itemsize, s);
    }
}

#endif
