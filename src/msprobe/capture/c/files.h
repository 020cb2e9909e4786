/* Many small files at once, without Python in between: a thread that writes would have to wait for its turn after every
 * system call while another one runs the training.
 */
#ifndef MSPROBE_NATIVE_FILES_H
#define MSPROBE_NATIVE_FILES_H

#include <Python.h>

#ifndef _WIN32
#define MSP_HAVE_WRITE_FILES

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MSP_PIECES = 3 };

/* A file, whole under its name or not there at all; or a further name of a file, where there are no pieces. */
typedef struct {
    const char *name, *existing;
    Py_buffer pieces[MSP_PIECES];
    int held; /* of the pieces */
} MspNewFile;

/* 0, or what went wrong. */
static int msp_write_pieces(int descriptor, const Py_buffer *pieces)
{
    struct iovec parts[MSP_PIECES];
    for (int i = 0; i < MSP_PIECES; i++) {
        parts[i] = (struct iovec){pieces[i].buf, (size_t)pieces[i].len};
    }
    for (int first = 0; first < MSP_PIECES;) {
        if (parts[first].iov_len == 0) {
            first++;
            continue;
        }
        ssize_t written = writev(descriptor, parts + first, MSP_PIECES - first);
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno;
        }
        if (written == 0) {
            return EIO;
        }
        for (int i = first; i < MSP_PIECES && written > 0; i++) {
            const size_t part = (size_t)written < parts[i].iov_len ? (size_t)written : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            written -= (ssize_t)part;
        }
    }
    return 0;
}

/* `temporary` is NULL where the file is written under its own name, which some file systems do in a fifth of the
 * time: for those who can tell by something else whether it is whole. */
static int msp_write_file(int directory, mode_t mode, const char *temporary, const MspNewFile *file)
{
    const char *name = temporary == NULL ? file->name : temporary;
    const int descriptor = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (descriptor < 0) {
        return errno;
    }
    /* Whatever the user's umask took away. A look costs nothing, a change is one more for the file system to keep. */
    struct stat found;
    const int is_other = fstat(descriptor, &found) < 0 || (found.st_mode & 07777) != mode;
    int problem = is_other && fchmod(descriptor, mode) < 0 ? errno : msp_write_pieces(descriptor, file->pieces);
    if (close(descriptor) < 0 && problem == 0 && errno != EINTR) {
        problem = errno;
    }
    if (problem == 0 && temporary != NULL && renameat(directory, temporary, directory, file->name) < 0) {
        problem = errno;
    }
    if (problem != 0) {
        unlinkat(directory, name, 0);
    }
    return problem;
}

/* Whether the tuple is (name, head, data, tail) or (name, existing); buffers are held from then on. */
static int msp_read_file(PyObject *tuple, MspNewFile *file)
{
    const Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : 0;
    file->held = 0;
    if ((count != 2 && count != 1 + MSP_PIECES) || !PyBytes_Check(PyTuple_GET_ITEM(tuple, 0))) {
        PyErr_SetString(PyExc_TypeError, "expected (name, head, data, tail) or (name, existing name), names in bytes");
        return -1;
    }
    file->name = PyBytes_AS_STRING(PyTuple_GET_ITEM(tuple, 0));
    file->existing = NULL;
    if (count == 2) {
        if (!PyBytes_Check(PyTuple_GET_ITEM(tuple, 1))) {
            PyErr_SetString(PyExc_TypeError, "names are bytes");
            return -1;
        }
        file->existing = PyBytes_AS_STRING(PyTuple_GET_ITEM(tuple, 1));
        return 0;
    }
    for (; file->held < MSP_PIECES; file->held++) {
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(tuple, 1 + file->held), &file->pieces[file->held], PyBUF_SIMPLE) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *msp_native_write_files(PyObject *self, PyObject *args)
{
    int directory, mode;
    const char *prefix;
    PyObject *tuples, *result = NULL;
    if (!PyArg_ParseTuple(args, "iisO!", &directory, &mode, &prefix, &PyList_Type, &tuples)) {
        return NULL;
    }
    /* A tuple of its own: the list might change while it is not watched. */
    tuples = PyList_AsTuple(tuples);
    if (tuples == NULL) {
        return NULL;
    }
    const Py_ssize_t count = PyTuple_GET_SIZE(tuples);
    MspNewFile *files = PyMem_Calloc((size_t)count + 1, sizeof(MspNewFile));
    Py_ssize_t known = 0, done = 0;
    int problem = 0;
    if (files == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (; known < count; known++) {
        if (msp_read_file(PyTuple_GET_ITEM(tuples, known), &files[known]) < 0) {
            known++;
            goto end;
        }
    }
    Py_BEGIN_ALLOW_THREADS;
    char temporary[256];
    for (; done < count && problem == 0; done += problem == 0) {
        const MspNewFile *file = &files[done];
        if (file->existing != NULL) {
            problem = linkat(directory, file->existing, directory, file->name, 0) < 0 ? errno : 0;
        } else {
            snprintf(temporary, sizeof(temporary), "%s%zd.tmp", prefix, done);
            problem = msp_write_file(directory, (mode_t)mode, *prefix == 0 ? NULL : temporary, file);
        }
    }
    Py_END_ALLOW_THREADS;
    result = Py_BuildValue("ni", done, problem);
end:
    for (Py_ssize_t i = 0; i < known; i++) {
        for (int j = 0; j < files[i].held; j++) {
            PyBuffer_Release(&files[i].pieces[j]);
        }
    }
    PyMem_Free(files);
    Py_DECREF(tuples);
    return result;
}

#endif
#endif
