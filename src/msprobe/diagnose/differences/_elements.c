/* How the elements of two tensors differ, in one pass over both: what tensor_pass.py asks of each piece of them.
 *
 * Its equal in numpy (elements.py) goes over a piece nine times. Elements are taken by lanes, so that sums are the same
 * to the last bit on all machines, and no multiplication is fused with an addition.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Sums are in the type of the elements over one row, and in double over all rows. */
enum { MSE_ROW = 1024, MSE_LANES = 16 };

typedef struct {
    Py_ssize_t count, first, last; /* of elements that differ, NaN among them */
    int first_is_zero_there;       /* the first tensor is zero wherever they differ */
    int negative_zero[2];          /* whether either has one */
    double squares[3];             /* of the first, the second, and their difference */
} MseDifference;

/* One vector of each: into the sums of its lanes. */
#define MSE_ADD(TYPE, BITS, SIGN, A, B)                        \
    for (int k = 0; k < MSE_LANES; k++) {                      \
        const TYPE x = (A)[k], y = (B)[k], z = x - y;          \
        BITS p, q;                                             \
        memcpy(&p, &(A)[k], sizeof(p));                        \
        memcpy(&q, &(B)[k], sizeof(q));                        \
        const BITS differs = -(BITS)(x != y);                  \
        count[k] -= differs;                                   \
        nonzero[k] |= differs & (p & ~SIGN);                   \
        signed_a[k] |= -(BITS)(p == SIGN);                     \
        signed_b[k] |= -(BITS)(q == SIGN);                     \
        mine[k] += x * x;                                      \
        theirs[k] += y * y;                                    \
        apart[k] += z * z;                                     \
    }

#define MSE_COMPARE(NAME, ATTRIBUTE, TYPE, BITS, SIGN)                                                      \
    ATTRIBUTE static void NAME(const void *left, const void *right, Py_ssize_t size, MseDifference *result) \
    {                                                                                                       \
        const TYPE *a = left, *b = right;                                                                   \
        for (Py_ssize_t start = 0; start < size; start += MSE_ROW) {                                        \
            const Py_ssize_t end = size - start < MSE_ROW ? size : start + MSE_ROW;                         \
            TYPE mine[MSE_LANES] = {0}, theirs[MSE_LANES] = {0}, apart[MSE_LANES] = {0};                    \
            BITS count[MSE_LANES] = {0}, nonzero[MSE_LANES] = {0};                                          \
            BITS signed_a[MSE_LANES] = {0}, signed_b[MSE_LANES] = {0};                                      \
            Py_ssize_t i = start;                                                                           \
            for (; i + MSE_LANES <= end; i += MSE_LANES) {                                                  \
                MSE_ADD(TYPE, BITS, SIGN, a + i, b + i)                                                     \
            }                                                                                               \
            if (i < end) {                                                                                  \
                TYPE rest_a[MSE_LANES] = {0}, rest_b[MSE_LANES] = {0};                                      \
                memcpy(rest_a, a + i, (size_t)(end - i) * sizeof(TYPE));                                    \
                memcpy(rest_b, b + i, (size_t)(end - i) * sizeof(TYPE));                                    \
                MSE_ADD(TYPE, BITS, SIGN, rest_a, rest_b)                                                   \
            }                                                                                               \
            Py_ssize_t differing = 0;                                                                       \
            for (int k = 0; k < MSE_LANES; k++) {                                                           \
                differing += (Py_ssize_t)count[k];                                                          \
                result->first_is_zero_there &= nonzero[k] == 0;                                             \
                result->negative_zero[0] |= signed_a[k] != 0;                                               \
                result->negative_zero[1] |= signed_b[k] != 0;                                               \
                result->squares[0] += (double)mine[k];                                                      \
                result->squares[1] += (double)theirs[k];                                                    \
                result->squares[2] += (double)apart[k];                                                     \
            }                                                                                               \
            if (differing > 0) {                                                                            \
                result->count += differing;                                                                 \
                result->last = end - 1;                                                                     \
                while (!(a[result->last] != b[result->last])) {                                             \
                    result->last--;                                                                         \
                }                                                                                           \
                for (Py_ssize_t at = start; result->first < 0; at++) {                                      \
                    result->first = a[at] != b[at] ? at : -1;                                               \
                }                                                                                           \
            }                                                                                               \
        }                                                                                                   \
    }

