// Rows of numbers separated by commas, and sparse rows: a label, then column:value as often as there is one.
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

// Room for what a text holds: a row takes at least 2 characters, and so does an entry more than 3.
struct SparseRows {
    float *labels;
    std::int64_t *lengths;  // entries of each row
    std::ptrdiff_t row_room;
    float *values;
    std::int64_t *columns;
    std::ptrdiff_t entry_room;
    std::ptrdiff_t rows = 0, entries = 0;
};

// Reads lines of a text, whose columns are below a limit. Returns false where it holds anything else, which is left to who
// can say what. Throws std::bad_alloc.
bool read_libsvm(const char *at, const char *limit, std::uint64_t columns, SparseRows &to);

// Pixels on their way into a batch: from bytes of red, green, blue, red, ... to a plane of numbers of each channel.
struct Pixels {
    std::ptrdiff_t channels, height, width;
    const std::uint8_t *from;
    std::ptrdiff_t row_gap, pixel_gap;  // bytes from one row to the next, from one pixel to the next
    bool mirrored;                      // left to right
    const float *center, *factor;       // of each channel: a byte becomes (byte - center) * factor
    float *to;                          // (channels, height, width)
};

// Writes the numbers.
void put_pixels(const Pixels &pixels);

}  // namespace dpmodule::io
