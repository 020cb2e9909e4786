/* The row of a tensor: what a comparison needs of its elements in full precision, whatever their type. What the numbers
 * mean is said in msprobe/store/rows.py, and how signs are made in msprobe/store/row_signs.py; the file there says how
 * a row lies in memory.
 *
 * Elements come in logical order, are widened to double chunk by chunk, and summed over fixed lanes: the same numbers on
 * every machine.
 */
#ifndef MSPROBE_NATIVE_ROWS_H
#define MSPROBE_NATIVE_ROWS_H

#include "gather.h"
#include "kernels.h"

#define MSP_ROW_LARGEST 1e18

typedef struct {
    double sum, squares, signed_sums[MSP_ROW_SUMS];
    float blocks[MSP_ROW_BLOCKS], greatest, least;
    uint32_t zeros, left_out;
} MspRow;

/* Elements on their way to a row, in double. */
typedef struct MspRowReader {
    MspRowState *row;
    void (*feed)(struct MspRowReader *reader, const void *elements, Py_ssize_t count);
    const double *table; /* of one-byte types: the values of the bytes */
    Py_ssize_t done, held;
    int choosy; /* some are left out; the extremes of the others are not known */
    MSP_ALIGNED double values[MSP_ROW_CHUNK];
} MspRowReader;

/* +1 or -1 for each lane and sum. */
static double msp_row_lane_signs[MSP_ROW_LANES][MSP_ROW_SUMS];

static void msp_rows_begin(void)
{
    for (int lane = 0; lane < MSP_ROW_LANES; lane++) {
        const uint64_t bits = msp_row_hash(((uint64_t)1 << 63) + (uint64_t)lane);
        for (int k = 0; k < MSP_ROW_SUMS; k++) {
            msp_row_lane_signs[lane][k] = (bits >> k) & 1 ? -1 : 1;
        }
    }
}

/* Take what is in no sum out of a chunk, and note the extremes of the rest. */
static void msp_row_leave_out(MspRowReader *reader)
{
    MspRowExtremes *found = &reader->row->found;
    for (Py_ssize_t i = 0; i < reader->held; i++) {
        const double value = reader->values[i];
        if (fabs(value) <= MSP_ROW_LARGEST) {
            found->greatest = value > found->greatest ? value : found->greatest;
            found->least = value < found->least ? value : found->least;
        } else {
            reader->values[i] = 0;
            found->left_out++;
        }
    }
}

#if defined(__GNUC__)

