/* The row of a tensor: what a comparison needs of its elements in full precision, whatever their type. What the numbers
 * mean is said in msprobe/store/rows.py, and how signs are made in msprobe/store/row_signs.py; the file there says how
 * a row lies in memory.
 *
 * Elements come in logical order, are widened to double chunk by chunk, and summed over fixed lanes: the same numbers on
 * every machine.
 */
#ifndef MSPROBE_NATIVE_ROWS_H
#define MSPROBE_NATIVE_ROWS_H

#include "_native_gather.h"
#include "_native_kernels.h"

#if !defined(__GNUC__)
enum { MSP_LANES = 16 };
#endif
enum { MSP_ROW_SUMS = 8, MSP_ROW_BLOCKS = 8, MSP_ROW_CHUNK = 512, MSP_ROW_WORD = 64, MSP_ROW_LANES = 128 };
#define MSP_ROW_LARGEST 1e18
#if defined(__GNUC__)
#define MSP_ALIGNED __attribute__((aligned(64)))
#define MSP_ROW_INLINE MSP_INLINE
#else
#define MSP_ALIGNED
#define MSP_ROW_INLINE static
#endif

typedef struct {
    double sum, squares, signed_sums[MSP_ROW_SUMS];
    float blocks[MSP_ROW_BLOCKS], greatest, least;
    uint32_t zeros, left_out;
} MspRow;

/* What is the same for all orders of the elements. */
typedef struct {
    double greatest, least;
    int64_t zeros, left_out;
} MspRowExtremes;

struct MspRowState {
    void (*feed)(MspRowState *row, const void *elements, Py_ssize_t count);
    const double *table; /* of one-byte types: the values of the bytes */
    Py_ssize_t done, held, block;
    int extremes_only;
    MspRowExtremes found;
    double sums[MSP_ROW_BLOCKS], squares[MSP_ROW_BLOCKS];
    MSP_ALIGNED double lanes[MSP_ROW_LANES];
    MSP_ALIGNED double values[MSP_ROW_CHUNK];
};

/* +1 or -1 for each lane and sum. */
static double msp_row_lane_signs[MSP_ROW_LANES][MSP_ROW_SUMS];

static inline uint64_t msp_row_hash(uint64_t number)
{
    uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
    return mixed ^ (mixed >> 31);
}

/* By how many lanes a word of elements is shifted. */
static inline int msp_row_shift(uint64_t word) { return (int)((word * 0x9E3779B97F4A7C15ull) >> 61) * 8; }

static void msp_rows_begin(void)
{
    for (int lane = 0; lane < MSP_ROW_LANES; lane++) {
        const uint64_t bits = msp_row_hash(((uint64_t)1 << 63) + (uint64_t)lane);
        for (int k = 0; k < MSP_ROW_SUMS; k++) {
            msp_row_lane_signs[lane][k] = (bits >> k) & 1 ? -1 : 1;
        }
    }
}

/* Take what is not summed out of a chunk; how many that is. */
static int msp_row_leave_out(double *values, Py_ssize_t count)
{
    int found = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!(fabs(values[i]) <= MSP_ROW_LARGEST)) {
            values[i] = 0;
            found++;
        }
    }
    return found;
}

static void msp_row_note_extremes(MspRowState *row)
{
    for (Py_ssize_t i = 0; i < row->held; i++) {
        const double value = row->values[i];
        if (fabs(value) <= MSP_ROW_LARGEST) {
            row->found.greatest = value > row->found.greatest ? value : row->found.greatest;
            row->found.least = value < row->found.least ? value : row->found.least;
        }
    }
    row->done += row->held;
    row->held = 0;
}

/* The rest of a piece, fewer elements than lanes; and all lanes in one. */
MSP_ROW_INLINE void msp_row_fold(const double *rest, Py_ssize_t count, double *sums, double *squares)
{
    for (Py_ssize_t lane = 0; lane < count; lane++) {
        sums[lane] += rest[lane];
        squares[lane] += rest[lane] * rest[lane];
    }
    for (int width = MSP_LANES / 2; width > 0; width /= 2) {
        for (int lane = 0; lane < width; lane++) {
            sums[lane] += sums[lane + width];
            squares[lane] += squares[lane + width];
        }
    }
}

