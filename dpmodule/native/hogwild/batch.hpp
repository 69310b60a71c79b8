// The lines that one step of training is about.
#pragma once

#include "plan.hpp"

namespace dpmodule::hogwild {

// Values of line i are those from offsets[i] on to offsets[i + 1].
struct SlotBatch {
    std::vector<int> ids, offsets;
    std::vector<float> numbers;

    int begin(int line) const { return offsets[static_cast<std::size_t>(line)]; }
    int end(int line) const { return offsets[static_cast<std::size_t>(line) + 1]; }
};

// How far a part has been read: so many of its lines.
struct Place {
    const Part *part;
    std::uint64_t lines;
};

struct Batch {
    int lines = 0;
    std::vector<SlotBatch> slots;
    const Part *part = nullptr;  // in which it begins, and the line there, from 0
    std::uint64_t first_line = 0;
    std::vector<Place> ends;  // of each part that it has lines of
};

}  // namespace dpmodule::hogwild
