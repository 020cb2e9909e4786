/* What a summary of elements amounts to: numbers for msprobe.statistics_table, or at once the text of the usual
 * statistics, which must be the one that the table makes of the numbers.
 */
#ifndef MSPROBE_NATIVE_NUMBERS_H
#define MSPROBE_NATIVE_NUMBERS_H

#include "deviations.h"
#include "statistics.h"
#include "text.h"

/* Round to a binary format with `digits` significant bits, as a conversion from float32 would. */
static double msp_round_to_format(double value, int digits, int least_exponent, double largest)
{
    value = (float)value;
    if (!isfinite(value) || value == 0) {
        return value;
    }
    int exponent = ilogb(value);
    exponent = (exponent < least_exponent ? least_exponent : exponent) - (digits - 1);
    value = ldexp(nearbyint(ldexp(value, -exponent)), exponent);
    if (fabs(value) > largest) {
        return value > 0 ? INFINITY : -INFINITY;
    }
    return value;
}

static double msp_round_result(MspKind kind, int flags, double value)
{
    if (flags & MSP_UNROUNDED) {
        return value;
    }
    switch (kind) {
    case MSP_FLOAT16: return flags & MSP_HIGH_PRECISION ? (float)value : msp_round_to_format(value, 11, -14, 65504.0);
    case MSP_BFLOAT16:
        return flags & MSP_HIGH_PRECISION ? (float)value : msp_round_to_format(value, 8, -126, 0x1.FEp127);
    case MSP_FLOAT32:
    case MSP_FLOAT8:
    case MSP_COMPLEX64: return (float)value;
    default: return value;
    }
}

/* ---- numbers ---- */

typedef enum {
    MSP_COUNT,
    MSP_SINGLE,
    MSP_GREATEST,
    MSP_LEAST,
    MSP_MEAN,
    MSP_NORM,
    MSP_NANS,
    MSP_INFS,
    MSP_ZEROS,
    MSP_SECOND,
    MSP_FOURTH,
    MSP_NUMBER_COUNT
} MspNumber;
enum { MSP_DEVIATIONS = 1 };

/* The names of the table, and which further pass a number costs. */
static const struct {
    const char *name;
    int further;
} msp_statistic_numbers[MSP_NUMBER_COUNT] = {
    [MSP_COUNT] = {"count", 0},
    [MSP_SINGLE] = {"single", 0},
    [MSP_GREATEST] = {"max", 0},
    [MSP_LEAST] = {"min", 0},
    [MSP_MEAN] = {"mean", 0},
    [MSP_NORM] = {"norm", 0},
    [MSP_NANS] = {"nan", 0},
    [MSP_INFS] = {"inf", 0},
    [MSP_ZEROS] = {"zero", 0},
    [MSP_SECOND] = {"second", MSP_DEVIATIONS},
    [MSP_FOURTH] = {"fourth", MSP_DEVIATIONS},
};
static PyObject *msp_number_names[MSP_NUMBER_COUNT];

/* The dict of names and further passes for Python; NULL with an error set. */
static PyObject *msp_statistic_numbers_begin(void)
{
    PyObject *known = PyDict_New();
    for (int i = 0; known != NULL && i < MSP_NUMBER_COUNT; i++) {
        PyObject *further = PyLong_FromLong(msp_statistic_numbers[i].further);
        msp_number_names[i] = PyUnicode_InternFromString(msp_statistic_numbers[i].name);
        if (further == NULL || msp_number_names[i] == NULL || PyDict_SetItem(known, msp_number_names[i], further) < 0) {
            Py_CLEAR(known);
        }
        Py_XDECREF(further);
    }
    return known;
}

/* The summary, and what the further passes over the elements find that are asked for. Needs no GIL. */
static void msp_read_numbers(MspKind kind, const char *address, const MspLayout *layout, const float *table,
                             int further, MspRowState *row, MspSummary *s)
{
    msp_summarise(kind, address, layout, table, row, s);
    if (further & MSP_DEVIATIONS) {
        msp_sum_deviations(kind, address, layout, table, s);
    }
}

/* A mean or norm, which may have been summed scaled down or up. */
static double msp_mean_of(MspKind kind, int flags, Py_ssize_t count, const MspSummary *s)
{
    const double mean = s->sum / (double)count;
    return msp_round_result(kind, flags, s->scale == 1 ? mean : mean / s->scale);
}

static double msp_norm_of(MspKind kind, int flags, const MspSummary *s)
{
    const double norm = sqrt(s->squares);
    return msp_round_result(kind, flags, s->scale == 1 ? norm : norm / s->scale);
}

/* The value is taken over. */
static int msp_put_number(PyObject *found, MspNumber number, PyObject *value)
{
    const int failed = value == NULL || PyDict_SetItem(found, msp_number_names[number], value) < 0;
    Py_XDECREF(value);
    return failed;
}

static int msp_put_extreme(PyObject *found, MspNumber number, MspKind kind, const MspSummary *s)
{
    const int top = number == MSP_GREATEST;
    if (kind == MSP_UINT64) {
        return msp_put_number(found, number, PyLong_FromUnsignedLongLong(top ? s->uint_greatest : s->uint_least));
    }
    if (!msp_is_float(kind) && !msp_is_complex(kind) && kind != MSP_FLOAT8) {
        return msp_put_number(found, number, PyLong_FromLongLong(top ? s->int_greatest : s->int_least));
    }
    return msp_put_number(found, number, PyFloat_FromDouble(top ? s->greatest : s->least));
}

