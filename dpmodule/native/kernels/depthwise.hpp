// Depthwise convolutions of float32 in channels-last order, and their gradients, for training. Results do not depend on
// the number of threads.
#pragma once

#include <cstddef>

#include "image_layers.hpp"

namespace dpmodule {

// A weight and its gradient are (channels, y.kernel, x.kernel).
struct DepthwiseSizes {
    std::ptrdiff_t images, channels;
    Axis y, x;
    int threads;
};

struct Depthwise {
    DepthwiseSizes size;
    const float *data;  // (images, y.size, x.size, channels)
    const float *weight;
    const float *bias;  // (channels), or null
    float *result;      // (images, y.result, x.result, channels): written
};

// `x.kernel` is 3, 5 or 7.
struct DepthwiseGradients {
    DepthwiseSizes size;
    const float *data, *weight;
    const float *grad;  // of the result
    float *for_data;    // written
    float *for_weight;  // written
};

void depthwise(const Depthwise &run);
void depthwise_gradients(const DepthwiseGradients &run);

}  // namespace dpmodule
