// Sparse rows of a text: a label, then column:value as often as there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule::io {

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

}  // namespace dpmodule::io
