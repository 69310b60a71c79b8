// Products of float32 matrices of moderate size, without the code and preparations of a library.
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
    Matrix left;                    // (rows, depth)
    Matrix right;                   // (depth, columns)
    const float *bias;              // (columns), or null
    float *result;                  // (rows, columns), contiguous: written
    const float *packed = nullptr;  // what `pack` has made of `right`, which is then not read; or null
    bool rectified = false;         // negative results become 0
    int threads = 1;                // the most among which `multiply` shares columns; the numbers stay the same
};

// Returns false where there is no memory for a copy of a part of `right`.
bool multiply(const Product &product);

// How many numbers `pack` writes.
std::ptrdiff_t packed_size(std::ptrdiff_t columns, std::ptrdiff_t depth);

// Writes the blocks that `multiply` would copy of a right matrix (depth, columns).
void pack(const Matrix &right, std::ptrdiff_t columns, std::ptrdiff_t depth, float *to);

struct DenseLayer {
    std::ptrdiff_t units, features;
    const float *packed;  // of the weight, (features, units)
    const float *bias;    // (units), or null
    bool rectified;
};

// Layers one after the other, each of which reads what the one before makes.
struct Dense {
    std::ptrdiff_t rows;
    const float *data;  // (rows, features of the first layer), contiguous
    float *result;      // (rows, units of the last layer): written
    const DenseLayer *layers;
    std::ptrdiff_t count;
    int threads;  // the most that share the rows; the numbers stay the same
};

// Returns false where there is no memory for what lies between the layers.
bool dense(const Dense &run);

// How many numbers it computes with at once on this processor.
int vector_width();

}  // namespace dpmodule
