/* The sum of squares of adjacent elements of a type that doubles hold with room to spare, and nothing else: what a norm
 * needs, at a third of the time that all statistics take. Lane by lane it is the sum of `kernels.h`, so both
 * give the same number on every machine. */
#ifndef MSPROBE_NATIVE_SQUARES_H
#define MSPROBE_NATIVE_SQUARES_H

#include "kernels.h"

#if defined(__GNUC__)

#define MSP_SUM_SQUARES(name, ATTRIBUTE, W, TYPE, LOAD, VALUE)                         \
    ATTRIBUTE static double name(const void *elements, Py_ssize_t count)               \
    {                                                                                  \
        enum { EACH = W / 4, VECTORS = MSP_LANES / EACH, WIDES = VECTORS * 2 };        \
        const TYPE *p = elements;                                                      \
        Py_ssize_t i = 0;                                                              \
        double squared[MSP_LANES] = {0};                                               \
        if (count >= MSP_LANES) {                                                      \
            MspDoubles##W squares[WIDES];                                              \
            memset(squares, 0, sizeof(squares));                                       \
            for (; i + MSP_LANES <= count; i += MSP_LANES) {                           \
                MSP_UNROLL for (int k = 0; k < VECTORS; k++)                           \
                {                                                                      \
                    MspFloats##W v;                                                    \
                    LOAD(p + i + k * EACH, &v);                                        \
                    MSP_UNROLL for (int part = 0; part < 2; part++)                    \
                    {                                                                  \
                        MspDoubles##W wide;                                            \
                        msp_widen_floats_##W(&v, part, &wide);                         \
                        squares[k * 2 + part] += wide * wide;                          \
                    }                                                                  \
                }                                                                      \
            }                                                                          \
            memcpy(squared, squares, sizeof(squared));                                 \
            for (int width = MSP_LANES / 2; width > 0; width /= 2) {                   \
                for (int lane = 0; lane < width; lane++) {                             \
                    squared[lane] += squared[lane + width];                            \
                }                                                                      \
            }                                                                          \
        }                                                                              \
        double total = squared[0];                                                     \
        for (; i < count; i++) {                                                       \
            const double value = (double)VALUE(p[i]);                                  \
            total += value * value;                                                    \
        }                                                                              \
        return total;                                                                  \
    }

#define MSP_SQUARES(SUFFIX, ATTRIBUTE, W)                                                                               \
    MSP_SUM_SQUARES(msp_squares32_##SUFFIX, ATTRIBUTE, W, float, msp_load_float32_##W, MSP_ITSELF)                      \
    MSP_SUM_SQUARES(msp_squares16_##SUFFIX, ATTRIBUTE, W, uint16_t, msp_load_float16_##W, msp_float16_value)            \
    MSP_SUM_SQUARES(msp_squares_bf16_##SUFFIX, ATTRIBUTE, W, uint16_t, msp_load_bfloat16_##W, msp_bfloat16_value)       \
    static double msp_sum_squares_##SUFFIX(MspKind kind, const void *elements, Py_ssize_t count)                        \
    {                                                                                                                   \
        return kind == MSP_FLOAT32   ? msp_squares32_##SUFFIX(elements, count)                                          \
               : kind == MSP_FLOAT16 ? msp_squares16_##SUFFIX(elements, count)                                          \
                                     : msp_squares_bf16_##SUFFIX(elements, count);                                      \
    }

MSP_SQUARES(baseline, , 16)
#ifdef MSP_HAVE_X86_VERSIONS
MSP_SQUARES(avx2, __attribute__((target("avx2,fma"))), 32)
MSP_SQUARES(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), 64)
#endif

static int msp_has_squares(MspKind kind)
{
    return kind == MSP_FLOAT32 || kind == MSP_FLOAT16 || kind == MSP_BFLOAT16;
}

/* Needs no GIL. */
static double msp_sum_squares(MspKind kind, const void *elements, Py_ssize_t count)
{
#ifdef MSP_HAVE_X86_VERSIONS
    if (msp_kernels == msp_avx512_kernels) {
        return msp_sum_squares_avx512(kind, elements, count);
    }
    if (msp_kernels == msp_avx2_kernels) {
        return msp_sum_squares_avx2(kind, elements, count);
    }
#endif
    return msp_sum_squares_baseline(kind, elements, count);
}

#else /* no compiler vectors */

static int msp_has_squares(MspKind kind)
{
    (void)kind;
    return 0;
}

static double msp_sum_squares(MspKind kind, const void *elements, Py_ssize_t count)
{
    (void)kind, (void)elements, (void)count;
    return 0;
}

#endif

#endif
