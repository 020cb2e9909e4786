/* What a summary of elements amounts to: numbers for msprobe.statistics_table, or at once the text of the usual
 * statistics, which must be the one that the table makes of the numbers.
 */
#ifndef MSPROBE_NATIVE_NUMBERS_H
#define MSPROBE_NATIVE_NUMBERS_H

#include "_native_deviations.h"
#include "_native_statistics.h"
#include "_native_text.h"

/* Round to a binary format with `digits` significant bits, as a conversion from float32 would. */
static double round_to_format(double value, int digits, int least_exponent, double largest)
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

static double round_result(Kind kind, int flags, double value)
{
    switch (kind) {
    case FLOAT16: return flags & HIGH_PRECISION ? (float)value : round_to_format(value, 11, -14, 65504.0);
    case BFLOAT16: return flags & HIGH_PRECISION ? (float)value : round_to_format(value, 8, -126, 0x1.FEp127);
    case FLOAT32:
    case FLOAT8:
    case COMPLEX64: return (float)value;
    default: return value;
    }
}

/* ---- numbers ---- */

typedef enum {
    COUNT, SINGLE, GREATEST, LEAST, MEAN, NORM, NANS, INFS, ZEROS, SECOND, FOURTH,
    NUMBER_COUNT
} Number;
enum { DEVIATIONS = 1 };

/* The names of the table, and which further pass a number costs. */
static const struct {
    const char *name;
    int further;
} statistic_numbers[NUMBER_COUNT] = {
    [COUNT] = {"count", 0}, [SINGLE] = {"single", 0}, [GREATEST] = {"max", 0}, [LEAST] = {"min", 0},
    [MEAN] = {"mean", 0},   [NORM] = {"norm", 0},     [NANS] = {"nan", 0},     [INFS] = {"inf", 0},
    [ZEROS] = {"zero", 0},  [SECOND] = {"second", DEVIATIONS}, [FOURTH] = {"fourth", DEVIATIONS},
};
static PyObject *number_names[NUMBER_COUNT];

/* The dict of names and further passes for Python; NULL with an error set. */
static PyObject *statistic_numbers_begin(void)
{
    PyObject *known = PyDict_New();
    for (int i = 0; known != NULL && i < NUMBER_COUNT; i++) {
        PyObject *further = PyLong_FromLong(statistic_numbers[i].further);
        number_names[i] = PyUnicode_InternFromString(statistic_numbers[i].name);
        if (further == NULL || number_names[i] == NULL || PyDict_SetItem(known, number_names[i], further) < 0) {
            Py_CLEAR(known);
        }
        Py_XDECREF(further);
    }
    return known;
}

/* The summary, and what the further passes over the elements find that are asked for. Needs no GIL. */
static void read_numbers(Kind kind, const char *address, const Layout *layout, const float *table, int further,
                         Summary *s)
{
    summarise(kind, address, layout, table, s);
    if (further & DEVIATIONS) {
        sum_deviations(kind, address, layout, table, s);
    }
}

/* A mean or norm, which may have been summed scaled down or up. */
static double mean_of(Kind kind, int flags, Py_ssize_t count, const Summary *s)
{
    const double mean = s->sum / (double)count;
    return round_result(kind, flags, s->scale == 1 ? mean : mean / s->scale);
}

static double norm_of(Kind kind, int flags, const Summary *s)
{
    const double norm = sqrt(s->squares);
    return round_result(kind, flags, s->scale == 1 ? norm : norm / s->scale);
}

/* The value is taken over. */
static int put_number(PyObject *found, Number number, PyObject *value)
{
    const int failed = value == NULL || PyDict_SetItem(found, number_names[number], value) < 0;
    Py_XDECREF(value);
    return failed;
}

static int put_extreme(PyObject *found, Number number, Kind kind, const Summary *s)
{
    const int top = number == GREATEST;
    if (kind == UINT64) {
        return put_number(found, number, PyLong_FromUnsignedLongLong(top ? s->uint_greatest : s->uint_least));
    }
    if (!is_float(kind) && !is_complex(kind) && kind != FLOAT8) {
        return put_number(found, number, PyLong_FromLongLong(top ? s->int_greatest : s->int_least));
    }
    return put_number(found, number, PyFloat_FromDouble(top ? s->greatest : s->least));
}

