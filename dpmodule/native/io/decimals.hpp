// Parsing of numbers like Python's float(): decimals, "inf", "infinity" and "nan".
#pragma once

#include <cstddef>
#include <limits>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "functors/numbers.hpp"

namespace dpmodule::io {

// Skip spaces and tabs around a number.
inline const char *skip_blanks(const char *at, const char *limit) noexcept {
    while (at < limit && (*at == ' ' || *at == '\t')) ++at;
    return at;
}

// Return true if the text at `at` starts with a lower-case word, ignoring the text's case.
inline bool starts_with_word(const char *at, const char *limit, const char *word, std::ptrdiff_t size) noexcept {
    if (limit - at < size) return false;
    for (std::ptrdiff_t i = 0; i < size; ++i) {
        if ((at[i] | 0x20) != word[i]) return false;
    }
    return true;
}

// Read "inf", "infinity" or "nan". Returns its end, or nullptr if none of them is here.
inline const char *read_named(const char *at, const char *limit, double &value) noexcept {
    const bool minus = at < limit && *at == '-';
    if (at < limit && (*at == '-' || *at == '+')) ++at;
    if (starts_with_word(at, limit, "nan", 3)) {
        value = std::numeric_limits<double>::quiet_NaN();
        at += 3;
    } else if (starts_with_word(at, limit, "inf", 3)) {
        value = std::numeric_limits<double>::infinity();
        at += starts_with_word(at, limit, "infinity", 8) ? 8 : 3;
    } else {
        return nullptr;
    }
    if (minus) value = -value;
    return at;
}

// Read a number. Returns its end, or nullptr if there is none.
inline const char *read_number(const char *at, const char *limit, double &value) {
    const char *end = read_double(at, limit, value);
    return end ? end : read_named(at, limit, value);
}

// Number of characters before the end of a number that `read_short_decimal` reads.
inline constexpr std::ptrdiff_t short_decimal_reach = 17;

#if defined(__x86_64__)
// Combine sixteen digits into a number: pairs, fours, eights, all.
inline std::uint64_t sixteen_digits(__m128i digits) noexcept {
    const __m128i first = _mm_and_si128(digits, _mm_set1_epi16(0xFF)), second = _mm_srli_epi16(digits, 8);
    const __m128i pairs = _mm_add_epi16(_mm_mullo_epi16(first, _mm_set1_epi16(10)), second);
    const __m128i fours = _mm_madd_epi16(pairs, _mm_set1_epi32(100 | 1 << 16));
    const __m128i eights = _mm_madd_epi16(_mm_packs_epi32(fours, fours), _mm_set1_epi32(10000 | 1 << 16));
    const auto both = static_cast<std::uint64_t>(_mm_cvtsi128_si64(eights));
    return (both & 0xFFFFFFFFu) * powers_of_ten[8] + (both >> 32);
}
#endif

// Read at most 16 characters: an optional minus, and digits with an optional point; false for anything else. Signs and
// lengths vary, so branches on them would often be mispredicted. Instead, the digits are always moved to the right end of
// 16 bytes, without the point.
inline bool read_short_decimal(const char *begin, const char *end, double &value) noexcept {
#if defined(__x86_64__)
    static constexpr double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                        1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const unsigned minus = begin < end && *begin == '-';
    const std::ptrdiff_t length = end - begin - minus;
    if (length < 1 || length > 16) return false;
    const int size = static_cast<int>(length);
    const __m128i right = _mm_loadu_si128(reinterpret_cast<const __m128i *>(end - 16));
    const __m128i left = _mm_loadu_si128(reinterpret_cast<const __m128i *>(end - short_decimal_reach));
    const unsigned dots =
        static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(right, _mm_set1_epi8('.')))) & (0xFFFFu << (16 - size));
    const unsigned has_point = dots != 0;
    // bytes after the point stay; bytes before it move one to the right
    const int point = has_point ? __builtin_ctz(dots | 0x10000u) : 15 - size;
    const int first = 16 - size + static_cast<int>(has_point);
    if (first > 15) return false;
    const __m128i place = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i after = _mm_cmpgt_epi8(place, _mm_set1_epi8(static_cast<char>(point)));
    const __m128i inside = _mm_cmpgt_epi8(place, _mm_set1_epi8(static_cast<char>(first - 1)));
    const __m128i text = _mm_or_si128(_mm_and_si128(after, right), _mm_andnot_si128(after, left));
    const __m128i digits = _mm_and_si128(_mm_sub_epi8(text, _mm_set1_epi8('0')), inside);
    const __m128i nine = _mm_set1_epi8(9);
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(digits, nine), nine)) != 0xFFFF) return false;
    const std::uint64_t mantissa = sixteen_digits(digits);
    if (mantissa > 1ull << 53) return false;
    const double magnitude =
        static_cast<double>(static_cast<std::int64_t>(mantissa)) / powers[has_point ? 15 - point : 0];
    std::uint64_t bits;
    std::memcpy(&bits, &magnitude, sizeof bits);
    bits |= static_cast<std::uint64_t>(minus) << 63;
    std::memcpy(&value, &bits, sizeof bits);
    return true;
#else
    (void)begin, (void)end, (void)value;
    return false;
#endif
}

}  // namespace dpmodule::io
