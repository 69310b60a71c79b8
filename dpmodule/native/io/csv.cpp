#include "csv.hpp"

#include <type_traits>

#include "decimals.hpp"

namespace dpmodule::io {
namespace {

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

// Where the line behind this place begins, if this one ends here, or the text; else nullptr.
const char *line_end(const char *at, const char *limit) noexcept {
    if (at < limit && *at == '\r') {
        ++at;
        return at < limit && *at == '\n' ? at + 1 : nullptr;  // nullptr: a lone one is not for this parser
    }
    if (at == limit) return at;
    return *at == '\n' ? at + 1 : nullptr;
}

}  // namespace

template <class Value>
std::ptrdiff_t read_csv(const char *at, const char *limit, std::ptrdiff_t columns, Value *table,
                        std::ptrdiff_t room) {
    Value *to = table;
    const Value *const full = table + room * columns;
    while (at < limit) {
        at = skip_blanks(at, limit);
        if (const char *next = line_end(at, limit)) {
            at = next;
            continue;
        }
        if (to == full) return -1;
        for (std::ptrdiff_t column = 0; column < columns; ++column) {
            if (column > 0) {
                if (at == limit || *at != ',') return -1;
                at = skip_blanks(at + 1, limit);
            }
            at = read_value(at, limit, *to++);
            if (!at) return -1;
            at = skip_blanks(at, limit);
        }
        at = line_end(at, limit);
        if (!at) return -1;
    }
    return (to - table) / columns;
}

template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, float *, std::ptrdiff_t);
template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, double *, std::ptrdiff_t);
template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, std::int32_t *, std::ptrdiff_t);
template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, std::int64_t *, std::ptrdiff_t);

}  // namespace dpmodule::io
