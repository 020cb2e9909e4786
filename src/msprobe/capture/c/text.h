/* Text: a growing buffer, and numbers written exactly as Python's json writes them.
 *
 * Doubles are printed by the Schubfach method (R. Giulietti, "The Schubfach way to render doubles", 2020): the
 * shortest digits that read back as the same double, nearest to it when several are as short, which is what
 * repr() gives. It takes about 30 ns where PyOS_double_to_string takes 200 to 600 for the 17 digits of a float32.
 */
#ifndef MSPROBE_NATIVE_TEXT_H
#define MSPROBE_NATIVE_TEXT_H

#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    char *data;
    size_t size;
    size_t capacity;
    char first[4096]; /* most records fit: no allocation but that of the result */
} MspText;

static void msp_text_begin(MspText *text)
{
    text->data = text->first;
    text->size = 0;
    text->capacity = sizeof(text->first);
}

static void msp_text_end(MspText *text)
{
    if (text->data != text->first) {
        PyMem_RawFree(text->data);
    }
}

/* Make room for `more` bytes; -1 with MemoryError when there is none. */
static int msp_text_grow(MspText *text, size_t more)
{
    size_t capacity = text->capacity * 2;
    while (capacity - text->size < more) {
        if (capacity > (size_t)PY_SSIZE_T_MAX / 2) {
            PyErr_NoMemory();
            return -1;
        }
        capacity *= 2;
    }
    char *data = PyMem_RawMalloc(capacity);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(data, text->data, text->size);
    msp_text_end(text);
    text->data = data;
    text->capacity = capacity;
    return 0;
}

#define MSP_TEXT_RESERVE(text, more) ((text)->capacity - (text)->size >= (more) ? 0 : msp_text_grow((text), (more)))

static int msp_text_put(MspText *text, const char *bytes, size_t count)
{
    if (MSP_TEXT_RESERVE(text, count) < 0) {
        return -1;
    }
    memcpy(text->data + text->size, bytes, count);
    text->size += count;
    return 0;
}

#define MSP_TEXT_LITERAL(text, literal) msp_text_put((text), (literal), sizeof(literal) - 1)

/* ---- numbers; each writes at `out` (at least NUMBER_ROOM bytes) and returns one past the last character ---- */

#define MSP_NUMBER_ROOM 40

static char *msp_put_unsigned(char *out, uint64_t value)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0) {
        *out++ = digits[--count];
    }
    return out;
}

static char *msp_put_signed(char *out, int64_t value)
{
    if (value < 0) {
        *out++ = '-';
        return msp_put_unsigned(out, 0 - (uint64_t)value);
    }
    return msp_put_unsigned(out, (uint64_t)value);
}

static char *msp_put_literal(char *out, const char *literal)
{
    size_t size = strlen(literal);
    memcpy(out, literal, size);
    return out + size;
}

#ifdef __SIZEOF_INT128__

__extension__ typedef unsigned __int128 Wide;

enum {
    MSP_POWER_FIRST = -292,
    MSP_POWER_LAST = 324,
    MSP_POWER_COUNT = MSP_POWER_LAST - MSP_POWER_FIRST + 1,
    MSP_POWER_WORDS = 40
};

/* 10^k scaled to 128 bits with the top bit set, rounded up: {high, low}. Filled once at import. */
static uint64_t msp_powers[MSP_POWER_COUNT][2];

/* The 128 leading bits of a little-endian number, plus one when any bit below them is set or `inexact` is. */
static void msp_leading_bits(const uint32_t *words, int inexact, uint64_t *result)
{
    int top = MSP_POWER_WORDS - 1;
    while (words[top] == 0) {
        top--;
    }
    int shift = 0;
    while (((words[top] << shift) & 0x80000000u) == 0) {
        shift++;
    }
    uint32_t leading[4];
    for (int i = 0; i < 4; i++) {
        uint64_t pair = (uint64_t)(top - i >= 0 ? words[top - i] : 0) << 32;
        pair |= top - i - 1 >= 0 ? words[top - i - 1] : 0;
        leading[i] = (uint32_t)((pair << shift) >> 32);
    }
    int rest = inexact;
    if (top - 4 >= 0 && (uint32_t)((uint64_t)words[top - 4] << shift) != 0) {
        rest = 1;
    }
    for (int i = top - 5; i >= 0; i--) {
        rest |= words[i] != 0;
    }
    Wide value = ((Wide)leading[0] << 96) | ((Wide)leading[1] << 64) | ((Wide)leading[2] << 32) | leading[3];
    value += (Wide)(rest != 0);
    result[0] = (uint64_t)(value >> 64);
    result[1] = (uint64_t)value;
}

