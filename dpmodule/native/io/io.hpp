// Parsers of comma-separated numbers and of sparse rows (a label, then column:value pairs), and pixel conversion.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule::io {

// Read lines of `columns` numbers into a table with room for `rows` rows, skipping blank lines. Returns the number of rows,
// or -1 if the text holds anything else; the caller then finds the error. Throws std::bad_alloc.
template <class Value>
std::ptrdiff_t read_csv(const char *at, const char *limit, std::ptrdiff_t columns, Value *table, std::ptrdiff_t room);

extern template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, float *, std::ptrdiff_t);
extern template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, double *, std::ptrdiff_t);
extern template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, std::int32_t *, std::ptrdiff_t);
extern template std::ptrdiff_t read_csv(const char *, const char *, std::ptrdiff_t, std::int64_t *, std::ptrdiff_t);

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

// Read lines whose columns are below `columns`. Returns false if the text holds anything else; the caller then finds the
// error. Throws std::bad_alloc.
bool read_libsvm(const char *at, const char *limit, std::uint64_t columns, SparseRows &to);

// Conversion of an image for a batch: from interleaved bytes (red, green, blue, red, ...) to one float plane per channel.
struct Pixels {
    std::ptrdiff_t channels, height, width;
    const std::uint8_t *from;
    std::ptrdiff_t row_gap, pixel_gap;  // bytes between rows, and between pixels
    bool mirrored;                      // swap left and right
    const float *center, *factor;       // per channel: a byte becomes (byte - center) * factor
    float *to;                          // (channels, height, width)
};

// Convert the image.
void put_pixels(const Pixels &pixels);

}  // namespace dpmodule::io
