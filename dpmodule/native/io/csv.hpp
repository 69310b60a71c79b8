// Parser of comma-separated numbers.
#pragma once

#include <algorithm>
#include <type_traits>

#include "decimals.hpp"

namespace dpmodule::io {
// Iterator over the ends of the fields of comma-separated text, 64 characters at a time.
//
// Finding each number's end while reading it makes a chain of dependent steps. With the ends known in advance, the
// processor converts several numbers in parallel.
class Fields {
  public:
    Fields(const char *at, const char *limit) noexcept : block_(at), following_(at), limit_(limit) {}

    // Step to the next comma or end of a line; returns the limit, repeatedly, if there is none.
    const char *next() noexcept {
        while (ends_ == 0) {
            if (following_ == limit_) return limit_;
            block_ = following_;
            const std::ptrdiff_t count = std::min(limit_ - block_, size);
            following_ += count;
            ends_ = count == size ? whole() : slowly(count);
        }
        const char *end = block_ + __builtin_ctzll(ends_);
        ends_ &= ends_ - 1;
        return end;
    }

  private:
    static constexpr std::ptrdiff_t size = 64;

    std::uint64_t slowly(std::ptrdiff_t count) const noexcept {
        std::uint64_t found = 0;
        for (std::ptrdiff_t i = 0; i < count; ++i) {
            found |= static_cast<std::uint64_t>(block_[i] == ',' || block_[i] == '\n') << i;
        }
        return found;
    }

    std::uint64_t whole() const noexcept {
#if defined(__SSE2__)
        const __m128i comma = _mm_set1_epi8(','), newline = _mm_set1_epi8('\n');
        std::uint64_t found = 0;
        for (int i = 0; i < 4; ++i) {
            const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i *>(block_ + 16 * i));
            const __m128i is_end = _mm_or_si128(_mm_cmpeq_epi8(text, comma), _mm_cmpeq_epi8(text, newline));
            found |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(is_end))) << (16 * i);
        }
        return found;
#else
        return slowly(size);
#endif
    }

    const char *block_, *following_, *limit_;
    std::uint64_t ends_ = 0;
};

template <class Value>
const char *read_whole(const char *at, const char *limit, Value &value) noexcept {
    const bool minus = at < limit && *at == '-';
    if (at < limit && (*at == '-' || *at == '+')) ++at;
    std::uint64_t found = 0;
    at = read_unsigned(at, limit, found);
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Value>::max());
    if (!at || found > most + (minus ? 1 : 0)) return nullptr;
    value = static_cast<Value>(minus ? 0 - found : found);
    return at;
}

template <class Value>
const char *read_value(const char *at, const char *limit, Value &value) {
    if constexpr (std::is_integral_v<Value>) {
        return read_whole(at, limit, value);
    } else {
        double found = 0;
        at = read_number(at, limit, found);
        value = static_cast<Value>(found);
        return at;
    }
}

inline bool is_blank(const char *at, const char *end) noexcept { return skip_blanks(at, end) == end; }

// Text with the fields.
struct Text {
    const char *begin, *limit;
};

// Read a field that holds only a number and blanks; false if it holds anything else.
template <class Value>
bool read_field(const char *at, const char *end, const Text &text, Value &value) {
    if constexpr (std::is_floating_point_v<Value>) {
        double found;
        if (end - text.begin >= short_decimal_reach && read_short_decimal(at, end, found)) {
            value = static_cast<Value>(found);
            return true;
        }
    }
    at = read_value(skip_blanks(at, end), text.limit, value);
    return at && at <= end && is_blank(at, end);
}

// Return the end of a line's last field, without a carriage return.
inline const char *trimmed(const char *at, const char *end) noexcept {
    return end > at && end[-1] == '\r' ? end - 1 : end;
}

// Read lines of `columns` numbers into a table with room for `rows` rows, skipping blank lines. Returns the number of rows,
// or -1 if the text holds anything else; the caller then finds the error. Throws std::bad_alloc.
template <class Value>
std::ptrdiff_t read_csv(const char *at, const char *limit, std::ptrdiff_t columns, Value *table, std::ptrdiff_t room) {
    const Text text{at, limit};
    Fields fields(at, limit);
    std::ptrdiff_t row = 0;
    while (at < limit) {
        const char *end = fields.next();
        if ((end == limit || *end == '\n') && is_blank(at, trimmed(at, end))) {
            at = end + 1;
            continue;
        }
        if (row == room) return -1;
        Value *const to = table + row++ * columns;
        for (std::ptrdiff_t column = 0; column < columns - 1; ++column) {
            if (end == limit || *end != ',' || !read_field(at, end, text, to[column])) return -1;
            at = end + 1;
            end = fields.next();
        }
        if (end < limit && *end != '\n') return -1;
        if (!read_field(at, trimmed(at, end), text, to[columns - 1])) return -1;
        at = end + 1;
    }
    return row;
}

}  // namespace dpmodule::io