static void msp_numbers_begin(void)
{
    uint32_t words[MSP_POWER_WORDS];
    memset(words, 0, sizeof(words));
    words[0] = 1;
    for (int k = 0; k <= MSP_POWER_LAST; k++) { /* 10^k exactly, 1077 bits at most */
        msp_leading_bits(words, 0, msp_powers[k - MSP_POWER_FIRST]);
        uint64_t carry = 0;
        for (int i = 0; i < MSP_POWER_WORDS; i++) {
            carry += (uint64_t)words[i] * 10;
            words[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    memset(words, 0, sizeof(words));
    words[MSP_POWER_WORDS - 1] = 0x80000000u; /* 2^1279 / 10^-k, the division rounded down: exact when nested */
    for (int k = -1; k >= MSP_POWER_FIRST; k--) {
        uint64_t remainder = 0;
        for (int i = MSP_POWER_WORDS - 1; i >= 0; i--) {
            remainder = (remainder << 32) | words[i];
            words[i] = (uint32_t)(remainder / 10);
            remainder %= 10;
        }
        msp_leading_bits(words, 1, msp_powers[k - MSP_POWER_FIRST]);
    }
}

/* The high 64 bits of power * value / 2^64, with the last bit set when anything below was lost. */
static uint64_t msp_round_to_odd(const uint64_t *power, uint64_t value)
{
    uint64_t below = (uint64_t)(((Wide)power[1] * value) >> 64);
    Wide product = (Wide)power[0] * value + below;
    return (uint64_t)(product >> 64) | ((uint64_t)product > 1);
}

/* digits and exponent with value == digits * 10^exponent, for a finite positive double. */
static uint64_t msp_shortest(double value, int *exponent)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const uint64_t fraction = bits & 0xFFFFFFFFFFFFFull;
    const int biased = (int)(bits >> 52) & 0x7FF;
    uint64_t c = fraction;
    int q = 1 - 1075;
    if (biased != 0) {
        c |= (uint64_t)1 << 52;
        q = biased - 1075;
        if (q <= 0 && q > -53 && (c & (((uint64_t)1 << -q) - 1)) == 0) {
            *exponent = 0;
            return c >> -q; /* a whole number */
        }
    }
    const int odd = (int)(c & 1);
    const int closer_below = fraction == 0 && biased > 1;
    const int k = (q * 1262611 - (closer_below ? 524031 : 0)) >> 22; /* floor(log10) of the interval's width */
    const int h = q + ((-k * 1741647) >> 19) + 1;
    const uint64_t *power = msp_powers[-k - MSP_POWER_FIRST];
    const uint64_t low = msp_round_to_odd(power, (4 * c - 2 + (uint64_t)closer_below) << h) + (uint64_t)odd;
    const uint64_t middle = msp_round_to_odd(power, (4 * c) << h);
    const uint64_t high = msp_round_to_odd(power, (4 * c + 2) << h) - (uint64_t)odd;
    const uint64_t s = middle / 4;
    if (s >= 10) {
        const uint64_t tens = s / 10;
        const int down = low <= 40 * tens;
        const int up = 40 * tens + 40 <= high;
        if (down != up) {
            *exponent = k + 1;
            return tens + (uint64_t)up;
        }
    }
    *exponent = k;
    const int down = low <= 4 * s;
    const int up = 4 * s + 4 <= high;
    if (down != up) {
        return s + (uint64_t)up;
    }
    const uint64_t half = 4 * s + 2;
    return s + (uint64_t)(middle > half || (middle == half && (s & 1) != 0));
}

static char *msp_put_finite(char *out, double value)
{
    char digits[20];
    int exponent = 0;
    if (signbit(value)) {
        *out++ = '-';
        value = -value;
    }
    if (value == 0) {
        return msp_put_literal(out, "0.0");
    }
    uint64_t number = msp_shortest(value, &exponent);
    while (number % 10 == 0) {
        number /= 10;
        exponent++;
    }
    const int count = (int)(msp_put_unsigned(digits, number) - digits);
    const int point = count + exponent; /* digits before the decimal point */
    if (point > 16 || point <= -4) {
        *out++ = digits[0];
        if (count > 1) {
            *out++ = '.';
            memcpy(out, digits + 1, (size_t)(count - 1));
            out += count - 1;
        }
        *out++ = 'e';
        int e = point - 1;
        *out++ = e < 0 ? '-' : '+';
        e = e < 0 ? -e : e;
        if (e < 10) {
            *out++ = '0';
        }
        return msp_put_unsigned(out, (uint64_t)e);
    }
    if (point <= 0) {
        *out++ = '0';
        *out++ = '.';
        for (int i = point; i < 0; i++) {
            *out++ = '0';
        }
        memcpy(out, digits, (size_t)count);
        return out + count;
    }
    if (point >= count) {
        memcpy(out, digits, (size_t)count);
        out += count;
        for (int i = count; i < point; i++) {
            *out++ = '0';
        }
        *out++ = '.';
        *out++ = '0';
        return out;
    }
    memcpy(out, digits, (size_t)point);
    out += point;
    *out++ = '.';
    memcpy(out, digits + point, (size_t)(count - point));
    return out + (count - point);
}

#else /* no 128-bit integers (MSVC): what repr() itself uses. Needs the GIL, as all callers here have it. */

static void msp_numbers_begin(void) {}

static char *msp_put_finite(char *out, double value)
{
    char *text = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (text == NULL) {
        PyErr_Clear();
        return msp_put_literal(out, "null");
    }
    out = msp_put_literal(out, text);
    PyMem_Free(text);
    return out;
}

#endif

/* A double as Python's json writes it: NaN and the infinities bare. */
static char *msp_put_double(char *out, double value)
{
    if (isfinite(value)) {
        return msp_put_finite(out, value);
    }
    if (isnan(value)) {
        return msp_put_literal(out, "NaN");
    }
    return msp_put_literal(out, value > 0 ? "Infinity" : "-Infinity");
}

#endif
