// Reading decimal numbers from text, many per microsecond: eight characters at a time, no locale, no copies.
#pragma once

#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <locale.h>
#include <string>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

namespace dpmodule {

inline constexpr std::uint64_t powers_of_ten[] = {1ull,      10ull,      100ull,      1000ull,     10000ull,
                                                  100000ull, 1000000ull, 10000000ull, 100000000ull};

// The next characters of a text: up to eight decimal digits as a number.
struct Digits {
    std::uint64_t value;
    int count;
};

namespace detail {

inline std::uint64_t load_eight(const char *at) noexcept {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

// Bits where one of eight characters, less '0' each, is no digit. A byte of 10 or more reaches 0x80 with 0x76 added; it may
// carry into those behind it, but the first is right.
inline std::uint64_t not_digits(std::uint64_t word) noexcept {
    return ((word + 0x7676767676767676ull) | word) & 0x8080808080808080ull;
}

// The number that eight digits make: pairs, then fours, then all.
inline std::uint64_t eight_digits(std::uint64_t word) noexcept {
    word = (word * 2561) >> 8;
    word = ((word & 0x00FF00FF00FF00FFull) * 6553601) >> 16;
    return ((word & 0x0000FFFF0000FFFFull) * 42949672960001ull) >> 32;
}

constexpr std::uint64_t eight_zeros = 0x3030303030303030ull;

}  // namespace detail

// Read up to eight digits at `at`, of a text whose memory ends at `limit`.
inline Digits read_digits(const char *at, const char *limit) noexcept {
    std::uint64_t word;
    if (limit - at >= 8) {
        word = detail::load_eight(at);
    } else {
        char last[8] = {};  // zeros are no digits
        std::memcpy(last, at, static_cast<std::size_t>(limit - at));
        word = detail::load_eight(last);
    }
    word ^= detail::eight_zeros;
    const std::uint64_t others = detail::not_digits(word);
    const int count = others ? __builtin_ctzll(others) >> 3 : 8;
    if (count == 0) return {0, 0};
    return {detail::eight_digits(word << (64 - 8 * count)), count};  // zeros in front
}

// Read a word of one to eight characters, behind whose beginning eight can be read. `bad` gets bits if one is no digit.
inline std::uint64_t read_short(const char *begin, std::size_t size, std::uint64_t &bad) noexcept {
    const std::uint64_t word = (detail::load_eight(begin) ^ detail::eight_zeros) << (64 - 8 * size);
    bad |= detail::not_digits(word);
    return detail::eight_digits(word);
}

// Read an unsigned integer. Returns where it ends, or nullptr if there is none or it has more than 64 bits.
inline const char *read_unsigned(const char *at, const char *limit, std::uint64_t &value) noexcept {
    Digits digits = read_digits(at, limit);
    if (digits.count == 0) return nullptr;
    value = digits.value;
    at += digits.count;
    while (digits.count == 8) {
        digits = read_digits(at, limit);
        if (__builtin_mul_overflow(value, powers_of_ten[digits.count], &value)) return nullptr;
        if (__builtin_add_overflow(value, digits.value, &value)) return nullptr;
        at += digits.count;
    }
    return at;
}

namespace detail {

// Convert a text that has the form of a number, slowly and for any range.
inline double convert_any(const char *begin, const char *end) {
    static const locale_t plain = newlocale(LC_ALL_MASK, "C", static_cast<locale_t>(nullptr));
    return strtod_l(std::string(begin, end).c_str(), nullptr, plain);
}

inline double convert(const char *begin, const char *end) {
#if defined(__cpp_lib_to_chars)
    double value;
    const char *digits = *begin == '+' ? begin + 1 : begin;
    if (std::from_chars(digits, end, value).ec == std::errc()) return value;
#endif
    return convert_any(begin, end);  // also what is too large or too small, on which from_chars says only that
}

// Append the digits at `at` to a mantissa, which must stay below 10^19; counts them.
inline const char *append_digits(const char *at, const char *limit, std::uint64_t &mantissa, int &count) noexcept {
    Digits digits;
    do {
        digits = read_digits(at, limit);
        mantissa = mantissa * powers_of_ten[digits.count] + digits.value;  // may wrap; then `count` tells
        count += digits.count;
        at += digits.count;
    } while (digits.count == 8);
    return at;
}

inline const char *read_exponent(const char *at, const char *limit, int &exponent) noexcept {
    const bool minus = at < limit && *at == '-';
    if (at < limit && (*at == '-' || *at == '+')) ++at;
    int count = 0;
    std::uint64_t digits = 0;
    at = append_digits(at, limit, digits, count);
    if (count == 0) return nullptr;
    exponent = count > 8 ? 99999 : static_cast<int>(digits > 99999 ? 99999 : digits);
    if (minus) exponent = -exponent;
    return at;
}

}  // namespace detail

// Read a decimal number with optional sign, point and exponent; no "nan", "inf" or hexadecimals. Returns where it ends, or
// nullptr if there is none. The value is the double nearest to the text; infinite if it is beyond all.
inline const char *read_double(const char *at, const char *limit, double &value) {
    static constexpr double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *begin = at;
    const bool minus = at < limit && *at == '-';
    if (at < limit && (*at == '-' || *at == '+')) ++at;
    std::uint64_t mantissa = 0;
    int count = 0, exponent = 0;
    at = detail::append_digits(at, limit, mantissa, count);
    if (at < limit && *at == '.') {
        const int before = count;
        at = detail::append_digits(at + 1, limit, mantissa, count);
        exponent = before - count;
    }
    if (count == 0) return nullptr;
    if (at < limit && (*at == 'e' || *at == 'E')) {
        int given = 0;
        at = detail::read_exponent(at + 1, limit, given);
        if (!at) return nullptr;
        exponent += given;
    }
    // Both numbers are exact doubles here, so that one operation rounds once.
    if (count <= 19 && mantissa <= (1ull << 53) && exponent >= -22 && exponent <= 22) {
        const double whole = static_cast<double>(mantissa);
        value = exponent < 0 ? whole / powers[-exponent] : whole * powers[exponent];
        if (minus) value = -value;
    } else {
        value = detail::convert(begin, at);
    }
    return at;
}

}  // namespace dpmodule
