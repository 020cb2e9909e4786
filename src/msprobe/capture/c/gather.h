/* Elements that are not adjacent: row by row, through a kernel or into C order. */
#ifndef MSPROBE_NATIVE_GATHER_H
#define MSPROBE_NATIVE_GATHER_H

#include "kinds.h"
#include "layout.h"

#include <string.h>

enum { MSP_ROW_BYTES = 8192, MSP_GIL_WORTH_RELEASING = 65536 /* elements */ };

static void msp_copy_strided(char *to, const char *from, Py_ssize_t count, Py_ssize_t step, int itemsize)
{
#define MSP_COPY_AS(TYPE)                                                         \
    for (Py_ssize_t i = 0; i < count; i++) {                                      \
        memcpy(to + i * (Py_ssize_t)sizeof(TYPE), from + i * step, sizeof(TYPE)); \
    }                                                                             \
    break
    switch (itemsize) {
    case 1: MSP_COPY_AS(uint8_t);
    case 2: MSP_COPY_AS(uint16_t);
    case 4: MSP_COPY_AS(uint32_t);
    case 8: MSP_COPY_AS(uint64_t);
    default:
        for (Py_ssize_t i = 0; i < count; i++) {
            memcpy(to + i * itemsize, from + i * step, (size_t)itemsize);
        }
    }
#undef MSP_COPY_AS
}

/* Move to the next row (all dimensions but the first); 0 when there is none. */
static int msp_next_row(const MspLayout *layout, Py_ssize_t *index, const char **row, int itemsize)
{
    for (int d = 1; d < layout->dimensions; d++) {
        *row += layout->stride[d] * itemsize;
        if (++index[d] < layout->size[d]) {
            return 1;
        }
        *row -= layout->stride[d] * itemsize * layout->size[d];
        index[d] = 0;
    }
    return 0;
}

static void msp_run_kernel(MspKernel kernel, const char *address, const MspLayout *layout, int itemsize,
                           MspSummary *summary)
{
    if (layout->count == 0) {
        return;
    }
    if (layout->dimensions == 0) {
        kernel(address, 1, summary);
        return;
    }
    if (layout->dimensions == 1 && layout->stride[0] == 1) {
        kernel(address, layout->size[0], summary);
        return;
    }
    uint64_t buffer[MSP_ROW_BYTES / 8];
    char *const gathered = (char *)buffer;
    const Py_ssize_t room = MSP_ROW_BYTES / itemsize, step = layout->stride[0] * itemsize, length = layout->size[0];
    Py_ssize_t index[MSP_MAX_DIMENSIONS] = {0}, held = 0;
    const char *row = address;
    do {
        if (layout->stride[0] == 1 && length >= room) {
            kernel(row, length, summary);
            continue;
        }
        for (Py_ssize_t done = 0; done < length;) {
            const Py_ssize_t part = length - done < room - held ? length - done : room - held;
            if (layout->stride[0] == 1) {
                memcpy(gathered + held * itemsize, row + done * step, (size_t)(part * itemsize));
            } else {
                msp_copy_strided(gathered + held * itemsize, row + done * step, part, step, itemsize);
            }
            done += part;
            held += part;
            if (held == room) {
                kernel(gathered, held, summary);
                held = 0;
            }
        }
    } while (msp_next_row(layout, index, &row, itemsize));
    kernel(gathered, held, summary);
}

/* The elements' bytes in C order; `sizes` and `strides` as the view has them, none of the sizes zero. */
static void msp_gather_elements(const char *address, const Py_ssize_t *sizes, const Py_ssize_t *strides, int dimensions,
                                int itemsize, char *to)
{
    /* Last dimension first, as next_row has them. */
    MspLayout layout = {.dimensions = dimensions > 0 ? dimensions : 1, .count = 1, .size = {1}, .stride = {1}};
    Py_ssize_t index[MSP_MAX_DIMENSIONS] = {0};
    for (int i = 0; i < dimensions; i++) {
        layout.size[i] = sizes[dimensions - 1 - i];
        layout.stride[i] = strides[dimensions - 1 - i];
    }
    do {
        if (layout.stride[0] == 1) {
            memcpy(to, address, (size_t)(layout.size[0] * itemsize));
        } else {
            msp_copy_strided(to, address, layout.size[0], layout.stride[0] * itemsize, itemsize);
        }
        to += layout.size[0] * itemsize;
    } while (msp_next_row(&layout, index, &address, itemsize));
}

#endif