#define MSE_COMPARE_BOTH(SUFFIX, ATTRIBUTE)                                            \
    MSE_COMPARE(mse_float_##SUFFIX, ATTRIBUTE, float, uint32_t, ((uint32_t)1 << 31))   \
    MSE_COMPARE(mse_double_##SUFFIX, ATTRIBUTE, double, uint64_t, ((uint64_t)1 << 63))

typedef void (*MseCompare)(const void *, const void *, Py_ssize_t, MseDifference *);

MSE_COMPARE_BOTH(baseline, )
static MseCompare mse_float = mse_float_baseline, mse_double = mse_double_baseline;

#if defined(__GNUC__) && defined(__x86_64__)
MSE_COMPARE_BOTH(avx2, __attribute__((target("avx2"))))
MSE_COMPARE_BOTH(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2"))))

#define MSE_HAS_AVX2 (__builtin_cpu_init(), __builtin_cpu_supports("avx2"))
#define MSE_HAS_AVX512                                                                                    \
    (MSE_HAS_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&           \
     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
#else
#define mse_float_avx2 mse_float_baseline
#define mse_float_avx512 mse_float_baseline
#define mse_double_avx2 mse_double_baseline
#define mse_double_avx512 mse_double_baseline
#define MSE_HAS_AVX2 0
#define MSE_HAS_AVX512 0
#endif

/* Whether the machine has the instructions of that name, which are used from then on. */
static int mse_choose(const char *name)
{
    if (strcmp(name, "avx512") == 0 && MSE_HAS_AVX512) {
        mse_float = mse_float_avx512;
        mse_double = mse_double_avx512;
        return 1;
    }
    if (strcmp(name, "avx2") == 0 && MSE_HAS_AVX2) {
        mse_float = mse_float_avx2;
        mse_double = mse_double_avx2;
        return 1;
    }
    if (strcmp(name, "baseline") == 0) {
        mse_float = mse_float_baseline;
        mse_double = mse_double_baseline;
        return 1;
    }
    return 0;
}

static PyObject *mse_choose_kernels(PyObject *self, PyObject *argument)
{
    (void)self;
    const char *name = PyUnicode_AsUTF8(argument);
    return name == NULL ? NULL : PyBool_FromLong(mse_choose(name));
}

/* The only element type of a buffer, `f` or `d`; 0 with an error set for any other. */
static char mse_type_of(const Py_buffer *view)
{
    const char *format = view->format == NULL ? "B" : view->format;
    if (format[0] == '@' || format[0] == '=' || format[0] == (PY_BIG_ENDIAN ? '>' : '<')) {
        format++;
    }
    if ((format[0] != 'f' && format[0] != 'd') || format[1] != '\0') {
        PyErr_Format(PyExc_TypeError, "elements of type %.20s; float and double of this machine are compared", format);
        return 0;
    }
    return format[0];
}

static PyObject *mse_compare_views(const Py_buffer *left, const Py_buffer *right)
{
    const char type = mse_type_of(left), other = mse_type_of(right);
    if (type == 0 || other == 0) {
        return NULL;
    }
    if (type != other || left->len != right->len) {
        PyErr_SetString(PyExc_ValueError, "the two have different types or numbers of elements");
        return NULL;
    }
    MseDifference d = {.first = -1, .last = -1, .first_is_zero_there = 1};
    Py_BEGIN_ALLOW_THREADS;
    (type == 'f' ? mse_float : mse_double)(left->buf, right->buf, left->len / left->itemsize, &d);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("nnn(OO)O(ddd)", d.count, d.first, d.last, d.negative_zero[0] ? Py_True : Py_False,
                         d.negative_zero[1] ? Py_True : Py_False, d.first_is_zero_there ? Py_True : Py_False,
                         d.squares[0], d.squares[1], d.squares[2]);
}

static PyObject *mse_compare(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer left, right;
    (void)self;
    if (nargs != 2) {
        PyErr_Format(PyExc_TypeError, "compare() takes 2 arguments (%zd given)", nargs);
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &left, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (PyObject_GetBuffer(args[1], &right, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) {
        result = mse_compare_views(&left, &right);
        PyBuffer_Release(&right);
    }
    PyBuffer_Release(&left);
    return result;
}

static int mse_execute(PyObject *module)
{
    (void)module;
    if (!mse_choose("avx512") && !mse_choose("avx2")) {
        mse_choose("baseline");
    }
    return 0;
}

static PyMethodDef mse_methods[] = {
    {"compare", (PyCFunction)(void (*)(void))mse_compare, METH_FASTCALL,
     "compare(left, right) -> (count, first, last, negative_zero, first_is_zero_there, squares); see elements.py"},
    {"choose_kernels", mse_choose_kernels, METH_O,
     "choose_kernels(name) -> whether 'baseline', 'avx2' or 'avx512' is what is used from now on (for tests)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot mse_slots[] = {
    {Py_mod_exec, (void *)mse_execute},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef mse_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_elements",
    .m_doc = "How the elements of two tensors differ; see elements.py.",
    .m_size = 0,
    .m_methods = mse_methods,
    .m_slots = mse_slots,
};

PyMODINIT_FUNC PyInit__elements(void) { return PyModuleDef_Init(&mse_definition); }
