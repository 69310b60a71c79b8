// Products of a few rows with a dense layer's weight, which take as long as the weight takes to come from memory: it is
// read once, whatever the number of rows.
#pragma once

#include <cstddef>

namespace dpmodule {

constexpr std::ptrdiff_t kFewRows = 4;

struct FewRows {
    std::ptrdiff_t rows, units, features;  // rows from 1 to kFewRows
    const float *data;                     // (rows, features), rows `data_gap` numbers apart
    std::ptrdiff_t data_gap;
    const float *weight;  // (units, features), rows `weight_gap` numbers apart
    std::ptrdiff_t weight_gap;
    const float *bias;  // (units), or null
    float *result;      // (rows, units): written
    int threads;        // the most that share the units; the numbers stay the same
};

void multiply_few_rows(const FewRows &run);

}  // namespace dpmodule