/* A dict of numbers; NULL with an error set. */
static PyObject *statistic_numbers_of(Kind kind, int flags, Py_ssize_t count, int further, const Summary *s)
{
    PyObject *found = PyDict_New();
    int failed = found == NULL || put_number(found, COUNT, PyLong_FromSsize_t(count)) ||
                 put_number(found, SINGLE, PyBool_FromLong(flags & SCALAR));
    if (failed || count == 0) {
        goto done;
    }
    failed = put_number(found, NANS, PyLong_FromLongLong(s->nans)) ||
             put_number(found, INFS, PyLong_FromLongLong(s->infs)) ||
             put_number(found, ZEROS, PyLong_FromLongLong(s->zeros));
    if (kind == BOOL) {
        failed = failed || put_number(found, GREATEST, PyBool_FromLong(s->zeros < count)) ||
                 put_number(found, LEAST, PyBool_FromLong(s->zeros == 0));
        goto done;
    }
    failed = failed || put_extreme(found, GREATEST, kind, s) || put_extreme(found, LEAST, kind, s);
    if (failed) {
        goto done;
    }
    if (flags & SCALAR) {
        PyObject *value = PyDict_GetItem(found, number_names[GREATEST]);
        failed = put_number(found, MEAN, Py_NewRef(value)) ||
                 put_number(found, NORM, Py_NewRef(is_complex(kind) ? Py_None : value));
    } else {
        failed = put_number(found, MEAN, PyFloat_FromDouble(mean_of(kind, flags, count, s))) ||
                 put_number(found, NORM,
                            is_complex(kind) ? Py_NewRef(Py_None) : PyFloat_FromDouble(norm_of(kind, flags, s)));
        if (!failed && (further & DEVIATIONS)) {
            failed = put_number(found, SECOND, PyFloat_FromDouble(s->second)) ||
                     put_number(found, FOURTH, PyFloat_FromDouble(s->fourth));
        }
    }
done:
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

/* ---- text ---- */

#define SEPARATOR ",\n "

static char *put_statistics(char *out, const char *greatest, const char *least, const char *mean, const char *norm)
{
    out = put_literal(put_literal(out, "\"Max\": "), greatest);
    out = put_literal(put_literal(out, SEPARATOR "\"Min\": "), least);
    out = put_literal(put_literal(out, SEPARATOR "\"Mean\": "), mean);
    return put_literal(put_literal(out, SEPARATOR "\"Norm\": "), norm);
}

/* Texts of at most 4 * NUMBER_ROOM + 64 and 3 * NUMBER_ROOM bytes; returns the answer's flags. */
static int write_summary(Kind kind, int flags, Py_ssize_t count, const Summary *s, char **text, char **extra)
{
    char greatest[NUMBER_ROOM], least[NUMBER_ROOM], mean[NUMBER_ROOM], norm[NUMBER_ROOM];
    const int integral = !is_float(kind) && !is_complex(kind) && kind != FLOAT8;
    int answer = (s->nans > 0 ? HAS_NAN : 0) | (s->infs > 0 ? HAS_INF : 0);
    if (count == 0) {
        *text = put_statistics(*text, "null", "null", "null", "null");
        return 0;
    }
    if (kind == BOOL) {
        *text = put_statistics(*text, s->zeros < count ? "true" : "false", s->zeros == 0 ? "true" : "false", "null", "null");
    } else {
        if (s->nans > 0) {
            strcpy(greatest, "NaN");
            strcpy(least, "NaN");
            strcpy(mean, "NaN");
            strcpy(norm, "NaN");
        } else {
            if (kind == UINT64) {
                *put_unsigned(greatest, s->uint_greatest) = 0;
                *put_unsigned(least, s->uint_least) = 0;
            } else if (integral) {
                *put_signed(greatest, s->int_greatest) = 0;
                *put_signed(least, s->int_least) = 0;
            } else {
                *put_double(greatest, s->greatest) = 0;
                *put_double(least, s->least) = 0;
            }
            if (flags & SCALAR) {
                strcpy(mean, greatest);
                strcpy(norm, greatest);
            } else {
                *put_double(mean, mean_of(kind, flags, count, s)) = 0;
                *put_double(norm, norm_of(kind, flags, s)) = 0;
            }
        }
        *text = put_statistics(*text, greatest, least, mean, is_complex(kind) ? "null" : norm);
    }
    if (!(flags & SCALAR)) {
        const char *separator = "";
        if (s->nans > 0) {
            *extra = put_signed(put_literal(*extra, "\"nan\": "), s->nans);
            separator = SEPARATOR;
        }
        if (s->infs > 0) {
            *extra = put_signed(put_literal(put_literal(*extra, separator), "\"inf\": "), s->infs);
            separator = SEPARATOR;
        }
        if (s->zeros > 0) {
            *extra = put_signed(put_literal(put_literal(*extra, separator), "\"zero\": "), s->zeros);
        }
    }
    return answer;
}

#endif
