// Rows of numbers separated by commas.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule::io {

// Reads lines of so many numbers each into a table with room for so many rows, and leaves out blank lines. Returns how many
// rows there are; -1 where the text holds anything else, which is left to who can say what. Throws std::bad_alloc.
template <class Value>
std::ptrdiff_t read_csv(const char *at, const char *limit, std::ptrdiff_t columns, Value *table, std::ptrdiff_t room);

extern template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, float *, std::ptrdiff_t);
extern template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, double *, std::ptrdiff_t);
extern template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, std::int32_t *, std::ptrdiff_t);
extern template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, std::int64_t *, std::ptrdiff_t);

}  // namespace dpmodule::io
