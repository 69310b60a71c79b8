// Text in MultiSlot format: each line holds for every slot "count value ... value", slots in the order of a description.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "array.hpp"
#include "numbers.hpp"
#include "quoted.hpp"

namespace dpmodule {

// Iterator over the words of a text, 64 characters at a time.
//
// Finding each number's end while reading it makes a chain of dependent steps. Here one bit per blank of a block marks
// the ends of all its words, and the processor converts several in parallel.
class Words {
  public:
#if defined(__SSE2__)
    static constexpr bool available = true;
#else
    static constexpr bool available = false;
#endif

    Words(const char *at, const char *limit) noexcept : limit_(limit) { restart(at); }

    // Continue from another position.
    void restart(const char *at) noexcept {
        block_ = at;
        end_ = at - 1;
        blanks_ = 0;
        near_end_ = !load();
    }

    // Step to the next word, which may be empty; false near the end of the text, which this class does not handle.
    bool next() noexcept {
        begin_ = end_ + 1;
        while (blanks_ == 0) {
            if (near_end_) return false;
            block_ += size;
            near_end_ = !load();
        }
        end_ = block_ + __builtin_ctzll(blanks_);
        blanks_ &= blanks_ - 1;
        return true;
    }

    const char *begin() const noexcept { return begin_; }
    const char *end() const noexcept { return end_; }  // the blank or control character after the word
    std::size_t left() const noexcept { return static_cast<std::size_t>(limit_ - end_); }

  private:
    static constexpr std::ptrdiff_t size = 64;
    static constexpr std::ptrdiff_t margin = 8;  // a word of one block is read eight characters at a time

    bool load() noexcept {
        if (!available || limit_ - block_ < size + margin) return false;
#if defined(__SSE2__)
        const __m128i space = _mm_set1_epi8(' ');
        for (int i = 0; i < 4; ++i) {
            const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i *>(block_ + 16 * i));
            const __m128i is_blank = _mm_cmpeq_epi8(_mm_min_epu8(text, space), text);
            blanks_ |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(is_blank))) << (16 * i);
        }
#endif
        return true;
    }

    const char *limit_;
    const char *block_ = nullptr, *begin_ = nullptr, *end_ = nullptr;
    std::uint64_t blanks_ = 0;
    bool near_end_ = false;
};

// Description of a slot.
struct Slot {
    std::string name;
    bool is_float = false;    // else unsigned integers of 64 bits
    bool is_dense = false;    // the same number of values in every line
    bool is_used = false;     // keep the values, not only check them
    std::uint64_t width = 0;  // values per line of a dense slot; 0: as in the first line
};

// Parsed values of one slot: those of line i are values[offsets[i]] to values[offsets[i + 1] - 1].
struct Column {
    Array<std::int64_t> integers;  // the bits of the unsigned numbers
    Array<float> floats;
    Array<std::int64_t> offsets;
    std::uint64_t dim = 0;  // values per line of a dense slot, 0 before the first
};

inline bool is_blank(char one) noexcept { return one == ' ' || one == '\t' || one == '\r'; }

inline bool ends_number(char one) noexcept { return is_blank(one) || one == '\n'; }

// Every line ends with '\n', so neither function checks for the end of the text.
inline const char *skip_blanks(const char *at) noexcept {
    while (is_blank(*at)) ++at;
    return at;
}

inline const char *end_of_word(const char *at) noexcept {
    while (!ends_number(*at)) ++at;
    return at;
}

constexpr const char *integer_expected = "an integer from 0 to 18446744073709551615";
constexpr const char *float_expected = "a finite decimal number of float32";
constexpr const char *count_expected = "the number of values";
constexpr const char *dense_count_expected = "the number of values, 1 or more, since the slot is dense";

class MultiSlotParser {
  public:
    // Errors to skip instead of raising them.
    struct Lenience {
        bool blank_lines = false;
        bool bad_lines = false;
    };

