// Numbers as Python's float() reads them, in the forms that files hold: decimals, "inf", "infinity" and "nan".
#pragma once

#include <cstddef>
#include <limits>

#include "functors/numbers.hpp"

namespace dpmodule::io {

// Spaces and tabs, which may stand around a number.
inline const char *skip_blanks(const char *at, const char *limit) noexcept {
    while (at < limit && (*at == ' ' || *at == '\t')) ++at;
    return at;
}

// Whether a text goes on with a word in lower case, whatever its own case.
inline bool says(const char *at, const char *limit, const char *word, std::ptrdiff_t size) noexcept {
    if (limit - at < size) return false;
    for (std::ptrdiff_t i = 0; i < size; ++i) {
        if ((at[i] | 0x20) != word[i]) return false;
    }
    return true;
}

// Returns where "inf", "infinity" or "nan" ends, or nullptr if none stands here.
inline const char *read_named(const char *at, const char *limit, double &value) noexcept {
    const bool minus = at < limit && *at == '-';
    if (at < limit && (*at == '-' || *at == '+')) ++at;
    if (says(at, limit, "nan", 3)) {
        value = std::numeric_limits<double>::quiet_NaN();
        at += 3;
    } else if (says(at, limit, "inf", 3)) {
        value = std::numeric_limits<double>::infinity();
        at += says(at, limit, "infinity", 8) ? 8 : 3;
    } else {
        return nullptr;
    }
    if (minus) value = -value;
    return at;
}

// Returns where a number ends, or nullptr if none stands here.
inline const char *read_number(const char *at, const char *limit, double &value) {
    const char *end = read_double(at, limit, value);
    return end ? end : read_named(at, limit, value);
}

}  // namespace dpmodule::io