/* A dict of numbers; NULL with an error set. */
static PyObject *msp_statistic_numbers_of(MspKind kind, int flags, Py_ssize_t count, int further, const MspSummary *s)
{
    PyObject *found = PyDict_New();
    int failed = found == NULL || msp_put_number(found, MSP_COUNT, PyLong_FromSsize_t(count)) ||
                 msp_put_number(found, MSP_SINGLE, PyBool_FromLong(flags & MSP_SCALAR));
    if (failed || count == 0) {
        goto done;
    }
    failed = msp_put_number(found, MSP_NANS, PyLong_FromLongLong(s->nans)) ||
             msp_put_number(found, MSP_INFS, PyLong_FromLongLong(s->infs)) ||
             msp_put_number(found, MSP_ZEROS, PyLong_FromLongLong(s->zeros));
    if (kind == MSP_BOOL) {
        failed = failed || msp_put_number(found, MSP_GREATEST, PyBool_FromLong(s->zeros < count)) ||
                 msp_put_number(found, MSP_LEAST, PyBool_FromLong(s->zeros == 0));
        goto done;
    }
    failed = failed || msp_put_extreme(found, MSP_GREATEST, kind, s) || msp_put_extreme(found, MSP_LEAST, kind, s);
    if (failed) {
        goto done;
    }
    if (flags & MSP_SCALAR) {
        PyObject *value = PyDict_GetItem(found, msp_number_names[MSP_GREATEST]);
        failed = msp_put_number(found, MSP_MEAN, Py_NewRef(value)) ||
                 msp_put_number(found, MSP_NORM, Py_NewRef(msp_is_complex(kind) ? Py_None : value));
    } else {
        failed =
            msp_put_number(found, MSP_MEAN, PyFloat_FromDouble(msp_mean_of(kind, flags, count, s))) ||
            msp_put_number(found, MSP_NORM,
                           msp_is_complex(kind) ? Py_NewRef(Py_None) : PyFloat_FromDouble(msp_norm_of(kind, flags, s)));
        if (!failed && (further & MSP_DEVIATIONS)) {
            failed = msp_put_number(found, MSP_SECOND, PyFloat_FromDouble(s->second)) ||
                     msp_put_number(found, MSP_FOURTH, PyFloat_FromDouble(s->fourth));
        }
    }
done:
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

/* ---- text ---- */

#define MSP_SEPARATOR ","

static char *msp_put_statistics(char *out, const char *greatest, const char *least, const char *mean, const char *norm)
{
    out = msp_put_literal(msp_put_literal(out, "\"Max\":"), greatest);
    out = msp_put_literal(msp_put_literal(out, MSP_SEPARATOR "\"Min\":"), least);
    out = msp_put_literal(msp_put_literal(out, MSP_SEPARATOR "\"Mean\":"), mean);
    return msp_put_literal(msp_put_literal(out, MSP_SEPARATOR "\"Norm\":"), norm);
}

/* Texts of at most 4 * NUMBER_ROOM + 64 and 3 * NUMBER_ROOM bytes; returns the answer's flags. */
static int msp_write_summary(MspKind kind, int flags, Py_ssize_t count, const MspSummary *s, char **text, char **extra)
{
    char greatest[MSP_NUMBER_ROOM], least[MSP_NUMBER_ROOM], mean[MSP_NUMBER_ROOM], norm[MSP_NUMBER_ROOM];
    const int integral = !msp_is_float(kind) && !msp_is_complex(kind) && kind != MSP_FLOAT8;
    int answer = (s->nans > 0 ? MSP_HAS_NAN : 0) | (s->infs > 0 ? MSP_HAS_INF : 0);
    if (count == 0) {
        *text = msp_put_statistics(*text, "null", "null", "null", "null");
        return 0;
    }
    if (kind == MSP_BOOL) {
        *text = msp_put_statistics(*text, s->zeros < count ? "true" : "false", s->zeros == 0 ? "true" : "false", "null",
                                   "null");
    } else {
        if (s->nans > 0) {
            strcpy(greatest, "NaN");
            strcpy(least, "NaN");
            strcpy(mean, "NaN");
            strcpy(norm, "NaN");
        } else {
            if (kind == MSP_UINT64) {
                *msp_put_unsigned(greatest, s->uint_greatest) = 0;
                *msp_put_unsigned(least, s->uint_least) = 0;
            } else if (integral) {
                *msp_put_signed(greatest, s->int_greatest) = 0;
                *msp_put_signed(least, s->int_least) = 0;
            } else {
                *msp_put_double(greatest, s->greatest) = 0;
                *msp_put_double(least, s->least) = 0;
            }
            if (flags & MSP_SCALAR) {
                strcpy(mean, greatest);
                strcpy(norm, greatest);
            } else {
                *msp_put_double(mean, msp_mean_of(kind, flags, count, s)) = 0;
                *msp_put_double(norm, msp_norm_of(kind, flags, s)) = 0;
            }
        }
        *text = msp_put_statistics(*text, greatest, least, mean, msp_is_complex(kind) ? "null" : norm);
    }
    if (!(flags & MSP_SCALAR)) {
        const char *separator = "";
        if (s->nans > 0) {
            *extra = msp_put_signed(msp_put_literal(*extra, "\"nan\":"), s->nans);
            separator = MSP_SEPARATOR;
        }
        if (s->infs > 0) {
            *extra = msp_put_signed(msp_put_literal(msp_put_literal(*extra, separator), "\"inf\":"), s->infs);
            separator = MSP_SEPARATOR;
        }
        if (s->zeros > 0) {
            *extra = msp_put_signed(msp_put_literal(msp_put_literal(*extra, separator), "\"zero\":"), s->zeros);
        }
    }
    return answer;
}

#endif