#if defined(__GNUC__)

/* The sums of one piece of a chunk, and the words of a chunk to the lanes. Both take so many lanes on every machine. */
#define MSP_ROW_LOOPS(SUFFIX, ATTRIBUTE, W)                                                                          \
    ATTRIBUTE static void msp_row_sums_##SUFFIX(const double *values, Py_ssize_t count, double *sum, double *square) \
    {                                                                                                                \
        enum { EACH = W / 8, VECTORS = MSP_LANES / EACH };                                                           \
        MspDoubles##W added[VECTORS], squared[VECTORS];                                                              \
        double sums[MSP_LANES], squares[MSP_LANES];                                                                  \
        Py_ssize_t i = 0;                                                                                            \
        MSP_UNROLL for (int k = 0; k < VECTORS; k++)                                                                 \
        {                                                                                                            \
            added[k] = squared[k] = (MspDoubles##W){0};                                                              \
        }                                                                                                            \
        for (; i + MSP_LANES <= count; i += MSP_LANES) {                                                             \
            MSP_UNROLL for (int k = 0; k < VECTORS; k++)                                                             \
            {                                                                                                        \
                MspDoubles##W v;                                                                                     \
                memcpy(&v, values + i + k * EACH, W);                                                                \
                added[k] += v;                                                                                       \
                squared[k] += v * v;                                                                                 \
            }                                                                                                        \
        }                                                                                                            \
        memcpy(sums, added, sizeof(sums));                                                                           \
        memcpy(squares, squared, sizeof(squares));                                                                   \
        msp_row_fold(values + i, count - i, sums, squares);                                                          \
        *sum = sums[0];                                                                                              \
        *square = squares[0];                                                                                        \
    }                                                                                                                \
                                                                                                                     \
    ATTRIBUTE static void msp_row_words_##SUFFIX(double *lanes, uint64_t word, const double *values, Py_ssize_t count) \
    {                                                                                                                \
        enum { EACH = W / 8, VECTORS = MSP_ROW_WORD / EACH };                                                        \
        MspLongWords##W last;                                                                                        \
        for (int lane = 0; lane < EACH; lane++) {                                                                    \
            last[lane] = (uint64_t)(63 - lane);                                                                      \
        }                                                                                                            \
        for (Py_ssize_t i = 0; i < count; i += MSP_ROW_WORD, word++) {                                               \
            const uint64_t signs = msp_row_hash(word);                                                               \
            double *to = lanes + msp_row_shift(word);                                                                \
            MSP_UNROLL for (int k = 0; k < VECTORS; k++)                                                             \
            {                                                                                                        \
                MspLongWords##W v;                                                                                   \
                MspDoubles##W sum;                                                                                   \
                memcpy(&v, values + i + k * EACH, W);                                                                \
                memcpy(&sum, to + k * EACH, W);                                                                      \
                v ^= ((((MspLongWords##W){0} + (signs >> (k * EACH))) << last) & 0x8000000000000000ull);             \
                sum += (MspDoubles##W)v;                                                                             \
                memcpy(to + k * EACH, &sum, W);                                                                      \
            }                                                                                                        \
        }                                                                                                            \
    }

#else

#define MSP_ROW_LOOPS(SUFFIX, ATTRIBUTE, W)                                                                          \
    static void msp_row_sums_##SUFFIX(const double *values, Py_ssize_t count, double *sum, double *square)           \
    {                                                                                                                \
        double sums[MSP_LANES] = {0}, squares[MSP_LANES] = {0};                                                      \
        Py_ssize_t i = 0;                                                                                            \
        for (; i + MSP_LANES <= count; i += MSP_LANES) {                                                             \
            for (int lane = 0; lane < MSP_LANES; lane++) {                                                           \
                sums[lane] += values[i + lane];                                                                      \
                squares[lane] += values[i + lane] * values[i + lane];                                                \
            }                                                                                                        \
        }                                                                                                            \
        msp_row_fold(values + i, count - i, sums, squares);                                                          \
        *sum = sums[0];                                                                                              \
        *square = squares[0];                                                                                        \
    }                                                                                                                \
                                                                                                                     \
    static void msp_row_words_##SUFFIX(double *lanes, uint64_t word, const double *values, Py_ssize_t count)         \
    {                                                                                                                \
        for (Py_ssize_t i = 0; i < count; i += MSP_ROW_WORD, word++) {                                               \
            const uint64_t signs = msp_row_hash(word);                                                               \
            double *to = lanes + msp_row_shift(word);                                                                \
            for (int k = 0; k < MSP_ROW_WORD; k++) {                                                                 \
                to[k] += (signs >> k) & 1 ? -values[i + k] : values[i + k];                                          \
            }                                                                                                        \
        }                                                                                                            \
    }

#endif

/* What is made of a chunk. */
#define MSP_ROW_KERNELS(SUFFIX)                                                                                    \
    static int msp_row_blocks_##SUFFIX(MspRowState *row, double *sums, double *squares)                            \
    {                                                                                                              \
        const Py_ssize_t end = row->done + row->held;                                                              \
        int good = 1;                                                                                              \
        for (Py_ssize_t from = row->done; from < end;) {                                                           \
            const Py_ssize_t number = from / row->block, rest = (number + 1) * row->block;                         \
            const Py_ssize_t to = rest < end ? rest : end;                                                         \
            msp_row_sums_##SUFFIX(row->values + (from - row->done), to - from, &sums[number], &squares[number]);   \
            good = good && squares[number] < MSP_ROW_LARGEST * MSP_ROW_LARGEST;                                    \
            from = to;                                                                                             \
        }                                                                                                          \
        return good;                                                                                               \
    }                                                                                                              \
                                                                                                                   \
    static void msp_row_chunk_##SUFFIX(MspRowState *row)                                                           \
    {                                                                                                              \
        double sums[MSP_ROW_BLOCKS] = {0}, squares[MSP_ROW_BLOCKS] = {0};                                          \
        if (row->extremes_only) {                                                                                  \
            msp_row_note_extremes(row);                                                                            \
            return;                                                                                                \
        }                                                                                                          \
        if (!msp_row_blocks_##SUFFIX(row, sums, squares)) {                                                        \
            row->found.left_out += msp_row_leave_out(row->values, row->held);                                      \
            msp_row_blocks_##SUFFIX(row, sums, squares);                                                           \
        }                                                                                                          \
        for (int block = 0; block < MSP_ROW_BLOCKS; block++) {                                                     \
            row->sums[block] += sums[block];                                                                       \
            row->squares[block] += squares[block];                                                                 \
        }                                                                                                          \
        Py_ssize_t filled = row->held;                                                                             \
        while (filled % MSP_ROW_WORD != 0) {                                                                       \
            row->values[filled++] = 0;                                                                             \
        }                                                                                                          \
        msp_row_words_##SUFFIX(row->lanes, (uint64_t)(row->done / MSP_ROW_WORD), row->values, filled);                                                          \
        row->done += row->held;                                                                                    \
        row->held = 0;                                                                                             \
    }

/* Elements of one type into chunks. WIDEN: `count` elements at p to doubles at `to`. */
#define MSP_ROW_FEED(SUFFIX, ATTRIBUTE, name, TYPE, WIDEN)                                                    \
    ATTRIBUTE static void msp_row_feed_##name##_##SUFFIX(MspRowState *row, const void *elements, Py_ssize_t count) \
    {                                                                                                         \
        const TYPE *p = elements;                                                                             \
        while (count > 0) {                                                                                   \
            const Py_ssize_t room = MSP_ROW_CHUNK - row->held, part = count < room ? count : room;            \
            double *to = row->values + row->held;                                                             \
            WIDEN;                                                                                            \
            row->held += part;                                                                                \
            p += part;                                                                                        \
            count -= part;                                                                                    \
            if (row->held == MSP_ROW_CHUNK) {                                                                 \
                msp_row_chunk_##SUFFIX(row);                                                                  \
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
    MSP_ROW_LOOPS(SUFFIX, ATTRIBUTE, W)                                                                          \
    MSP_ROW_KERNELS(SUFFIX)                                                                           \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, float32, float, MSP_ROW_EACH(p[i]))                                          \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, float64, double, MSP_ROW_EACH(p[i]))                                         \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, float16, uint16_t, MSP_ROW_HALVES(W, msp_load_float16_##W, msp_float16_value)) \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, bfloat16, uint16_t,                                                          \
                 MSP_ROW_HALVES(W, msp_load_bfloat16_##W, msp_bfloat16_value))                                   \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, byte, uint8_t, MSP_ROW_EACH(row->table[p[i]]))                               \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, int16, int16_t, MSP_ROW_EACH(p[i]))                                          \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, uint16, uint16_t, MSP_ROW_EACH(p[i]))                                        \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, int32, int32_t, MSP_ROW_EACH(p[i]))                                          \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, uint32, uint32_t, MSP_ROW_EACH(p[i]))                                        \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, int64, int64_t, MSP_ROW_EACH(p[i]))                                          \
    MSP_ROW_FEED(SUFFIX, ATTRIBUTE, uint64, uint64_t, MSP_ROW_EACH(p[i]))                                        \
    static void msp_row_finish_##SUFFIX(MspRowState *row)                                                        \
    {                                                                                                            \
        if (row->held > 0) {                                                                                     \
            msp_row_chunk_##SUFFIX(row);                                                                         \
        }                                                                                                        \
    }                                                                                                            \
    static const MspRowFeeds msp_row_feeds_##SUFFIX = {                                                          \
        {msp_row_feed_float32_##SUFFIX, msp_row_feed_float64_##SUFFIX, msp_row_feed_float16_##SUFFIX,            \
         msp_row_feed_bfloat16_##SUFFIX, msp_row_feed_byte_##SUFFIX, msp_row_feed_byte_##SUFFIX,                 \
         msp_row_feed_int16_##SUFFIX, msp_row_feed_int32_##SUFFIX, msp_row_feed_int64_##SUFFIX,                  \
         msp_row_feed_byte_##SUFFIX, msp_row_feed_uint16_##SUFFIX, msp_row_feed_uint32_##SUFFIX,                 \
         msp_row_feed_uint64_##SUFFIX, msp_row_feed_byte_##SUFFIX, NULL, NULL},                                  \
        msp_row_finish_##SUFFIX,                                                                                 \
    };

/* By MspKind; none of complex types, which come as twice as many floats. */
typedef struct {
    void (*feed[MSP_KIND_COUNT])(MspRowState *row, const void *elements, Py_ssize_t count);
    void (*finish)(MspRowState *row);
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

static void msp_row_feed(MspRowState *row, const void *elements, Py_ssize_t count) { row->feed(row, elements, count); }

static int msp_has_rows(MspKind kind) { return !msp_is_complex(kind); }

/* `table`: 256 doubles that live as long as the state, for one-byte types. */
static void msp_row_begin(MspRowState *row, MspKind kind, Py_ssize_t count, const double *table)
{
    memset(row, 0, offsetof(MspRowState, values));
    row->feed = msp_row_feeds()->feed[kind];
    row->table = table;
    row->block = (count + MSP_ROW_BLOCKS - 1) / MSP_ROW_BLOCKS;
}

static void msp_row_bytes(MspKind kind, const float *table, double *values)
{
    for (int byte = 0; byte < 256; byte++) {
        values[byte] = msp_byte_value(kind, table, byte);
    }
}

/* All elements in logical order. */
static void msp_row_feed_all(MspRowState *row, const char *address, const Py_ssize_t *sizes, const Py_ssize_t *strides,
                             int dimensions, int itemsize)
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
    char gathered[MSP_ROW_BYTES];
    const Py_ssize_t room = MSP_ROW_BYTES / itemsize, step = layout.stride[0] * itemsize;
    Py_ssize_t held = 0;
    do {
        const Py_ssize_t length = layout.size[0];
        if (step == itemsize && length >= room) {
            row->feed(row, gathered, held);
            held = 0;
            row->feed(row, address, length);
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
                row->feed(row, gathered, held);
                held = 0;
            }
        }
    } while (msp_next_row(&layout, index, &address, itemsize));
    row->feed(row, gathered, held);
    msp_row_feeds()->finish(row);
}

/* What the first pass has found. */
static void msp_row_take_extremes(MspRowState *row, MspKind kind, const MspSummary *s)
{
    row->found.zeros = s->zeros;
    if (kind == MSP_UINT64) {
        row->found.greatest = (double)s->uint_greatest;
        row->found.least = (double)s->uint_least;
    } else if (msp_is_float(kind) || kind == MSP_FLOAT8) {
        row->found.greatest = s->greatest;
        row->found.least = s->least;
    } else {
        row->found.greatest = (double)s->int_greatest;
        row->found.least = (double)s->int_least;
    }
}

static uint32_t msp_row_saturated(int64_t count) { return count > UINT32_MAX ? UINT32_MAX : (uint32_t)count; }

/* After all elements; `found` is known. */
static void msp_row_end(const MspRowState *state, MspRow *row)
{
    double sums[4][MSP_ROW_SUMS] = {{0}};
    for (int lane = 0; lane < MSP_ROW_LANES; lane += 4) {
        for (int part = 0; part < 4; part++) {
            for (int k = 0; k < MSP_ROW_SUMS; k++) {
                sums[part][k] += state->lanes[lane + part] * msp_row_lane_signs[lane + part][k];
            }
        }
    }
    for (int k = 0; k < MSP_ROW_SUMS; k++) {
        row->signed_sums[k] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
    }
    row->sum = row->squares = 0;
    for (int block = 0; block < MSP_ROW_BLOCKS; block++) {
        row->sum += state->sums[block];
        row->squares += state->squares[block];
        row->blocks[block] = (float)sqrt(state->squares[block]);
    }
    const int any = state->found.least <= state->found.greatest;
    row->greatest = any ? (float)state->found.greatest : NAN;
    row->least = any ? (float)state->found.least : NAN;
    row->zeros = msp_row_saturated(state->found.zeros);
    row->left_out = msp_row_saturated(state->found.left_out);
}

/* The extremes of what was not left out, in a pass of its own. */
static void msp_row_find_extremes(MspRowState *state, const char *address, const Py_ssize_t *sizes,
                                  const Py_ssize_t *strides, int dimensions, int itemsize)
{
    state->extremes_only = 1;
    state->done = state->held = 0;
    state->found.greatest = -INFINITY;
    state->found.least = INFINITY;
    msp_row_feed_all(state, address, sizes, strides, dimensions, itemsize);
}

/* The row of elements of which a first pass was made (`s`), or whose extremes are known (`known`). Needs no GIL. */
static void msp_row_of(MspKind kind, const char *address, const Py_ssize_t *sizes, const Py_ssize_t *strides,
                       int dimensions, Py_ssize_t count, const float *table, const MspSummary *s,
                       const MspRowExtremes *known, MspRowExtremes *found, MspRow *row)
{
    double bytes[256];
    MspRowState state;
    const int itemsize = msp_kinds[kind].itemsize;
    if (itemsize == 1) {
        msp_row_bytes(kind, table, bytes);
    }
    msp_row_begin(&state, kind, count, bytes);
    msp_row_feed_all(&state, address, sizes, strides, dimensions, itemsize);
    if (known != NULL) {
        state.found = *known;
    } else {
        msp_row_take_extremes(&state, kind, s);
        if (state.found.left_out > 0) {
            msp_row_find_extremes(&state, address, sizes, strides, dimensions, itemsize);
        }
    }
    *found = state.found;
    msp_row_end(&state, row);
}

#endif
