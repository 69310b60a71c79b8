// As many channels at a time as a vector holds; the last ones of a number that does not divide go over some again.
#include "pooling.hpp"

#if defined(__GNUC__)

#include <algorithm>
#include <limits>

#include "vector/functions.hpp"
#include "vector/instructions.hpp"

namespace dpmodule {
namespace {

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
    Ints
        magnitude{};  // as bits, of which only NaN has more than infinity; gcc compares floats with themselves one by one
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

template <int Width>
DPMODULE_INLINE void all_windows(const Pooling &p) {
    float *to = p.result;
    for (std::ptrdiff_t n = 0; n < p.images; ++n) {
        const float *image = p.data + n * p.sizes[0] * p.sizes[1] * p.channels;
        for (std::ptrdiff_t y = 0; y < p.counts[0]; ++y) {
            const Range rows = covered(p, 0, y);
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
}

using Windows = void (*)(const Pooling &);

void plain(const Pooling &pooling) { all_windows<4>(pooling); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void avx2(const Pooling &pooling) { all_windows<8>(pooling); }
__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) void avx512(const Pooling &pooling) {
    all_windows<16>(pooling);
}

Windows choose() {
    switch (vector::best_instructions()) {
        case vector::Instructions::Avx512: return avx512;
        case vector::Instructions::Avx2: return avx2;
        default: return plain;
    }
}
#else
Windows choose() { return plain; }
#endif

}  // namespace

bool max_pool(const Pooling &pooling) {
    static const Windows windows = choose();
    windows(pooling);
    return true;
}

}  // namespace dpmodule

#endif
