// Products of float32 matrices of moderate size by one thread, without the code and preparations of a library.
#pragma once

#include <cstddef>

namespace dpmodule {

// A matrix of any strides, which count numbers.
struct Matrix {
    const float *at;
    std::ptrdiff_t row_gap, column_gap;
};

struct Product {
    std::ptrdiff_t rows, columns, depth;
    Matrix left;        // (rows, depth)
    Matrix right;       // (depth, columns)
    const float *bias;  // (columns), or null
    float *result;      // (rows, columns), contiguous: written
};

// Returns false where there is no memory for a copy of a part of `right`.
bool multiply(const Product &product);

// How many numbers it computes with at once on this processor.
int vector_width();

}  // namespace dpmodule
