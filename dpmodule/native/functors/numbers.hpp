// Fast parsing of decimal numbers: eight characters at a time, without locale or copies.
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

// Up to eight decimal digits at the start of a text, as a number.
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

// Return bits for those of eight characters, less '0' each, that are not digits. A byte of 10 or more reaches 0x80 when
// 0x76 is added; it may carry into later bytes, but the first bit is right.
inline std::uint64_t not_digits(std::uint64_t word) noexcept {
    return ((word + 0x7676767676767676ull) | word) & 0x8080808080808080ull;
}

// Combine eight digits into a number: pairs, then fours, then all.
inline std::uint64_t eight_digits(std::uint64_t word) noexcept {
    word = (word * 2561) >> 8;
    word = ((word & 0x00FF00FF00FF00FFull) * 6553601) >> 16;
    return ((word & 0x0000FFFF0000FFFFull) * 42949672960001ull) >> 32;
}

constexpr std::uint64_t eight_zeros = 0x3030303030303030ull;

}  // namespace detail

// Read up to eight digits at `at`; the text's memory ends at `limit`.
inline Digits read_digits(const char *at, const char *limit) noexcept {
    std::uint64_t word;
    if (limit - at >= 8) {
        word = detail::load_eight(at);
    } else {
        char last[8] = {};  // zero bytes are not digits
        std::memcpy(last, at, static_cast<std::size_t>(limit - at));
        word = detail::load_eight(last);
    }
    word ^= detail::eight_zeros;
    const std::uint64_t others = detail::not_digits(word);
    const int count = others ? __builtin_ctzll(others) >> 3 : 8;
    if (count == 0) return {0, 0};
    return {detail::eight_digits(word << (64 - 8 * count)), count};  // leading zeros
}

// Read a word of one to eight digits; eight characters from `begin` must be readable. Sets bits in `bad` for other ones.
inline std::uint64_t read_short(const char *begin, std::size_t size, std::uint64_t &bad) noexcept {
    const std::uint64_t word = (detail::load_eight(begin) ^ detail::eight_zeros) << (64 - 8 * size);
    bad |= detail::not_digits(word);
    return detail::eight_digits(word);
}

// Read an unsigned integer. Returns its end, or nullptr if there is none or it exceeds 64 bits.
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

// Convert the text of a number of any range, slowly.
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
    return convert_any(begin, end);  // also numbers out of range, for which from_chars returns no value
}

// Append the digits at `at` to a mantissa, which must stay below 10^19; counts them.
inline const char *append_digits(const char *at, const char *limit, std::uint64_t &mantissa, int &count) noexcept {
    Digits digits;
    do {
        digits = read_digits(at, limit);
        mantissa = mantissa * powers_of_ten[digits.count] + digits.value;  // may wrap, which `count` reveals
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

// Read a decimal number with optional sign, point and exponent; no "nan", "inf" or hexadecimals. Returns its end, or
// nullptr if there is none. The value is the double nearest to the text, infinite on overflow.
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
    // Both operands are exact doubles, so the operation rounds only once.
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
