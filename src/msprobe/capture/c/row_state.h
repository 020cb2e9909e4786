/* The row of a tensor while its elements are read: what the kernels add to it. How signs are made is said in
 * msprobe/store/row_signs.py. */
#ifndef MSPROBE_NATIVE_ROW_STATE_H
#define MSPROBE_NATIVE_ROW_STATE_H

#include "kinds.h"

#include <string.h>

enum { MSP_LANES = 16, MSP_ROW_SUMS = 8, MSP_ROW_BLOCKS = 8, MSP_ROW_WORD = 64, MSP_ROW_LANES = 128, MSP_ROW_CHUNK = 512 };

#if defined(__GNUC__)
#define MSP_ALIGNED __attribute__((aligned(64)))
#define MSP_ROW_INLINE static inline __attribute__((always_inline))
#else
#define MSP_ALIGNED
#define MSP_ROW_INLINE static inline
#endif

/* What is the same for all orders of the elements. */
typedef struct {
    double greatest, least;
    int64_t zeros, left_out;
} MspRowExtremes;

struct MspRowState {
    Py_ssize_t block; /* elements in one, whole words */
    MspRowExtremes found;
    double sum, squares;
    double block_squares[MSP_ROW_BLOCKS];
    MSP_ALIGNED double lanes[MSP_ROW_LANES];
};

static inline uint64_t msp_row_hash(uint64_t number)
{
    uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
    return mixed ^ (mixed >> 31);
}

/* By how many lanes a word of elements is shifted. */
static inline int msp_row_shift(uint64_t word) { return (int)((word * 0x9E3779B97F4A7C15ull) >> 61) * 8; }

static inline double msp_row_signed(uint64_t signs, int place, double value)
{
    return (signs >> place) & 1 ? -value : value;
}

static void msp_row_begin(MspRowState *row, Py_ssize_t count)
{
    memset(row, 0, sizeof(*row));
    row->block = (count + MSP_ROW_BLOCKS * MSP_ROW_WORD - 1) / (MSP_ROW_BLOCKS * MSP_ROW_WORD) * MSP_ROW_WORD;
}

/* The squares of a block, from those of all elements up to its end and up to its beginning, lane by lane: they only
 * grow, so a block of zeros is zero. */
MSP_ROW_INLINE double msp_row_between(const double *after, const double *before)
{
    double lanes[MSP_LANES];
    for (int lane = 0; lane < MSP_LANES; lane++) {
        lanes[lane] = after[lane] - before[lane];
    }
    for (int width = MSP_LANES / 2; width > 0; width /= 2) {
        for (int lane = 0; lane < width; lane++) {
            lanes[lane] += lanes[lane + width];
        }
    }
    return lanes[0];
}

#endif
