// Convolutions of float32 by windows of 3x3 that move by 1 or 2 over images with a border of 1, so that height and width
// stay or are halved, and their gradients, for training. Results are the same in every run with as many threads.
#pragma once

#include <cstddef>

namespace dpmodule {

// Sizes of the data, by how much windows move, and how many threads may work. Moving by 2 needs even sides.
struct Conv3x3Sizes {
    std::ptrdiff_t images, height, width, channels, filters, step;
    int threads;
};

// A weight (filters, channels, 3, 3) or its gradient, of any strides, which are in numbers.
struct Conv3x3Weight {
    float *numbers;
    std::ptrdiff_t filter, channel, row, column;
};

// With a turned weight of which filters and channels are swapped, also the gradient of the data; had its
// windows moved by 2, `spread` is 2, and `step` 1. `filters` is a multiple of `conv3x3_lanes()`; the result has 2 rows
// and 8 columns, or more.
struct Conv3x3 {
    Conv3x3Sizes size;
    std::ptrdiff_t spread;  // how far the data lie apart, with zeros between them
    Conv3x3Weight weight;
    bool turned;        // whether the weight is to be turned by 180 degrees
    const float *data;  // (images, height, width, channels)
    const float *bias;  // (filters); null = 0
    float *result;      // (images, height * spread / step, width * spread / step, filters): written
};

// Also needs channels that are a multiple of 4.
struct Conv3x3Gradients {
    Conv3x3Sizes size;
    Conv3x3Weight weight;  // written
    const float *data;     // (images, height, width, channels)
    const float *grad;     // (images, height, width, filters): of the result
    float *bias;           // (filters): written; null = not wanted
};

// Both return false where there is no memory for the weight in their order.
bool conv3x3(const Conv3x3 &run);
bool conv3x3_gradients(const Conv3x3Gradients &run);

// How many filters are computed at once by this processor; 0 = it has no fitting instructions.
std::ptrdiff_t conv3x3_lanes();

}  // namespace dpmodule
