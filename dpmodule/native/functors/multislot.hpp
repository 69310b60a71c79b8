// Text in MultiSlot format: each line holds for every slot "count value ... value", slots in the order of a description.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <string>
#include <vector>

#include "array.hpp"

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

class MultiSlotParser {
  public:
    // Errors to skip instead of raising them.
    struct Lenience {
        bool blank_lines = false;
        bool bad_lines = false;
    };

    // Messages name the text `source` and number its lines from `first_line`. `slots` and `source` must outlive the parser.
    MultiSlotParser(const std::vector<Slot> &slots, const std::string &source, std::uint64_t first_line,
                    Lenience lenience);

    // Read the complete lines of a text; with `final` also a last line without a line end. Throws Error of Kind::file_format.
    void parse(const char *text, std::size_t size, bool final);

    std::vector<Column> &columns() noexcept { return columns_; }
    std::size_t lines() const noexcept { return lines_; }
    std::size_t consumed() const noexcept { return consumed_; }  // bytes up to the end of the last line read
    std::size_t bad_lines() const noexcept { return bad_lines_; }
    // For each skipped line, the number of lines read before it.
    Array<std::int64_t> &passed() noexcept { return passed_; }

  private:
    // Parse a usual line: valid, not the first, one space between words and none at its ends. Returns its end. For any
    // other line returns nullptr and drops its values; parse_line must then read it.
    const char *parse_plain_line(Words &words);
    bool parse_plain_slot(Words &words, std::size_t index);
    template <bool used>
    bool plain_integers(Words &words, std::size_t index, std::uint64_t count, char last);
    template <bool used>
    bool plain_floats(Words &words, std::size_t index, std::uint64_t count, char last);
    void forget_line() noexcept;

    // Read or skip any line; true if it was read.
    bool take_line(const char *at, const char *limit);
    void pass_over_bad();

    // Parse any line. Throws Error if it is invalid.
    void parse_line(const char *at, const char *limit);
    const char *parse_slot(const char *at, const char *limit, std::size_t index);
    const char *read_values(const char *at, const char *limit, std::size_t index, std::uint64_t count);
    [[noreturn]] void fail(std::size_t index, const std::string &place, const char *at, const char *expected) const;
    [[noreturn]] void fail_value(std::size_t index, std::uint64_t which, std::uint64_t count, const char *at) const;
    std::string where() const;

    const std::vector<Slot> &slots_;
    const std::string &source_;
    const std::uint64_t first_line_;
    const Lenience lenience_;
    std::vector<Column> columns_;
    Array<std::int64_t> passed_;
    std::size_t lines_ = 0, consumed_ = 0, bad_lines_ = 0;
};

}  // namespace dpmodule
