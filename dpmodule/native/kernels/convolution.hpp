// Two-dimensional convolutions of float32 with fused bias, sum and ReLU.
#pragma once

#include <cstddef>
#include <vector>

namespace dpmodule {

// Windows along an axis.
struct Axis {
    std::ptrdiff_t size, result, kernel, stride, dilate, pad;
};

struct Convolution {
    std::ptrdiff_t images, channels, filters;
    Axis y, x;
    std::ptrdiff_t block;  // filters per block of `weight`: `convolution_block`
    const float *data;     // (images, y.size, x.size, channels)
    const float *weight;   // (blocks, y.kernel, x.kernel, channels, block), padded with zeros
    const float *bias;     // (blocks * block)
    const float *other;    // summand of the result's shape, or null; may be `result`
    float *result;         // (images, y.result, x.result, filters): written
    std::ptrdiff_t relu;   // replace negative numbers and NaN by 0
};

// Uses `threads` of torch's threads. Returns false if there is no memory for the list of windows.
bool convolve(const std::vector<Convolution> &convolutions, int threads);

// Number of filters per block of the weight on this processor; 0 without suitable instructions.
std::ptrdiff_t convolution_block(std::ptrdiff_t filters);

}  // namespace dpmodule
