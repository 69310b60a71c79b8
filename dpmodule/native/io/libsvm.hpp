// Parser of sparse rows: a label, then column:value pairs.
#pragma once

#include <cstring>

#include "decimals.hpp"

namespace dpmodule::io {

// Output arrays for a text: a row takes at least 2 characters, and an entry more than 3.
struct SparseRows {
    float *labels;
    std::int64_t *lengths;  // entries of each row
    std::ptrdiff_t row_room;
    float *values;
    std::int64_t *columns;
    std::ptrdiff_t entry_room;
    std::ptrdiff_t rows = 0, entries = 0;
};

inline const char *skip_spaces(const char *at, const char *limit) noexcept {
    while (at < limit && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\v' || *at == '\f')) ++at;
    return at;
}

// Return true at the end of a word: a blank, the end of the line, or a comment.
inline bool word_ends(const char *at, const char *limit) noexcept {
    return at == limit || (*at >= '\t' && *at <= '\r') || *at == ' ' || *at == '#';
}

inline bool line_is_over(const char *at, const char *limit) noexcept {
    return at == limit || *at == '\n' || *at == '#';
}

inline const char *after_line(const char *at, const char *limit) noexcept {
    const void *end = at == limit ? nullptr : std::memchr(at, '\n', static_cast<std::size_t>(limit - at));
    return end ? static_cast<const char *>(end) + 1 : limit;
}

// Read the label and skip a weight that follows it; nullptr if there is anything else.
inline const char *read_label(const char *at, const char *limit, float &label) {
    double value = 0;
    at = read_number(at, limit, value);
    if (!at) return nullptr;
    label = static_cast<float>(value);
    if (at < limit && *at == ':') {
        at = read_number(at + 1, limit, value);
        if (!at) return nullptr;
    }
    return word_ends(at, limit) ? at : nullptr;
}

// Skip a query number if one follows.
inline const char *skip_query(const char *at, const char *limit) noexcept {
    const char *word = skip_blanks(at, limit);
    if (word == at || limit - word < 5 || std::memcmp(word, "qid:", 4) != 0) return at;
    const char *end = word + 4;
    while (end < limit && *end >= '0' && *end <= '9') ++end;
    return end > word + 4 && word_ends(end, limit) ? end : at;
}

inline const char *read_entry(const char *at, const char *limit, std::uint64_t columns, SparseRows &to) {
    std::uint64_t column = 0;
    double value = 0;
    at = read_unsigned(at, limit, column);
    if (!at || column >= columns || at == limit || *at != ':' || to.entries == to.entry_room) return nullptr;
    at = read_number(at + 1, limit, value);
    if (!at || !word_ends(at, limit)) return nullptr;
    to.columns[to.entries] = static_cast<std::int64_t>(column);
    to.values[to.entries++] = static_cast<float>(value);
    return at;
}

// Read lines whose columns are below `columns`. Returns false if the text holds anything else; the caller then finds the
// error. Throws std::bad_alloc.
inline bool read_libsvm(const char *at, const char *limit, std::uint64_t columns, SparseRows &to) {
    while (at < limit) {
        at = skip_spaces(at, limit);
        if (!line_is_over(at, limit)) {
            if (to.rows == to.row_room) return false;
            at = read_label(at, limit, to.labels[to.rows]);
            if (!at) return false;
            const std::ptrdiff_t begin = to.entries;
            at = skip_spaces(skip_query(at, limit), limit);
            while (!line_is_over(at, limit)) {
                at = read_entry(at, limit, columns, to);
                if (!at) return false;
                at = skip_spaces(at, limit);
            }
            to.lengths[to.rows++] = to.entries - begin;
        }
        at = after_line(at, limit);
    }
    return true;
}

}  // namespace dpmodule::io
