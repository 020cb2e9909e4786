/* Address, type, shape and strides of a tensor in one call, where the framework offers it. */
#ifndef MSPROBE_NATIVE_EXCHANGE_H
#define MSPROBE_NATIVE_EXCHANGE_H

#include <stdint.h>

/* DLPack, version 1: a framework fills this for a tensor of its own that it is handed as a Python object, for whoever
 * finds the function in the table that the class of tensors carries. One call tells what else takes five. */
typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* the tensor's own */
    uint64_t byte_offset;
} MspExchanged;

typedef struct {
    uint32_t major, minor;
    void *previous, *allocate, *to_managed, *from_managed;
    int (*to_exchanged)(void *object, MspExchanged *out);
} MspExchangeTable;

enum { MSP_ON_CPU = 1 };

static const struct {
    const char *name;
    uint16_t code; /* code and bits */
} msp_exchange_codes[] = {
    /* not int8 and uint8: types of fewer bits come as these */
    {"torch.int16", 0x0010},   {"torch.int32", 0x0020},    {"torch.int64", 0x0040},   {"torch.uint16", 0x0110},
    {"torch.uint32", 0x0120},  {"torch.uint64", 0x0140},   {"torch.float16", 0x0210}, {"torch.float32", 0x0220},
    {"torch.float64", 0x0240}, {"torch.bfloat16", 0x0410}, {"torch.bool", 0x0608},
};

#endif
