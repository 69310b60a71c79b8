// The greatest number of each window of images, without the places that a gradient would need.
#pragma once

#include <cstddef>

namespace dpmodule {

struct Pooling {
    std::ptrdiff_t images, channels, sizes[2];  // of images, which are contiguous with channels innermost
    std::ptrdiff_t counts[2];                   // of windows along height and width, each with some of the image
    std::ptrdiff_t kernel[2], stride[2], pad[2];
    const float *data;
    float *result;  // (images, counts, channels), contiguous: written
    int threads;    // the most that share the rows
};

// A window with NaN makes NaN, as torch's does.
void max_pool(const Pooling &pooling);

}  // namespace dpmodule
