// As many channels at a time as a vector holds; the last ones of a number that does not divide go over some again.
#include "pooling.hpp"

#include <algorithm>
#include <limits>

#include "team.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kLeastRead = 131072;  // numbers that are worth a thread

// The part of an image that a window covers along one axis.
struct Range {
    std::ptrdiff_t begin, end;
};

DPMODULE_INLINE Range covered(const Pooling &p, int axis, std::ptrdiff_t window) {
    const std::ptrdiff_t begin = window * p.stride[axis] - p.pad[axis];
    return {std::max<std::ptrdiff_t>(begin, 0), std::min(begin + p.kernel[axis], p.sizes[axis])};
}

template <int Width>
DPMODULE_INLINE void some_channels(const Pooling &p, const float *image, Range rows, Range columns, float *to,
                                   std::ptrdiff_t count) {
    using V = Vector<Width>;
    using Ints = typename V::Ints;
    typename V::Floats best = typename V::Floats{} - std::numeric_limits<float>::infinity();
    // as bits, of which only NaN has more than infinity; gcc compares floats with themselves one by one
    Ints magnitude{};
    for (std::ptrdiff_t y = rows.begin; y < rows.end; ++y) {
        for (std::ptrdiff_t x = columns.begin; x < columns.end; ++x) {
            const typename V::Floats now = V::load(image + (y * p.sizes[1] + x) * p.channels, count);
            const Ints bits = reinterpret_cast<Ints>(now) & 0x7fffffff;
            best = now > best ? now : best;
            magnitude = bits > magnitude ? bits : magnitude;
        }
    }
    best = magnitude > 0x7f800000 ? reinterpret_cast<typename V::Floats>(magnitude) : best;
    V::store(to, best, count);
}

struct WindowsOfRows {
    // The windows of some rows, those of all images counted one after the other.
    template <int Width>
    DPMODULE_INLINE static void run(const Pooling &p, std::ptrdiff_t row, std::ptrdiff_t end) {
        float *to = p.result + row * p.counts[1] * p.channels;
        for (; row < end; ++row) {
            const float *image = p.data + row / p.counts[0] * p.sizes[0] * p.sizes[1] * p.channels;
            const Range rows = covered(p, 0, row % p.counts[0]);
            for (std::ptrdiff_t x = 0; x < p.counts[1]; ++x, to += p.channels) {
                const Range columns = covered(p, 1, x);
                const std::ptrdiff_t last = std::max<std::ptrdiff_t>(p.channels - Width, 0);
                for (std::ptrdiff_t c = 0; c < last; c += Width) {
                    some_channels<Width>(p, image + c, rows, columns, to + c, Width);
                }
                some_channels<Width>(p, image + last, rows, columns, to + last, p.channels);
            }
        }
    }
};

}  // namespace

void max_pool(const Pooling &pooling) {
    const std::ptrdiff_t rows = pooling.images * pooling.counts[0];
    const std::ptrdiff_t read = rows * pooling.counts[1] * pooling.channels * pooling.kernel[0] * pooling.kernel[1];
    in_ranges(rows, std::min({std::ptrdiff_t{pooling.threads}, rows, read / kLeastRead}),
              [&](std::ptrdiff_t begin, std::ptrdiff_t end) { run_best<WindowsOfRows>(pooling, begin, end); });
}

}  // namespace dpmodule
