#include "pixels.hpp"

#include <cstring>

namespace dpmodule::io {
namespace {

void put_slowly(const Pixels &p, std::ptrdiff_t row, std::ptrdiff_t begin) noexcept {
    for (std::ptrdiff_t c = 0; c < p.channels; ++c) {
        const std::uint8_t *from = p.from + row * p.row_gap + c;
        float *to = p.to + (c * p.height + row) * p.width;
        for (std::ptrdiff_t x = begin; x < p.width; ++x) {
            to[p.mirrored ? p.width - 1 - x : x] = (static_cast<float>(from[x * p.pixel_gap]) - p.center[c]) * p.factor[c];
        }
    }
}

#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

typedef std::int32_t FourPixels __attribute__((vector_size(16)));
typedef float FourFloats __attribute__((vector_size(16)));

// Four pixels, each in the lower bytes of 32 bits.
template <int Gap>
FourPixels load_four(const std::uint8_t *from) noexcept {
    FourPixels found;
    if constexpr (Gap == 4) {
        std::memcpy(&found, from, sizeof found);
    } else {
        std::int32_t each[4];
        for (int i = 0; i < 4; ++i) std::memcpy(&each[i], from + i * Gap, 4);
        found = FourPixels{each[0], each[1], each[2], each[3]};
    }
    return found;
}

// Puts what pixels of a row can be taken four at a time; returns how many that were.
template <int Gap>
std::ptrdiff_t put_fours(const Pixels &p, std::ptrdiff_t row) noexcept {
    const std::uint8_t *from = p.from + row * p.row_gap;
    float *to = p.to + row * p.width;
    const std::ptrdiff_t plane = p.height * p.width;
    std::ptrdiff_t x = 0;
    for (; x + 4 < p.width; x += 4) {  // behind the last of them is another one: 32 bits of a pixel of 24 may be read
        FourPixels four = load_four<Gap>(from + x * Gap);
        if (p.mirrored) four = FourPixels{four[3], four[2], four[1], four[0]};
        float *at = to + (p.mirrored ? p.width - 4 - x : x);
        for (std::ptrdiff_t c = 0; c < p.channels; ++c, at += plane) {
            const FourFloats values = __builtin_convertvector((four >> static_cast<int>(8 * c)) & 255, FourFloats);
            const FourFloats found = (values - p.center[c]) * p.factor[c];
            std::memcpy(at, &found, sizeof found);
        }
    }
    return x;
}

std::ptrdiff_t put_some(const Pixels &p, std::ptrdiff_t row) noexcept {
    if (p.channels > 4 || p.channels > p.pixel_gap) return 0;
    if (p.pixel_gap == 4) return put_fours<4>(p, row);
    return p.pixel_gap == 3 ? put_fours<3>(p, row) : 0;
}

#else

std::ptrdiff_t put_some(const Pixels &, std::ptrdiff_t) noexcept { return 0; }

#endif

}  // namespace

bool put_pixels(const Pixels &pixels) noexcept {
    for (std::ptrdiff_t row = 0; row < pixels.height; ++row) put_slowly(pixels, row, put_some(pixels, row));
    return true;
}

}  // namespace dpmodule::io
