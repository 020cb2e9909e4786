/* Which elements of its memory a view shows, and in which order. */
#ifndef MSPROBE_NATIVE_LAYOUT_H
#define MSPROBE_NATIVE_LAYOUT_H

#include <Python.h>

enum { MSP_MAX_DIMENSIONS = 64 };

/* Where the elements lie: sizes and strides in elements, the densest dimension first; repeats have stride 0. */
typedef struct {
    int dimensions;
    Py_ssize_t count;
    Py_ssize_t size[MSP_MAX_DIMENSIONS];
    Py_ssize_t stride[MSP_MAX_DIMENSIONS];
} MspLayout;

/* A tuple of ints into an array; the number of them, or -1. */
static int msp_read_sizes(PyObject *object, Py_ssize_t *sizes)
{
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) > MSP_MAX_DIMENSIONS) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of at most %d ints, found %.200s", MSP_MAX_DIMENSIONS,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    const int count = (int)PyTuple_GET_SIZE(object);
    for (int i = 0; i < count; i++) {
        sizes[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(object, i));
        if (sizes[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (sizes[i] < 0) {
            PyErr_SetString(PyExc_ValueError, "sizes and strides cannot be negative");
            return -1;
        }
    }
    return count;
}

/* Which elements a view holds, whatever their order: dimensions of one left out, the rest sorted by stride, those that
 * continue each other joined. */
static void msp_arrange(const Py_ssize_t *sizes, const Py_ssize_t *strides, int dimensions, MspLayout *layout)
{
    int kept = 0;
    layout->count = 1;
    for (int i = 0; i < dimensions; i++) {
        if (sizes[i] == 0) {
            layout->dimensions = 1;
            layout->count = layout->size[0] = 0;
            layout->stride[0] = 1;
            return;
        }
        layout->count *= sizes[i];
        if (sizes[i] == 1) {
            continue;
        }
        int place = kept++;
        for (; place > 0; place--) {
            const int before = place - 1;
            if (layout->stride[before] < strides[i] ||
                (layout->stride[before] == strides[i] && layout->size[before] <= sizes[i])) {
                break;
            }
            layout->stride[place] = layout->stride[before];
            layout->size[place] = layout->size[before];
        }
        layout->stride[place] = strides[i];
        layout->size[place] = sizes[i];
    }
    int joined = 0;
    for (int i = 0; i < kept; i++) {
        if (joined > 0 && layout->stride[joined - 1] * layout->size[joined - 1] == layout->stride[i]) {
            layout->size[joined - 1] *= layout->size[i];
        } else {
            layout->size[joined] = layout->size[i];
            layout->stride[joined] = layout->stride[i];
            joined++;
        }
    }
    if (joined == 0) {
        layout->size[0] = layout->stride[0] = 1;
        joined = 1;
    }
    layout->dimensions = joined;
}

#endif