/* Whole words of one block. */
#define MSP_ROW_WORDS(SUFFIX, ATTRIBUTE, W)                                                                           \
    ATTRIBUTE static void msp_row_words_##SUFFIX(MspRowState *row, Py_ssize_t first, const double *values,            \
                                                 Py_ssize_t count)                                                    \
    {                                                                                                                 \
        enum { EACH = W / 8, STEPS = MSP_LANES / EACH };                                                              \
        static const double nothing[MSP_LANES] = {0};                                                                 \
        MspDoubles##W sum[STEPS], squares[STEPS];                                                                     \
        double sums[MSP_LANES], squared[MSP_LANES];                                                                   \
        uint64_t word = (uint64_t)(first / MSP_ROW_WORD);                                                             \
        MSP_UNROLL for (int k = 0; k < STEPS; k++)                                                                    \
        {                                                                                                             \
            sum[k] = squares[k] = (MspDoubles##W){0};                                                                 \
        }                                                                                                             \
        for (Py_ssize_t i = 0; i < count; i += MSP_ROW_WORD, word++) {                                                \
            const uint64_t signs = msp_row_hash(word);                                                                \
            double *const lanes = row->lanes + msp_row_shift(word);                                                   \
            for (int at = 0; at < MSP_ROW_WORD; at += MSP_LANES) {                                                    \
                MSP_UNROLL for (int k = 0; k < STEPS; k++)                                                            \
                {                                                                                                     \
                    MspDoubles##W wide;                                                                               \
                    memcpy(&wide, values + i + at + k * EACH, W);                                                     \
                    sum[k] += wide;                                                                                   \
                    squares[k] += wide * wide;                                                                        \
                    msp_row_add_##W(lanes + at + k * EACH, signs >> (at + k * EACH), &wide);                          \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
        memcpy(sums, sum, sizeof(sums));                                                                              \
        memcpy(squared, squares, sizeof(squared));                                                                    \
        row->sum += msp_row_between(sums, nothing);                                                                   \
        row->block_squares[first / row->block] += msp_row_between(squared, nothing);                                  \
    }

#else

#define MSP_ROW_WORDS(SUFFIX, ATTRIBUTE, W)                                                                           \
    static void msp_row_words_##SUFFIX(MspRowState *row, Py_ssize_t first, const double *values, Py_ssize_t count)    \
    {                                                                                                                 \
        for (Py_ssize_t i = 0; i < count; i++) {                                                                      \
            const uint64_t word = (uint64_t)((first + i) / MSP_ROW_WORD);                                             \
            const int place = (int)(i % MSP_ROW_WORD);                                                                \
            row->lanes[msp_row_shift(word) + place] += msp_row_signed(msp_row_hash(word), place, values[i]);          \
            row->sum += values[i];                                                                                    \
            row->block_squares[first / row->block] += values[i] * values[i];                                          \
        }                                                                                                             \
    }

#endif

/* The eight sums of the lanes. */
#define MSP_ROW_SUM(SUFFIX, ATTRIBUTE)                                                                                \
    ATTRIBUTE static void msp_row_sum_##SUFFIX(const double *lanes, double *signed_sums)                              \
    {                                                                                                                 \
        double sums[4][MSP_ROW_SUMS] = {{0}};                                                                         \
        for (int lane = 0; lane < MSP_ROW_LANES; lane += 4) {                                                         \
            for (int part = 0; part < 4; part++) {                                                                    \
                for (int k = 0; k < MSP_ROW_SUMS; k++) {                                                              \
                    sums[part][k] += lanes[lane + part] * msp_row_lane_signs[lane + part][k];                         \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
        for (int k = 0; k < MSP_ROW_SUMS; k++) {                                                                      \
            signed_sums[k] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);                                   \
        }                                                                                                             \
    }

/* What is made of a chunk. */
#define MSP_ROW_CHUNKS(SUFFIX)                                                                                        \
    static void msp_row_chunk_##SUFFIX(MspRowReader *reader)                                                          \
    {                                                                                                                 \
        MspRowState *const row = reader->row;                                                                         \
        if (reader->choosy) {                                                                                         \
            msp_row_leave_out(reader);                                                                                \
        }                                                                                                             \
        Py_ssize_t filled = reader->held;                                                                             \
        while (filled % MSP_ROW_WORD != 0) {                                                                          \
            reader->values[filled++] = 0;                                                                             \
        }                                                                                                             \
        for (Py_ssize_t from = 0; from < filled;) {                                                                   \
            const Py_ssize_t rest = row->block - (reader->done + from) % row->block;                                  \
            const Py_ssize_t count = rest < filled - from ? rest : filled - from;                                     \
            msp_row_words_##SUFFIX(row, reader->done + from, reader->values + from, count);                           \
            from += count;                                                                                            \
        }                                                                                                             \
        reader->done += reader->held;                                                                                 \
        reader->held = 0;                                                                                             \
    }

/* Elements of one type into chunks. WIDEN: `count` elements at p to doubles at `to`. */
#define MSP_ROW_FEED(SUFFIX, ATTRIBUTE, name, TYPE, WIDEN)                                                    \
    ATTRIBUTE static void msp_row_feed_##name##_##SUFFIX(MspRowReader *reader, const void *elements, Py_ssize_t count) \
    {                                                                                                         \
        const TYPE *p = elements;                                                                             \
        while (count > 0) {                                                                                   \
            const Py_ssize_t room = MSP_ROW_CHUNK - reader->held, part = count < room ? count : room;            \
            double *to = reader->values + reader->held;                                                             \
            WIDEN;                                                                                            \
            reader->held += part;                                                                                \
            p += part;                                                                                        \
            count -= part;                                                                                    \
            if (reader->held == MSP_ROW_CHUNK) {                                                                 \
                msp_row_chunk_##SUFFIX(reader);                                                                  \
            }                                                                                                 \
        }                                                                                                     \
    }

#define MSP_ROW_EACH(VALUE)                   \
    for (Py_ssize_t i = 0; i < part; i++) {   \
        to[i] = (double)(VALUE);              \
    }

#if defined(__GNUC__)
#define MSP_ROW_HALVES(W, LOAD, VALUE)                                \
    Py_ssize_t i = 0;                                                 \
    for (; i + W / 4 <= part; i += W / 4) {                           \
        MspFloats##W v;                                               \
        LOAD(p + i, &v);                                              \
        for (int half = 0; half < 2; half++) {                        \
            MspDoubles##W wide;                                       \
            msp_widen_floats_##W(&v, half, &wide);                    \
            memcpy(to + i + half * (W / 8), &wide, sizeof(wide));     \
        }                                                             \
    }                                                                 \
    for (; i < part; i++) {                                           \
        to[i] = (double)VALUE(p[i]);                                  \
    }
#else
#define MSP_ROW_HALVES(W, LOAD, VALUE) MSP_ROW_EACH(VALUE(p[i]))
#endif

#define MSP_ROW_FEEDS(SUFFIX, ATTRIBUTE, W)                                                                      \
    MSP_ROW_WORDS(SUFFIX, ATTRIBUTE, W)                                                                          \
    MSP_ROW_SUM(SUFFIX, ATTRIBUTE)                                                                               \
    MSP_ROW_CHUNKS(SUFFIX)                                                                                       \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, float32, float, MSP_ROW_EACH(p[i]))                                          \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, float64, double, MSP_ROW_EACH(p[i]))                                         \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, float16, uint16_t, MSP_ROW_HALVES(W, msp_load_float16_##W, msp_float16_value)) \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, bfloat16, uint16_t,                                                          \
                 MSP_ROW_HALVES(W, msp_load_bfloat16_##W, msp_bfloat16_value))                                   \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, byte, uint8_t, MSP_ROW_EACH(reader->table[p[i]]))                               \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, int16, int16_t, MSP_ROW_EACH(p[i]))                                          \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, uint16, uint16_t, MSP_ROW_EACH(p[i]))                                        \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, int32, int32_t, MSP_ROW_EACH(p[i]))                                          \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, uint32, uint32_t, MSP_ROW_EACH(p[i]))                                        \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, int64, int64_t, MSP_ROW_EACH(p[i]))                                          \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, uint64, uint64_t, MSP_ROW_EACH(p[i]))                                        \
    static const MspRowFeeds msp_row_feeds_##SUFFIX = {                                                          \
        {msp_row_feed_float32_##SUFFIX, msp_row_feed_float64_##SUFFIX, msp_row_feed_float16_##SUFFIX,            \
         msp_row_feed_bfloat16_##SUFFIX, msp_row_feed_byte_##SUFFIX, msp_row_feed_byte_##SUFFIX,                 \
         msp_row_feed_int16_##SUFFIX, msp_row_feed_int32_##SUFFIX, msp_row_feed_int64_##SUFFIX,                  \
         msp_row_feed_byte_##SUFFIX, msp_row_feed_uint16_##SUFFIX, msp_row_feed_uint32_##SUFFIX,                 \
         msp_row_feed_uint64_##SUFFIX, msp_row_feed_byte_##SUFFIX, NULL, NULL},                                  \
        msp_row_chunk_##SUFFIX, msp_row_sum_##SUFFIX,                                                                           \
    };

/* By MspKind; none of complex types, which come as twice as many floats. */
typedef struct {
    void (*feed[MSP_KIND_COUNT])(MspRowReader *reader, const void *elements, Py_ssize_t count);
    void (*chunk)(MspRowReader *reader);
    void (*sum)(const double *lanes, double *signed_sums);
} MspRowFeeds;

MSP_ROW_FEEDS(baseline, , 16)
#ifdef MSP_HAVE_X86_VERSIONS
MSP_ROW_FEEDS(avx2, __attribute__((target("avx2,fma"))), 32)
MSP_ROW_FEEDS(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), 64)
#endif

static const MspRowFeeds *msp_row_feeds(void)
{
#ifdef MSP_HAVE_X86_VERSIONS
    if (msp_kernels == msp_avx512_kernels) {
        return &msp_row_feeds_avx512;
    }
    if (msp_kernels == msp_avx2_kernels) {
        return &msp_row_feeds_avx2;
    }
#endif
    return &msp_row_feeds_baseline;
}

static int msp_has_rows(MspKind kind) { return !msp_is_complex(kind); }

static void msp_row_bytes(MspKind kind, const float *table, double *values)
{
    for (int byte = 0; byte < 256; byte++) {
        values[byte] = msp_byte_value(kind, table, byte);
    }
}

/* All elements in logical order. */
static void msp_row_read_all(MspRowReader *reader, const char *address, const Py_ssize_t *sizes,
                             const Py_ssize_t *strides, int dimensions, int itemsize)
{
    MspLayout layout = {.dimensions = 1, .count = 1, .size = {1}, .stride = {1}};
    Py_ssize_t index[MSP_MAX_DIMENSIONS] = {0};
    int kept = 0;
    /* The last dimension first; neighbours that continue each other are one. */
    for (int i = dimensions - 1; i >= 0; i--) {
        if (sizes[i] == 1) {
            continue;
        }
        if (kept > 0 && strides[i] == layout.stride[kept - 1] * layout.size[kept - 1]) {
            layout.size[kept - 1] *= sizes[i];
            continue;
        }
        layout.size[kept] = sizes[i];
        layout.stride[kept++] = strides[i];
    }
    layout.dimensions = kept > 0 ? kept : 1;
    uint64_t buffer[MSP_ROW_BYTES / 8];
    char *const gathered = (char *)buffer;
    const Py_ssize_t room = MSP_ROW_BYTES / itemsize, step = layout.stride[0] * itemsize, length = layout.size[0];
    Py_ssize_t held = 0;
    do {
        if (step == itemsize && length >= room) {
            reader->feed(reader, gathered, held);
            held = 0;
            reader->feed(reader, address, length);
            continue;
        }
        for (Py_ssize_t done = 0; done < length;) {
            const Py_ssize_t part = length - done < room - held ? length - done : room - held;
            if (step == itemsize) {
                memcpy(gathered + held * itemsize, address + done * step, (size_t)(part * itemsize));
            } else {
                msp_copy_strided(gathered + held * itemsize, address + done * step, part, step, itemsize);
            }
            done += part;
            held += part;
            if (held == room) {
                reader->feed(reader, gathered, held);
                held = 0;
            }
        }
    } while (msp_next_row(&layout, index, &address, itemsize));
    reader->feed(reader, gathered, held);
    if (reader->held > 0) {
        msp_row_feeds()->chunk(reader);
    }
}

/* What a first pass has found; -1 in `left_out`: some elements are in no sum. */
static void msp_row_take_extremes(MspKind kind, const MspSummary *s, MspRowExtremes *found)
{
    found->zeros = s->zeros;
    if (kind == MSP_UINT64) {
        found->greatest = (double)s->uint_greatest;
        found->least = (double)s->uint_least;
    } else if (msp_is_float(kind) || kind == MSP_FLOAT8) {
        found->greatest = s->greatest;
        found->least = s->least;
    } else {
        found->greatest = (double)s->int_greatest;
        found->least = (double)s->int_least;
    }
    const int all = s->nans == 0 && found->greatest <= MSP_ROW_LARGEST && found->least >= -MSP_ROW_LARGEST;
    found->left_out = all ? 0 : -1;
}

static uint32_t msp_row_saturated(int64_t count) { return count > UINT32_MAX ? UINT32_MAX : (uint32_t)count; }

/* After all elements. */
static void msp_row_end(MspRowState *state, MspRow *row)
{
    msp_row_feeds()->sum(state->lanes, row->signed_sums);
    row->sum = state->sum;
    row->squares = state->squares;
    for (int block = 0; block < MSP_ROW_BLOCKS; block++) {
        row->blocks[block] = (float)sqrt(state->block_squares[block]);
    }
    const int any = state->found.least <= state->found.greatest;
    row->greatest = any ? (float)state->found.greatest : NAN;
    row->least = any ? (float)state->found.least : NAN;
    row->zeros = msp_row_saturated(state->found.zeros);
    row->left_out = msp_row_saturated(state->found.left_out);
}

/* The row of elements of which a first pass was made (`found`, which is completed). Needs no GIL. */
static void msp_row_of(MspKind kind, const char *address, const Py_ssize_t *sizes, const Py_ssize_t *strides,
                       int dimensions, Py_ssize_t count, const float *table, MspRowExtremes *found, MspRow *row)
{
    double bytes[256];
    MspRowState state;
    MspRowReader reader;
    if (msp_kinds[kind].itemsize == 1) {
        msp_row_bytes(kind, table, bytes);
    }
    msp_row_begin(&state, count);
    state.found = *found;
    reader.row = &state;
    reader.feed = msp_row_feeds()->feed[kind];
    reader.table = bytes;
    reader.done = reader.held = 0;
    reader.choosy = found->left_out != 0;
    if (reader.choosy) {
        state.found.left_out = 0;
        state.found.greatest = -INFINITY;
        state.found.least = INFINITY;
    }
    msp_row_read_all(&reader, address, sizes, strides, dimensions, msp_kinds[kind].itemsize);
    for (int block = 0; block < MSP_ROW_BLOCKS; block++) {
        state.squares += state.block_squares[block];
    }
    *found = state.found;
    msp_row_end(&state, row);
}

/* The same after a pass over adjacent elements in logical order that went to the row as well. */
static void msp_row_after(MspKind kind, const char *address, Py_ssize_t count, const float *table, const MspSummary *s,
                          MspRowState *state, MspRowExtremes *found, MspRow *row)
{
    static const Py_ssize_t step = 1;
    msp_row_take_extremes(kind, s, found);
    if (found->left_out != 0 || s->scale != 1 || msp_kinds[kind].itemsize == 1) {
        msp_row_of(kind, address, &count, &step, 1, count, table, found, row);
        return;
    }
    state->found = *found;
    state->sum = s->sum;
    state->squares = s->squares;
    msp_row_end(state, row);
}

#endif
