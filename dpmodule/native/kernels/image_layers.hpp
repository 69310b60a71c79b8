// Layers for images in prediction: convolutions, poolings, sums and functions of float32 in channels-last order.
#pragma once

#include <cstddef>
#include <vector>

namespace dpmodule {

// Windows along an axis.
struct Axis {
    std::ptrdiff_t size, result, kernel, stride, dilate, pad;
};

enum class LayerKind : std::ptrdiff_t {
    Convolution,
    Depthwise,  // a convolution of each channel with one filter
    Grouped,    // a convolution of groups of 1, 2, 4 or 8 filters and no more channels; all three may add `other`
    MaxPool,    // NaN propagates
    MeanPool,   // divides by the window with its padding if `block` is 1, else by the elements in the image
    MaxRows,    // poolings in the usual order: the images have one channel; from one pixel to the next is one element
    MeanRows,
    Sum,     // data + other
    Scale,   // data * other, which has one pixel for each image
    Affine,  // data * weight + bias
    Copy,
    Shuffle,   // writes the first channel of all groups, then their second one
    Relayout,  // reads the usual order
};

enum class LayerFunction : std::ptrdiff_t {
    None,
    Relu,       // NaN becomes 0
    Clamp,      // to `low` and `high`; NaN stays, here and below
    HardSwish,  // x * (x + 3 between 0 and 6) / 6
    Swish,
    Sigmoid,
    Tanh,
    Leaky,        // with the slope `low`
    HardSigmoid,  // low * x + high, to 0 and 1
    Gelu,         // x times the normal distribution function of x
};

// Most elements of the line of memory that `MaxRows` and `MeanRows` use: a row with its padding, and 32 more.
constexpr std::ptrdiff_t kMaxLine = 2048;

struct ImageLayer {
    LayerKind kind;
    std::ptrdiff_t images, channels, filters;  // the last two of each group
    std::ptrdiff_t groups;                     // 1 but for `Convolution`, `Grouped` and `Shuffle`
    Axis y, x;
    std::ptrdiff_t block;  // filters per block of a convolution's weight: `convolution_block`
    LayerFunction function;
    float low, high;
    std::ptrdiff_t data_gap, other_gap, result_gap;  // elements from one pixel to the next
    const float *data;                               // (images, y.size, x.size, groups * channels)
    const float *weight;  // convolution: (groups * blocks, y.kernel, x.kernel, channels, block), padded with zeros;
                          // grouped: (channels, y.kernel, x.kernel, groups * filters); depthwise: (y.kernel, x.kernel,
                          // channels); affine: (channels)
    const float *bias;    // (groups * blocks * block) or (groups * filters)
    const float *other;   // summand of the result's shape, or null; may be `result`
    float *result;        // (images, y.result, x.result, groups * filters): written
    std::ptrdiff_t row_gap, image_gap;  // convolution: elements from one row and one image of the result to the next
};

// Runs layers in order, on `threads` of torch's threads.
void run_layers(const std::vector<ImageLayer> &layers, int threads);

// Computes some pixels of the result of a layer other than a convolution, but for the functions after `HardSwish`.
void compute_pixels(const ImageLayer &layer, std::ptrdiff_t begin, std::ptrdiff_t end);

// Number of filters per block of the weight of `filters` on this processor; 0 without suitable instructions.
std::ptrdiff_t convolution_block(std::ptrdiff_t filters);

}  // namespace dpmodule
