// Convolutions of float32 with one group, and the gradients of weight and bias, for training: they read the weight as
// it lies. Results have the same bits for any number of threads.
#pragma once

#include "image_layers.hpp"

namespace dpmodule {

struct ConvolutionSizes {
    std::ptrdiff_t images, channels, filters;
    Axis y, x;
    int threads;
};

// A weight (filters, channels, y.kernel, x.kernel) or its gradient, with strides in elements.
struct StridedWeight {
    float *numbers;
    std::ptrdiff_t filter, channel, row, column;
};

struct TrainedConvolution {
    ConvolutionSizes size;
    StridedWeight weight;
    const float *data;  // (images, y.size, x.size, channels)
    const float *bias;  // (filters), or null
    float *result;      // (images, y.result, x.result, filters): written
};

// The gradient of the data, plus a bias: the result of a transposed convolution. By `convolution_data`, the stride or the
// dilation of an axis is 1; by `overlapping_data`, which is for few channels, the dilation along x.
struct ConvolutionData {
    ConvolutionSizes size;
    StridedWeight weight;
    const float *grad;  // (images, y.result, x.result, filters): of the result
    const float *bias;  // (channels), or null
    float *data;        // (images, y.size, x.size, channels): written
};

struct ConvolutionGradients {
    ConvolutionSizes size;
    StridedWeight weight;  // written
    const float *data;     // (images, y.size, x.size, channels)
    const float *grad;     // (images, y.result, x.result, filters): of the result
    float *bias;           // (filters): written; or null
};

// The first two need a `convolution_block`, the others need AVX2.
void convolve(const TrainedConvolution &run);
void convolution_data(const ConvolutionData &run);
void overlapping_data(const ConvolutionData &run);
void convolution_gradients(const ConvolutionGradients &run);

}  // namespace dpmodule
