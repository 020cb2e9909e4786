/* CRC-32 (the polynomial of zlib), by carry-less multiplication or the machine's own instruction; and 64-bit XOR.
 *
 * Bits are reflected, as the polynomial is: a register's lowest bit is the highest power of x. Then the product of two
 * 64-bit registers, seen as a 128-bit one, is x * a * b. Sixteen bytes that stand T bits before others are folded onto
 * them by multiplying their first half with x^(T+63) and their second with x^(T-1), modulo the polynomial. What is left
 * in the end is sixteen bytes with the same remainder as everything, and a table takes care of those.
 */
#ifndef MSPROBE_NATIVE_HASH_H
#define MSPROBE_NATIVE_HASH_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

/* crc_table[n][byte]: the remainder of that byte with n zero bytes behind it. */
static uint32_t msp_crc_table[8][256];

static uint32_t msp_times_x(uint32_t value)
{
    return value & 1 ? (value >> 1) ^ 0xEDB88320u : value >> 1;
}

static uint32_t msp_crc_bytes(uint32_t crc, const uint8_t *bytes, size_t size)
{
    for (; size >= 8; size -= 8, bytes += 8) {
        uint32_t next = 0;
        for (int i = 0; i < 8; i++) {
            next ^= msp_crc_table[7 - i][(bytes[i] ^ (i < 4 ? crc >> (8 * i) : 0)) & 255];
        }
        crc = next;
    }
    for (; size > 0; size--) {
        crc = (crc >> 8) ^ msp_crc_table[0][(crc ^ *bytes++) & 255];
    }
    return crc;
}

#if defined(__GNUC__) && defined(__x86_64__)
#define MSP_HAVE_X86_FOLDING
#include <immintrin.h>

static uint64_t msp_fold_one[2], msp_fold_eight[2], msp_fold_sixteen[2]; /* distances of 16, 128 and 256 bytes */

static uint64_t msp_power_of_x(int power)
{
    uint32_t value = 0x80000000u;
    while (power-- > 0) {
        value = msp_times_x(value);
    }
    return (uint64_t)value << 32;
}

__attribute__((target("pclmul,sse4.1"), always_inline)) static inline __m128i msp_fold(__m128i value, __m128i by,
                                                                                       __m128i onto)
{
    const __m128i first = _mm_clmulepi64_si128(value, by, 0x00), second = _mm_clmulepi64_si128(value, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), onto);
}

__attribute__((target("pclmul,sse4.1"))) static uint32_t msp_crc_folded(uint32_t crc, const uint8_t *bytes, size_t size)
{
    if (size < 256) {
        return msp_crc_bytes(crc, bytes, size);
    }
    const __m128i by_one = _mm_loadu_si128((const __m128i *)(const void *)msp_fold_one);
    const __m128i by_eight = _mm_loadu_si128((const __m128i *)(const void *)msp_fold_eight);
    const __m128i *p = (const __m128i *)(const void *)bytes;
    __m128i v[8];
    for (int i = 0; i < 8; i++) {
        v[i] = _mm_loadu_si128(p + i);
    }
    v[0] = _mm_xor_si128(v[0], _mm_cvtsi32_si128((int)crc));
    p += 8;
    size -= 128;
    for (; size >= 128; size -= 128, p += 8) {
        for (int i = 0; i < 8; i++) {
            v[i] = msp_fold(v[i], by_eight, _mm_loadu_si128(p + i));
        }
    }
    for (int i = 1; i < 8; i++) {
        v[i] = msp_fold(v[i - 1], by_one, v[i]);
    }
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, v[7]);
    crc = msp_crc_bytes(0, rest, sizeof(rest));
    return msp_crc_bytes(crc, (const uint8_t *)p, size);
}

