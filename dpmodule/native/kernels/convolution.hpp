// Two-dimensional convolutions of float32, with bias, sum and rectifier done in registers.
#pragma once

#include <cstddef>
#include <vector>

namespace dpmodule {

// How windows lie along an axis.
struct Axis {
    std::ptrdiff_t size, result, kernel, stride, dilate, pad;
};

struct Convolution {
    std::ptrdiff_t images, channels, filters;
    Axis y, x;
    std::ptrdiff_t block;  // filters that lie together in `weight`: what `convolution_block` said
    const float *data;     // (images, y.size, x.size, channels)
    const float *weight;   // (blocks, y.kernel, x.kernel, channels, block); zeros fill the last block up
    const float *bias;     // (blocks * block)
    const float *other;    // what is added, of the result's shape; null = nothing; may be `result`
    float *result;         // (images, y.result, x.result, filters): written
    std::ptrdiff_t relu;   // whether negative numbers and NaN become 0
};

// Shares the work among `threads` of torch's threads. Returns false where there is no memory for notes on the windows.
bool convolve(const std::vector<Convolution> &convolutions, int threads);

// How many filters lie together in the weight for this processor; 0 = it has no fitting instructions.
std::ptrdiff_t convolution_block(std::ptrdiff_t filters);

}  // namespace dpmodule
