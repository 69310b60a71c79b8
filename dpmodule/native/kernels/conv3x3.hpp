// 3x3 convolutions of float32 with stride 1 or 2 and padding 1, and their gradients, for training. Results are
// deterministic for a given number of threads.
#pragma once

#include "trained_convolution.hpp"

namespace dpmodule {

// Sizes of the data, the stride, and the number of threads. Stride 2 requires even height and width.
struct Conv3x3Sizes {
    std::ptrdiff_t images, height, width, channels, filters, step;
    int threads;
};

// With a rotated weight with swapped filters and channels, this is the gradient with respect to the data; for stride 2,
// `spread` is 2 and `step` 1. `filters` is a multiple of `conv3x3_lanes()`; the result has at least 2 rows and 8
// columns.
struct Conv3x3 {
    Conv3x3Sizes size;
    std::ptrdiff_t spread;  // distance of the data, with zeros between
    StridedWeight weight;
    const float *data;  // (images, height, width, channels)
    const float *bias;  // (filters), or null
    float *result;      // (images, height * spread / step, width * spread / step, filters): written
};

// Requires a multiple of 4 channels.
struct Conv3x3Gradients {
    Conv3x3Sizes size;
    StridedWeight weight;  // written
    const float *data;     // (images, height, width, channels)
    const float *grad;     // (images, height, width, filters): of the result
    float *bias;           // (filters): written; or null
};

void conv3x3(const Conv3x3 &run);
void conv3x3_gradients(const Conv3x3Gradients &run);

// Number of filters per vector on this processor; 0 without suitable instructions.
std::ptrdiff_t conv3x3_lanes();

}  // namespace dpmodule