    // Messages name the text `source` and number its lines from `first_line`. `slots` and `source` must outlive the parser.
    MultiSlotParser(const std::vector<Slot> &slots, const std::string &source, std::uint64_t first_line,
                    Lenience lenience)
        : slots_(slots), source_(source), first_line_(first_line), lenience_(lenience), columns_(slots.size()) {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            columns_[i].dim = slots_[i].width;
            if (slots_[i].is_used) columns_[i].offsets.push(0);
        }
    }

    // Read the complete lines of a text; with `final` also a last line without a line end. Throws Error of Kind::file_format.
    void parse(const char *text, std::size_t size, bool final) {
        const char *at = text, *end = text + size;
        Words words(text, end);
        unsigned others = 0;  // lines that are not plain; if most are, the plain parser is no longer tried
        while (at < end) {
            const char *stop = lines_ > 0 && others <= 16 + lines_ / 4 ? parse_plain_line(words) : nullptr;
            if (!stop) {
                stop = static_cast<const char *>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
                if (!stop) break;
                words.restart(stop + 1);
                const char *line = at;
                at = stop + 1;
                if (!take_line(line, end)) continue;
                ++others;
            } else {
                at = stop + 1;
            }
            ++lines_;
        }
        consumed_ = static_cast<std::size_t>(at - text);
        if (final && at < end) {
            const std::string last = std::string(at, end) + '\n';
            if (take_line(last.data(), last.data() + last.size())) ++lines_;
            consumed_ = size;
        }
    }

    std::vector<Column> &columns() noexcept { return columns_; }
    std::size_t lines() const noexcept { return lines_; }
    std::size_t consumed() const noexcept { return consumed_; }  // bytes up to the end of the last line read
    std::size_t bad_lines() const noexcept { return bad_lines_; }
    // For each skipped line, the number of lines read before it.
    Array<std::int64_t> &passed() noexcept { return passed_; }

  private:
    // Parse a usual line: valid, not the first, one space between words and none at its ends. Returns its end. For any
    // other line returns nullptr and drops its values; parse_line must then read it.
    const char *parse_plain_line(Words &words) {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (!parse_plain_slot(words, i)) {
                forget_line();
                return nullptr;
            }
        }
        return words.end();
    }
    bool parse_plain_slot(Words &words, std::size_t index) {
        const Slot &slot = slots_[index];
        Column &column = columns_[index];
        if (!words.next()) return false;
        std::uint64_t count, bad = 0;
        const std::size_t size = static_cast<std::size_t>(words.end() - words.begin());
        if (size == 0 || size > 8) return false;
        count = read_short(words.begin(), size, bad);
        const char last = index + 1 == slots_.size() ? '\n' : ' ';
        if (bad || *words.end() != (count == 0 ? last : ' ') || count > words.left() / 2) return false;
        if (slot.is_dense && (column.dim != count || count == 0)) return false;
        if (!slot.is_used) {
            return slot.is_float ? plain_floats<false>(words, index, count, last)
                                 : plain_integers<false>(words, index, count, last);
        }
        const bool fine = slot.is_float ? plain_floats<true>(words, index, count, last)
                                        : plain_integers<true>(words, index, count, last);
        column.offsets.push(static_cast<std::int64_t>(slot.is_float ? column.floats.size() : column.integers.size()));
        return fine;
    }
    template <bool used>
    bool plain_integers(Words &words, std::size_t index, std::uint64_t count, char last) {
        auto &values = columns_[index].integers;
        if (used) values.grow(count);
        std::int64_t *out = values.data() + values.size();
        std::uint64_t bad = 0;
        Words here = words;  // a copy in registers: writes through `out` might alias `words`
        for (std::uint64_t left = count; left > 0; --left) {
            if (!here.next()) return false;
            const std::size_t size = static_cast<std::size_t>(here.end() - here.begin());
            std::uint64_t value = 0;
            if (size - 1 < 8) {
                value = read_short(here.begin(), size, bad);
            } else {  // no digits, or many
                bad |= read_unsigned(here.begin(), here.end() + 1, value) != here.end();
            }
            if (used) *out++ = static_cast<std::int64_t>(value);
            bad |= static_cast<std::uint64_t>(*here.end() ^ (left == 1 ? last : ' '));
        }
        words = here;
        if (used) values.resize(values.size() + count);
        return bad == 0;
    }
    template <bool used>
    bool plain_floats(Words &words, std::size_t index, std::uint64_t count, char last) {
        auto &values = columns_[index].floats;
        if (used) values.grow(count);
        float *out = values.data() + values.size();
        bool bad = false;
        for (std::uint64_t left = count; left > 0; --left) {
            if (!words.next()) return false;
            double value;
            if (read_double(words.begin(), words.end() + 8, value) != words.end()) return false;
            const float rounded = static_cast<float>(value);
            if (used) *out++ = rounded;
            bad |= std::isinf(rounded) || *words.end() != (left == 1 ? last : ' ');
        }
        if (used) values.resize(values.size() + count);
        return !bad;
    }
    void forget_line() noexcept {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (!slots_[i].is_used) continue;
            Column &column = columns_[i];
            column.offsets.resize(lines_ + 1);
            const auto size = static_cast<std::size_t>(column.offsets[lines_]);
            slots_[i].is_float ? column.floats.resize(size) : column.integers.resize(size);
        }
    }

    // Read or skip any line; true if it was read.
    bool take_line(const char *at, const char *limit) {
        if (lenience_.blank_lines && *skip_blanks(at) == '\n') {
            passed_.push(static_cast<std::int64_t>(lines_));
            return false;
        }
        if (!lenience_.bad_lines) {
            parse_line(at, limit);
            return true;
        }
        try {
            parse_line(at, limit);
            return true;
        } catch (const Error &) {
            pass_over_bad();
            return false;
        }
    }
    void pass_over_bad() {
        forget_line();
        if (lines_ == 0) {  // the first line read defines the widths
            for (std::size_t i = 0; i < slots_.size(); ++i) columns_[i].dim = slots_[i].width;
        }
        passed_.push(static_cast<std::int64_t>(lines_));
        ++bad_lines_;
    }

    // Parse any line. Throws Error if it is invalid.
    void parse_line(const char *at, const char *limit) {
        for (std::size_t i = 0; i < slots_.size(); ++i) at = parse_slot(at, limit, i);
        at = skip_blanks(at);
        if (*at != '\n') {
            throw Error(Kind::file_format, where() + ": found " + quoted(at, end_of_word(at)) +
                                               " after the last slot '" + slots_.back().name +
                                               "', expected the end of the line");
        }
    }
    const char *parse_slot(const char *at, const char *limit, std::size_t index) {
        const Slot &slot = slots_[index];
        Column &column = columns_[index];
        at = skip_blanks(at);
        std::uint64_t count = 0;
        const char *stop = read_unsigned(at, limit, count);
        if (!stop || !ends_number(*stop) || (count == 0 && slot.is_dense))
            fail(index, "count", at, slot.is_dense ? dense_count_expected : count_expected);
        if (slot.is_dense && column.dim != count) {
            if (column.dim != 0) {
                throw Error(Kind::file_format,
                            where() + ", slot '" + slot.name + "': found " + std::to_string(count) +
                                " values, expected " + std::to_string(column.dim) +
                                (slot.width ? " in every line" : ", as many as in the lines before") +
                                ", since the slot is dense");
            }
            column.dim = count;
        }
        at = read_values(stop, limit, index, count);
        if (slot.is_used) {
            const std::size_t size = slot.is_float ? column.floats.size() : column.integers.size();
            column.offsets.push(static_cast<std::int64_t>(size));
        }
        return at;
    }
    const char *read_values(const char *at, const char *limit, std::size_t index, std::uint64_t count) {
        const Slot &slot = slots_[index];
        Column &column = columns_[index];
        for (std::uint64_t i = 0; i < count; ++i) {
            at = skip_blanks(at);
            std::uint64_t whole = 0;
            double real = 0;
            const char *stop = slot.is_float ? read_double(at, limit, real) : read_unsigned(at, limit, whole);
            const float rounded = static_cast<float>(real);
            if (!stop || !ends_number(*stop) || std::isinf(rounded)) fail_value(index, i + 1, count, at);
            if (slot.is_used && slot.is_float) column.floats.push(rounded);
            else if (slot.is_used) column.integers.push(static_cast<std::int64_t>(whole));
            at = stop;
        }
        return at;
    }
    [[noreturn]] void fail(std::size_t index, const std::string &place, const char *at, const char *expected) const {
        const std::string found = *at == '\n' ? "the end of the line" : quoted(at, end_of_word(at));
        throw Error(Kind::file_format, where() + ", slot '" + slots_[index].name + "', " + place + ": found " + found +
                                           ", expected " + expected);
    }
    [[noreturn]] void fail_value(std::size_t index, std::uint64_t which, std::uint64_t count, const char *at) const {
        fail(index, "value " + std::to_string(which) + " of " + std::to_string(count), at,
             slots_[index].is_float ? float_expected : integer_expected);
    }
    std::string where() const { return source_ + ": line " + std::to_string(first_line_ + lines_ + passed_.size()); }

    const std::vector<Slot> &slots_;
    const std::string &source_;
    const std::uint64_t first_line_;
    const Lenience lenience_;
    std::vector<Column> columns_;
    Array<std::int64_t> passed_;
    std::size_t lines_ = 0, consumed_ = 0, bad_lines_ = 0;
};

}  // namespace dpmodule
