// Layers that read each channel for itself, one vector of channels at a time.
#include "image_layers.hpp"

#include <algorithm>
#include <limits>

#include "layer_functions.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

struct Range {
    std::ptrdiff_t begin, end;
};

// The positions of window `index` that are inside the image.
DPMODULE_INLINE Range inside(const Axis &axis, std::ptrdiff_t index) {
    const std::ptrdiff_t begin = index * axis.stride - axis.pad, end = axis.size - begin;
    if (axis.dilate == 1) return {std::max<std::ptrdiff_t>(0, -begin), std::min(axis.kernel, end)};
    const std::ptrdiff_t before = begin < 0 ? (axis.dilate - 1 - begin) / axis.dilate : 0;
    return {before, std::min(axis.kernel, end > 0 ? (end - 1) / axis.dilate + 1 : 0)};
}

// Calls `work.at<Width>(c)` for vectors with all channels. The last vector may overlap the one before.
template <int Width, class Work>
DPMODULE_INLINE void all_channels(std::ptrdiff_t channels, const Work &work) {
    if (channels >= Width) {
        for (std::ptrdiff_t c = 0; c < channels; c += Width) work.template at<Width>(std::min(c, channels - Width));
    } else if constexpr (Width > 1) {
        all_channels<(Width > 4 ? 4 : 1)>(channels, work);
    }
}

// The windows of some consecutive pixels of a row.
struct Pixels {
    const ImageLayer &l;
    std::ptrdiff_t x;
    Range rows, columns;
    const float *begin;          // first window; may be outside of the image
    std::ptrdiff_t pitch, step;  // elements from one row or column of a window to the next
    const float *other;          // first pixel of the other operand, or null
    float *result;

    DPMODULE_INLINE const float *data(std::ptrdiff_t row, std::ptrdiff_t column, std::ptrdiff_t c) const {
        return begin + row * pitch + column * step + c;
    }

    // The sum that a window of a depthwise convolution begins with.
    template <int Width>
    DPMODULE_INLINE typename Vector<Width>::Floats bias(std::ptrdiff_t pixel, std::ptrdiff_t c) const {
        using V = Vector<Width>;
        const typename V::Floats found = l.bias ? V::load(l.bias + c) : typename V::Floats{};
        return other ? found + V::load(other + pixel * l.other_gap + c) : found;
    }

    template <int Width>
    DPMODULE_INLINE void put(std::ptrdiff_t pixel, std::ptrdiff_t c,
                             const typename Vector<Width>::Floats &value) const {
        Vector<Width>::store(result + pixel * l.result_gap + c, applied<Width>(l, value));
    }
};

// Windows of a depthwise convolution that are inside along x: they share the numbers that they read.
template <int Kernel, int Stride, int Count>
struct WholeWindows : Pixels {
    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        typename V::Floats sums[Count];
#pragma GCC unroll 4
        for (int n = 0; n < Count; ++n) sums[n] = bias<Width>(n, c);
        const float *from = data(rows.begin, 0, c), *weight = l.weight + rows.begin * Kernel * l.channels + c;
        for (std::ptrdiff_t i = rows.begin; i < rows.end; ++i, from += pitch, weight += Kernel * l.channels) {
#pragma GCC unroll 16
            for (int j = 0; j < (Count - 1) * Stride + Kernel; ++j) {
                const typename V::Floats now = V::load(from + j * step);
#pragma GCC unroll 4
                for (int n = 0; n < Count; ++n) {
                    const int tap = j - n * Stride;
                    if (tap >= 0 && tap < Kernel) sums[n] += V::load(weight + tap * l.channels) * now;
                }
            }
        }
#pragma GCC unroll 4
        for (int n = 0; n < Count; ++n) put<Width>(n, c, sums[n]);
    }
};

struct Depthwise : Pixels {
    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        typename V::Floats sum = bias<Width>(0, c);
        for (std::ptrdiff_t i = rows.begin; i < rows.end; ++i) {
            const float *weight = l.weight + i * l.x.kernel * l.channels + c;
            for (std::ptrdiff_t j = columns.begin; j < columns.end; ++j)
                sum += V::load(weight + j * l.channels) * V::load(data(i, j, c));
        }
        put<Width>(0, c, sum);
    }
};

struct MaxPool : Pixels {
    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        using Ints = typename V::Ints;
        typename V::Floats best = typename V::Floats{} - std::numeric_limits<float>::infinity();
        // compares bits, of which only NaN exceeds infinity, since gcc does not vectorize x != x
        Ints magnitude{};
        for (std::ptrdiff_t i = rows.begin; i < rows.end; ++i) {
            for (std::ptrdiff_t j = columns.begin; j < columns.end; ++j) {
                const typename V::Floats now = V::load(data(i, j, c));
                const Ints bits = reinterpret_cast<Ints>(now) & 0x7fffffff;
                best = now > best ? now : best;
                magnitude = bits > magnitude ? bits : magnitude;
            }
        }
        put<Width>(0, c, magnitude > 0x7f800000 ? reinterpret_cast<typename V::Floats>(magnitude) : best);
    }
};

