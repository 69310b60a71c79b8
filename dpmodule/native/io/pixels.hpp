// Conversion of pixels for a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dpmodule::io {

// Conversion of an image for a batch: from interleaved bytes (red, green, blue, red, ...) to one float plane per channel.
struct Pixels {
    std::ptrdiff_t channels, height, width;
    const std::uint8_t *from;
    std::ptrdiff_t row_gap, pixel_gap;  // bytes between rows, and between pixels
    bool mirrored;                      // swap left and right
    const float *center, *factor;       // per channel: a byte becomes (byte - center) * factor
    float *to;                          // (channels, height, width)
};

inline void put_slowly(const Pixels &p, std::ptrdiff_t row, std::ptrdiff_t begin) noexcept {
    for (std::ptrdiff_t c = 0; c < p.channels; ++c) {
        const std::uint8_t *from = p.from + row * p.row_gap + c;
        float *to = p.to + (c * p.height + row) * p.width;
        for (std::ptrdiff_t x = begin; x < p.width; ++x) {
            to[p.mirrored ? p.width - 1 - x : x] =
                (static_cast<float>(from[x * p.pixel_gap]) - p.center[c]) * p.factor[c];
        }
    }
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

typedef std::int32_t FourPixels __attribute__((vector_size(16)));
typedef float FourFloats __attribute__((vector_size(16)));

// Load four pixels, each into the lower bytes of 32 bits.
template <int Gap>
FourPixels load_four(const std::uint8_t *from) noexcept {
    FourPixels found;
    if constexpr (Gap == 4) {
        std::memcpy(&found, from, sizeof found);
    } else {
        static_assert(Gap == 3);
        std::uint64_t low;
        std::uint32_t high;
        std::memcpy(&low, from, 8);
        std::memcpy(&high, from + 8, 4);
        found = FourPixels{static_cast<std::int32_t>(low), static_cast<std::int32_t>(low >> 24),
                           static_cast<std::int32_t>((low >> 48) | (static_cast<std::uint64_t>(high) << 16)),
                           static_cast<std::int32_t>(high >> 8)};
    }
    return found;
}

// Write the pixels of a row that can be taken four at a time; returns their number.
template <int Gap, int Channels, bool Mirrored>
std::ptrdiff_t put_fours(const Pixels &p, std::ptrdiff_t row) noexcept {
    const std::uint8_t *from = p.from + row * p.row_gap;
    float *to = p.to + row * p.width;
    const std::ptrdiff_t plane = p.height * p.width, width = p.width;
    FourFloats center[Channels], factor[Channels];
    for (int c = 0; c < Channels; ++c) {
        center[c] = FourFloats{} + p.center[c];
        factor[c] = FourFloats{} + p.factor[c];
    }
    std::ptrdiff_t x = 0;
    for (; x + 4 <= width; x += 4) {
        FourPixels four = load_four<Gap>(from + x * Gap);
        if constexpr (Mirrored) four = FourPixels{four[3], four[2], four[1], four[0]};
        float *const at = to + (Mirrored ? width - 4 - x : x);
#pragma GCC unroll 4
        for (int c = 0; c < Channels; ++c) {
            const FourFloats values = __builtin_convertvector((four >> 8 * c) & 255, FourFloats);
            const FourFloats found = (values - center[c]) * factor[c];
            std::memcpy(at + c * plane, &found, sizeof found);
        }
    }
    return x;
}

template <int Gap, int Channels>
std::ptrdiff_t put_fours(const Pixels &p, std::ptrdiff_t row) noexcept {
    return p.mirrored ? put_fours<Gap, Channels, true>(p, row) : put_fours<Gap, Channels, false>(p, row);
}

inline std::ptrdiff_t put_some(const Pixels &p, std::ptrdiff_t row) noexcept {
    if (p.channels == 3 && p.pixel_gap == 3) return put_fours<3, 3>(p, row);
    if (p.channels == 3 && p.pixel_gap == 4) return put_fours<4, 3>(p, row);
    return p.channels == 4 && p.pixel_gap == 4 ? put_fours<4, 4>(p, row) : 0;
}

#else

inline std::ptrdiff_t put_some(const Pixels &, std::ptrdiff_t) noexcept { return 0; }

#endif

// Convert the image.
inline void put_pixels(const Pixels &pixels) {
    for (std::ptrdiff_t row = 0; row < pixels.height; ++row) put_slowly(pixels, row, put_some(pixels, row));
}

}  // namespace dpmodule::io
