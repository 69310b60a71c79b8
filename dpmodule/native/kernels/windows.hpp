// Windows of images as rows of a matrix, and such rows added up to images. One element of the windows at a time, and
// of it all channels: an image with channels innermost is read, or written, as it lies.
#pragma once

#include <cstddef>

namespace dpmodule {

// Images of any strides, and the windows over them.
struct ImageWindows {
    float *image;            // (number, channels, sizes[0], sizes[1])
    std::ptrdiff_t gaps[4];  // strides of its axes, which count numbers
    std::ptrdiff_t number, channels, sizes[2];
    std::ptrdiff_t counts[2];  // of windows along height and width
    std::ptrdiff_t kernel[2], stride[2], pad[2], dilate[2];
    float *rows;  // (number * counts, channels * kernel), contiguous
};

// Calls `run(element, numbers)` for every element of every window: where its first channel lies in the rows, and in the
// image, null in the padding.
template <class Run>
void each_element(const ImageWindows &w, const Run &run) {
    const std::ptrdiff_t area = w.kernel[0] * w.kernel[1];
    float *row = w.rows;
    for (std::ptrdiff_t n = 0; n < w.number; ++n) {
        for (std::ptrdiff_t y = 0; y < w.counts[0]; ++y) {
            for (std::ptrdiff_t x = 0; x < w.counts[1]; ++x, row += w.channels * area) {
                for (std::ptrdiff_t k = 0; k < area; ++k) {
                    const std::ptrdiff_t down = y * w.stride[0] - w.pad[0] + k / w.kernel[1] * w.dilate[0];
                    const std::ptrdiff_t across = x * w.stride[1] - w.pad[1] + k % w.kernel[1] * w.dilate[1];
                    const bool inside = down >= 0 && down < w.sizes[0] && across >= 0 && across < w.sizes[1];
                    float *from = w.image + n * w.gaps[0] + down * w.gaps[2] + across * w.gaps[3];
                    run(row + k, inside ? from : nullptr, area);
                }
            }
        }
    }
}

// Writes the rows; what lies in the padding is 0.
inline void unfold(const ImageWindows &w) {
    each_element(w, [&w](float *to, const float *from, std::ptrdiff_t area) {
        const std::ptrdiff_t gap = w.gaps[1];
        if (from) {
            for (std::ptrdiff_t c = 0; c < w.channels; ++c) to[c * area] = from[c * gap];
        } else {
            for (std::ptrdiff_t c = 0; c < w.channels; ++c) to[c * area] = 0;
        }
    });
}

// Adds the rows to the image.
inline void fold(const ImageWindows &w) {
    each_element(w, [&w](const float *from, float *to, std::ptrdiff_t area) {
        const std::ptrdiff_t gap = w.gaps[1];
        if (!to) return;
        for (std::ptrdiff_t c = 0; c < w.channels; ++c) to[c * gap] += from[c * area];
    });
}

}  // namespace dpmodule