struct MeanPool : Pixels {
    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        typename V::Floats sum{};
        for (std::ptrdiff_t i = rows.begin; i < rows.end; ++i) {
            typename V::Floats part{};
            for (std::ptrdiff_t j = columns.begin; j < columns.end; ++j) part += V::load(data(i, j, c));
            sum += part;
        }
        const std::ptrdiff_t found = (rows.end - rows.begin) * (columns.end - columns.begin);
        put<Width>(0, c, sum / static_cast<float>(l.block ? l.y.kernel * l.x.kernel : found));
    }
};

struct Elementwise : Pixels {
    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        const typename V::Floats now = V::load(data(0, 0, c));
        switch (l.kind) {
            case LayerKind::Sum: return put<Width>(0, c, now + V::load(other + c));
            case LayerKind::Scale: return put<Width>(0, c, now * V::load(other + c));
            case LayerKind::Affine: return put<Width>(0, c, now * V::load(l.weight + c) + V::load(l.bias + c));
            default: return put<Width>(0, c, now);
        }
    }
};

template <int Width, int Kernel, int Stride>
DPMODULE_INLINE std::ptrdiff_t whole_windows(const Pixels &first, std::ptrdiff_t count) {
    const ImageLayer &l = first.l;
    const std::ptrdiff_t x = first.x, end = (l.x.size + l.x.pad - Kernel) / Stride + 1;
    if (l.x.dilate != 1 || x * Stride < l.x.pad || x >= end) return 0;
    count = std::min(count, end - x);
    if (count < 4) {
        all_channels<Width>(l.channels, WholeWindows<Kernel, Stride, 1>{first});
        return 1;
    }
    all_channels<Width>(l.channels, WholeWindows<Kernel, Stride, 4>{first});
    return 4;
}

// Computes the first of `count` pixels of a row, or some more; returns how many.
template <int Width>
DPMODULE_INLINE std::ptrdiff_t compute(const Pixels &first, std::ptrdiff_t count) {
    const ImageLayer &l = first.l;
    std::ptrdiff_t done = 0;
    switch (l.kind) {
        case LayerKind::Depthwise:
            if (l.x.kernel == 3 && l.x.stride == 1) done = whole_windows<Width, 3, 1>(first, count);
            if (l.x.kernel == 3 && l.x.stride == 2) done = whole_windows<Width, 3, 2>(first, count);
            if (l.x.kernel == 5 && l.x.stride == 1) done = whole_windows<Width, 5, 1>(first, count);
            if (l.x.kernel == 5 && l.x.stride == 2) done = whole_windows<Width, 5, 2>(first, count);
            if (l.x.kernel == 7 && l.x.stride == 1) done = whole_windows<Width, 7, 1>(first, count);
            if (done) return done;
            all_channels<Width>(l.channels, Depthwise{first});
            return 1;
        case LayerKind::MaxPool: all_channels<Width>(l.channels, MaxPool{first}); return 1;
        case LayerKind::MeanPool: all_channels<Width>(l.channels, MeanPool{first}); return 1;
        default: break;
    }
    all_channels<Width>(l.channels, Elementwise{first});
    return 1;
}

struct Rows {
    template <int Width>
    DPMODULE_INLINE static void run(const ImageLayer &l, std::ptrdiff_t begin, std::ptrdiff_t end) {
        while (begin < end) {
            const std::ptrdiff_t row = begin / l.x.result, image = row / l.y.result, y = row % l.y.result;
            std::ptrdiff_t x = begin % l.x.result;
            const std::ptrdiff_t stop = std::min(l.x.result, x + end - begin), top = y * l.y.stride - l.y.pad;
            const float *line = l.data + (image * l.y.size + top) * l.x.size * l.data_gap;
            const std::ptrdiff_t other_step = l.kind == LayerKind::Scale ? 0 : l.other_gap;
            const float *other = l.other ? l.other + (other_step ? begin : image) * l.other_gap : nullptr;
            float *result = l.result + begin * l.result_gap;
            begin += stop - x;
            while (x < stop) {
                const float *window = line + (x * l.x.stride - l.x.pad) * l.data_gap;
                const Pixels first{l,
                                   x,
                                   inside(l.y, y),
                                   inside(l.x, x),
                                   window,
                                   l.y.dilate * l.x.size * l.data_gap,
                                   l.x.dilate * l.data_gap,
                                   other,
                                   result};
                const std::ptrdiff_t done = compute<Width>(first, stop - x);
                x += done;
                result += done * l.result_gap;
                if (other) other += done * other_step;
            }
        }
    }
};

}  // namespace

void compute_pixels(const ImageLayer &layer, std::ptrdiff_t begin, std::ptrdiff_t end) {
    run_best<Rows>(layer, begin, end);
}

}  // namespace dpmodule
