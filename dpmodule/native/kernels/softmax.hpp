// Softmax of rows so short that they do not fill a vector, which libraries then compute number by number.
#pragma once

#include <cstddef>

namespace dpmodule {

// What a vector of this processor has at most.
constexpr std::ptrdiff_t kMostClasses = 16;

struct Softmax {
    std::ptrdiff_t rows, classes;  // classes from 1 to kMostClasses
    const float *scores;           // (rows, classes)
    float *result;                 // (rows, classes): written
};

// A row in which a score is NaN or plus infinity, or all are minus infinity, becomes NaN.
void softmax(const Softmax &run);

}  // namespace dpmodule