/* The same on registers of 64 bytes. */
__attribute__((target("vpclmulqdq,avx512f,pclmul,sse4.1"))) static uint32_t
msp_crc_folded_wide(uint32_t crc, const uint8_t *bytes, size_t size)
{
    if (size < 1024) {
        return msp_crc_folded(crc, bytes, size);
    }
    const __m128i by_one = _mm_loadu_si128((const __m128i *)(const void *)msp_fold_one);
    const __m512i by = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)msp_fold_sixteen));
    __m512i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_loadu_si512(bytes + 64 * i);
    }
    v[0] = _mm512_xor_si512(v[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    bytes += 256;
    size -= 256;
    for (; size >= 256; size -= 256, bytes += 256) {
        for (int i = 0; i < 4; i++) {
            const __m512i first = _mm512_clmulepi64_epi128(v[i], by, 0x00);
            const __m512i second = _mm512_clmulepi64_epi128(v[i], by, 0x11);
            v[i] = _mm512_ternarylogic_epi64(first, second, _mm512_loadu_si512(bytes + 64 * i), 0x96);
        }
    }
    uint8_t rest[256];
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(rest + 64 * i, v[i]);
    }
    __m128i last = _mm_loadu_si128((const __m128i *)(const void *)rest);
    for (int i = 16; i < 256; i += 16) {
        last = msp_fold(last, by_one, _mm_loadu_si128((const __m128i *)(const void *)(rest + i)));
    }
    _mm_storeu_si128((__m128i *)(void *)rest, last);
    crc = msp_crc_bytes(0, rest, 16);
    return msp_crc_folded(crc, bytes, size);
}
#endif

#if defined(__GNUC__) && defined(__aarch64__) && defined(__linux__)
#define MSP_HAVE_ARM_CRC
#include <sys/auxv.h>

__attribute__((target("+crc"))) static uint32_t msp_crc_instruction(uint32_t crc, const uint8_t *bytes, size_t size)
{
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof(word));
        __asm__("crc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    return msp_crc_bytes(crc, bytes, size);
}
#endif

typedef uint32_t (*MspCrc)(uint32_t crc, const uint8_t *bytes, size_t size);

static MspCrc msp_crc_best = msp_crc_bytes;

static void msp_hash_begin(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = msp_times_x(value);
        }
        msp_crc_table[0][byte] = value;
    }
    for (int n = 1; n < 8; n++) {
        for (int byte = 0; byte < 256; byte++) {
            const uint32_t before = msp_crc_table[n - 1][byte];
            msp_crc_table[n][byte] = (before >> 8) ^ msp_crc_table[0][before & 255];
        }
    }
#ifdef MSP_HAVE_X86_FOLDING
    msp_fold_one[0] = msp_power_of_x(128 + 63);
    msp_fold_one[1] = msp_power_of_x(128 - 1);
    msp_fold_eight[0] = msp_power_of_x(1024 + 63);
    msp_fold_eight[1] = msp_power_of_x(1024 - 1);
    msp_fold_sixteen[0] = msp_power_of_x(2048 + 63);
    msp_fold_sixteen[1] = msp_power_of_x(2048 - 1);
    __builtin_cpu_init();
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        msp_crc_best = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") ? msp_crc_folded_wide
                                                                                                 : msp_crc_folded;
    }
#endif
#ifdef MSP_HAVE_ARM_CRC
    if (getauxval(AT_HWCAP) & (1 << 7)) { /* HWCAP_CRC32 */
        msp_crc_best = msp_crc_instruction;
    }
#endif
}

/* Take the version of that name; 0 if this machine or this build does not have it. */
static int msp_choose_crc(const char *name)
{
    if (strcmp(name, "table") == 0) {
        msp_crc_best = msp_crc_bytes;
        return 1;
    }
#ifdef MSP_HAVE_X86_FOLDING
    if (strcmp(name, "folded") == 0 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        msp_crc_best = msp_crc_folded;
        return 1;
    }
#endif
    if (strcmp(name, "best") == 0) {
        msp_hash_begin();
        return 1;
    }
    return 0;
}

/* The running CRC-32 is kept inverted, as msp_crc_begin() and msp_crc_end() have it. */
static uint32_t msp_crc_begin(void)
{
    return 0xFFFFFFFFu;
}
static uint32_t msp_crc_end(uint32_t crc)
{
    return crc ^ 0xFFFFFFFFu;
}

static uint32_t msp_crc_more(uint32_t crc, const void *bytes, size_t size)
{
    return msp_crc_best(crc, bytes, size);
}

/* XOR of all little-endian 64-bit words, the last one filled up with zeros. */
static uint64_t msp_xor_words(const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    uint64_t lanes[8] = {0}, result = 0;
    size_t i = 0;
    for (; i + 64 <= size; i += 64) {
        uint64_t words[8];
        memcpy(words, p + i, sizeof(words));
        for (int lane = 0; lane < 8; lane++) {
            lanes[lane] ^= words[lane];
        }
    }
    for (int lane = 0; lane < 8; lane++) {
        result ^= lanes[lane];
    }
    for (; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, p + i, size - i < 8 ? size - i : 8);
        result ^= word;
    }
    return result;
}

#endif
