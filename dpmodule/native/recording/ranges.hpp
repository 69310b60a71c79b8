// Ranges of flat memory that are joined to one operand of a batch.
#pragma once

#include <cstdint>
#include <vector>

#include "../python.hpp"

namespace dpmodule::recording {

struct Range {
    int source;
    std::int64_t offset, size;  // in elements
};

// dpmodule._native.Ranges: copies ranges of several tensors into one, and adds gradients back.
struct RangesObject {
    PyObject_HEAD std::vector<Range> ranges;
    std::int64_t total;
};

extern PyTypeObject *ranges_type;

PyObject *make_ranges(std::vector<Range> ranges);

}  // namespace dpmodule::recording
