// What is needed to add up the rows of equal numbers, such as those of a table's gradient.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule {

struct Groups {
    const std::int64_t *numbers;
    std::size_t count;
    const std::int64_t *given;  // the place of each number, null: they count from 0
    std::int64_t *distinct;     // written: the different numbers, ascending
    std::int64_t *starts;       // written: where each of them begins
    std::int64_t *places;       // written: the places in the new order, those of equal numbers as they come
    mutable std::size_t found;  // how many different ones there are
};

// Returns false where there is no memory.
bool group_numbers(const Groups &groups);

}  // namespace dpmodule
