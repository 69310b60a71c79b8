// Convolutions of float32 by windows of 3x3 that move by 1 over images with a border of 1, so that height and width
// stay, and their gradients, for training. Results are the same in every run with as many threads.
#pragma once

#include <cstddef>

namespace dpmodule {

// Sizes, and how many threads may work.
struct Conv3x3Sizes {
    std::ptrdiff_t images, height, width, channels, filters;
    int threads;
};

// A weight (filters, channels, 3, 3) or its gradient, of any strides, which are in numbers.
struct Conv3x3Weight {
    float *numbers;
    std::ptrdiff_t filter, channel, row, column;
};

// With the weight turned by 180 degrees, and filters and channels swapped, also the gradient of the data. `filters` is
// a multiple of `conv3x3_lanes()`, height is 2 or more, width 8 or more.
struct Conv3x3 {
    Conv3x3Sizes size;
    Conv3x3Weight weight;
    const float *data;  // (images, height, width, channels)
    const float *bias;  // (filters); null = 0
    float *result;      // (images, height, width, filters): written
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
