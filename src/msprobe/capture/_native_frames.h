/* Where a call was made: the frames of the program, as a key that is cheap to take. */
#ifndef MSPROBE_NATIVE_FRAMES_H
#define MSPROBE_NATIVE_FRAMES_H

#include <Python.h>

#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h> /* f_lasti has no function before 3.11 */
#endif

static long frame_offset(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030b0000
    return PyFrame_GetLasti(frame);
#else
    return frame->f_lasti < 0 ? -1 : (long)(frame->f_lasti * (int)sizeof(_Py_CODEUNIT));
#endif
}

/* The address of a code object stands for it: hashing code objects is slow, and whoever keeps a key keeps the code. */
static PyObject *native_frame_key(PyObject *self, PyObject *argument)
{
    enum { ON_STACK = 256 };
    typedef struct {
        void *code;
        Py_ssize_t offset;
    } Place;
    Place first[ON_STACK];
    Place *places = first;
    Py_ssize_t count = 0, capacity = ON_STACK;
    Py_ssize_t skip = PyLong_AsSsize_t(argument);
    if (skip == -1 && PyErr_Occurred()) {
        return NULL;
    }
    memset(first, 0, sizeof first[0]);
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    while (frame != NULL) {
        if (skip > 0) {
            skip--;
        } else {
            if (count == capacity) {
                Place *more = PyMem_Malloc((size_t)capacity * 2 * sizeof(*more));
                if (more == NULL) {
                    PyErr_NoMemory();
                    break;
                }
                memcpy(more, places, (size_t)count * sizeof(*more));
                if (places != first) {
                    PyMem_Free(places);
                }
                places = more;
                capacity *= 2;
            }
            PyCodeObject *code = PyFrame_GetCode(frame);
            places[count].code = code;
            places[count].offset = (Py_ssize_t)frame_offset(frame);
            count++;
            Py_DECREF(code);
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    PyObject *result = NULL;
    if (frame == NULL) {
        result = PyBytes_FromStringAndSize((const char *)places, count * (Py_ssize_t)sizeof(*places));
    } else {
        Py_DECREF(frame);
    }
    if (places != first) {
        PyMem_Free(places);
    }
    return result;
}

#endif
