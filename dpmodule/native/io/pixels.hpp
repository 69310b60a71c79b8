// Pixels on their way into a batch: from bytes of red, green, blue, red, ... to a plane of numbers of each channel.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule::io {

struct Pixels {
    std::ptrdiff_t channels, height, width;
    const std::uint8_t *from;
    std::ptrdiff_t row_gap, pixel_gap;  // bytes from one row to the next, from one pixel to the next
    bool mirrored;                      // left to right
    const float *center, *factor;       // of each channel: a byte becomes (byte - center) * factor
    float *to;                          // (channels, height, width)
};

// Writes the numbers.
void put_pixels(const Pixels &pixels);

}  // namespace dpmodule::io
