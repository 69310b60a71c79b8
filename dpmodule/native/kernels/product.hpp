// Products of float32 matrices of moderate size, without the overhead of a library.
#pragma once

#include <cstddef>

#include "image_layers.hpp"

namespace dpmodule {

// A matrix with strides in elements.
struct Matrix {
    const float *at;
    std::ptrdiff_t row_gap, column_gap;
};

struct Product {
    std::ptrdiff_t rows, columns, depth;
    Matrix left;                                   // (rows, depth)
    Matrix right;                                  // (depth, columns)
    const float *bias;                             // (columns), or null
    float *result;                                 // (rows, columns), contiguous: written
    const float *packed = nullptr;                 // `right` packed by `pack`, which is then not read; or null
    LayerFunction function = LayerFunction::None;  // of the results; here `Clamp` replaces negative ones by 0
    int threads = 1;                               // maximal number of threads; does not change the results
};

// Returns false if there is no memory for a copy of a part of `right`.
bool multiply(const Product &product);

// Number of elements that `pack` writes.
std::ptrdiff_t packed_size(std::ptrdiff_t columns, std::ptrdiff_t depth);

// Copies columns of a matrix row by row; rows of `to` are `width` apart.
void copy_block(const Matrix &right, std::ptrdiff_t depth, std::ptrdiff_t columns, float *to, std::ptrdiff_t width);

// Packs a right matrix (depth, columns) into the blocks that `multiply` reads.
void pack(const Matrix &right, std::ptrdiff_t columns, std::ptrdiff_t depth, float *to);

struct DenseLayer {
    std::ptrdiff_t units, features;
    const float *weight;     // (units, features), contiguous; for more than `kFewRows` rows packed, (features, units)
    const float *bias;       // (units), or null
    LayerFunction function;  // of the results, as in `Product`
};

// A chain of dense layers. Rows of data may overlap, such as the windows of a sequence.
struct Dense {
    std::ptrdiff_t samples, rows;
    const float *data;  // (samples, rows, features of the first layer), with the strides of the first two axes
    std::ptrdiff_t sample_gap, row_gap;
    float *result;  // (samples, rows, units of the last layer): written
    const DenseLayer *layers;
    std::ptrdiff_t count;
    int threads;  // maximal number of threads; does not change the results
};

// Returns false if there is no memory for intermediate results.
bool dense(const Dense &run);

// Number of elements per vector on this processor.
int vector_width();

}  // namespace dpmodule
