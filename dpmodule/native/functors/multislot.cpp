#include "multislot.hpp"

#include <cmath>
#include <cstring>

#include "numbers.hpp"
#include "quoted.hpp"

namespace dpmodule {
namespace {

bool is_blank(char one) noexcept { return one == ' ' || one == '\t' || one == '\r'; }

bool ends_number(char one) noexcept { return is_blank(one) || one == '\n'; }

// Every line ends with '\n', so neither function checks for the end of the text.
const char *skip_blanks(const char *at) noexcept {
    while (is_blank(*at)) ++at;
    return at;
}

const char *end_of_word(const char *at) noexcept {
    while (!ends_number(*at)) ++at;
    return at;
}

constexpr const char *integer_expected = "an integer from 0 to 18446744073709551615";
constexpr const char *float_expected = "a finite decimal number of float32";
constexpr const char *count_expected = "the number of values";
constexpr const char *dense_count_expected = "the number of values, 1 or more, since the slot is dense";

}  // namespace

MultiSlotParser::MultiSlotParser(const std::vector<Slot> &slots, const std::string &source, std::uint64_t first_line,
                                 Lenience lenience)
    : slots_(slots), source_(source), first_line_(first_line), lenience_(lenience), columns_(slots.size()) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        columns_[i].dim = slots_[i].width;
        if (slots_[i].is_used) columns_[i].offsets.push(0);
    }
}

void MultiSlotParser::parse(const char *text, std::size_t size, bool final) {
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

bool MultiSlotParser::take_line(const char *at, const char *limit) {
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

void MultiSlotParser::pass_over_bad() {
    forget_line();
    if (lines_ == 0) {  // the first line read defines the widths
        for (std::size_t i = 0; i < slots_.size(); ++i) columns_[i].dim = slots_[i].width;
    }
    passed_.push(static_cast<std::int64_t>(lines_));
    ++bad_lines_;
}

const char *MultiSlotParser::parse_plain_line(Words &words) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (!parse_plain_slot(words, i)) {
            forget_line();
            return nullptr;
        }
    }
    return words.end();
}

bool MultiSlotParser::parse_plain_slot(Words &words, std::size_t index) {
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
    const bool fine =
        slot.is_float ? plain_floats<true>(words, index, count, last) : plain_integers<true>(words, index, count, last);
    column.offsets.push(static_cast<std::int64_t>(slot.is_float ? column.floats.size() : column.integers.size()));
    return fine;
}

template <bool used>
bool MultiSlotParser::plain_integers(Words &words, std::size_t index, std::uint64_t count, char last) {
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
bool MultiSlotParser::plain_floats(Words &words, std::size_t index, std::uint64_t count, char last) {
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

void MultiSlotParser::forget_line() noexcept {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (!slots_[i].is_used) continue;
        Column &column = columns_[i];
        column.offsets.resize(lines_ + 1);
        const auto size = static_cast<std::size_t>(column.offsets[lines_]);
        slots_[i].is_float ? column.floats.resize(size) : column.integers.resize(size);
    }
}

void MultiSlotParser::parse_line(const char *at, const char *limit) {
    for (std::size_t i = 0; i < slots_.size(); ++i) at = parse_slot(at, limit, i);
    at = skip_blanks(at);
    if (*at != '\n') {
        throw Error(Kind::file_format, where() + ": found " + quoted(at, end_of_word(at)) + " after the last slot '" +
                                           slots_.back().name + "', expected the end of the line");
    }
}

const char *MultiSlotParser::parse_slot(const char *at, const char *limit, std::size_t index) {
    const Slot &slot = slots_[index];
    Column &column = columns_[index];
    at = skip_blanks(at);
    std::uint64_t count = 0;
    const char *stop = read_unsigned(at, limit, count);
    if (!stop || !ends_number(*stop) || (count == 0 && slot.is_dense))
        fail(index, "count", at, slot.is_dense ? dense_count_expected : count_expected);
    if (slot.is_dense && column.dim != count) {
        if (column.dim != 0) {
            throw Error(Kind::file_format, where() + ", slot '" + slot.name + "': found " + std::to_string(count) +
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

const char *MultiSlotParser::read_values(const char *at, const char *limit, std::size_t index, std::uint64_t count) {
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

std::string MultiSlotParser::where() const {
    return source_ + ": line " + std::to_string(first_line_ + lines_ + passed_.size());
}

void MultiSlotParser::fail(std::size_t index, const std::string &place, const char *at, const char *expected) const {
    const std::string found = *at == '\n' ? "the end of the line" : quoted(at, end_of_word(at));
    throw Error(Kind::file_format, where() + ", slot '" + slots_[index].name + "', " + place + ": found " + found +
                                       ", expected " + expected);
}

void MultiSlotParser::fail_value(std::size_t index, std::uint64_t which, std::uint64_t count, const char *at) const {
    fail(index, "value " + std::to_string(which) + " of " + std::to_string(count), at,
         slots_[index].is_float ? float_expected : integer_expected);
}

}  // namespace dpmodule
