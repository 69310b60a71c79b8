// Layers that read each channel for itself, one vector of channels at a time.
#include "image_layers.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "layer_functions.hpp"
#include "small.hpp"
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

// The windows of some consecutive pixels of a row.
struct Pixels {
    const ImageLayer &l;
    std::ptrdiff_t y, x;
    const float *begin;  // first window; may be outside of the image
    const float *other;  // first pixel of the other operand, or null
    float *result;
    Range rows = inside(l.y, y), columns = inside(l.x, x);
    // elements from one row or column of a window to the next
    std::ptrdiff_t pitch = l.y.dilate * l.x.size * l.data_gap, step = l.x.dilate * l.data_gap;

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

// The channels that a vector of filters of a depthwise or grouped convolution reads; `IsGroup` if they are one group.
template <int Width, bool Groups, bool IsGroup = false>
struct Channels {
    using V = Vector<Width>;
    std::ptrdiff_t first, count;  // the channels of each filter are read one after the other
    // for each filter, or for all of a group, its next channel, counted from the first one
    std::conditional_t<IsGroup, std::ptrdiff_t, typename V::Ints> places{};

    DPMODULE_INLINE Channels(const ImageLayer &l, std::ptrdiff_t filter) : first(filter), count(1) {
        if constexpr (IsGroup) {
            count = l.channels;
            first = filter / Width * count;
        } else if constexpr (Groups) {
            count = l.channels;
            const int power = __builtin_ctzll(static_cast<unsigned long long>(l.filters));
            // all filters read the `Width` channels from here on, which are in the pixel
            first = std::min((filter >> power) * count, l.groups * count - Width);
            typename V::Ints lanes{};
            for (int i = 0; i < Width; ++i) lanes[i] = i;
            places = (lanes + static_cast<std::int32_t>(filter)) >> power;
            places = places * static_cast<std::int32_t>(count) - static_cast<std::int32_t>(first);
        }
    }

    DPMODULE_INLINE typename V::Floats load(const float *from) const {
        if constexpr (IsGroup) {
            return typename V::Floats{} + from[places];
        } else if constexpr (Groups && Width > 1) {
            return chosen(V::load(from), places);
        } else {
            return V::load(from);
        }
    }
};

// Consecutive windows of a row of a depthwise or grouped convolution: they share the numbers that they read.
template <int Kernel, int Stride, bool Groups, int Count>
struct SharingWindows : Pixels {
    static constexpr int kColumns = (Count - 1) * Stride + Kernel;
    std::uint32_t inside;  // a bit for each column, set unless it is padding

    DPMODULE_INLINE explicit SharingWindows(const Pixels &first) : Pixels(first) {
        const auto bits = [](std::ptrdiff_t count) {
            return (1u << std::clamp<std::ptrdiff_t>(count, 0, kColumns)) - 1;
        };
        const std::ptrdiff_t left = x * Stride - l.x.pad;
        inside = bits(l.x.size - left) & ~bits(-left);
    }

    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        if constexpr (Groups && Width == 8) {  // to read a number into all of a vector is faster than to choose places
            if (l.filters == Width) return sum_all<Width, true>(c);
        }
        sum_all<Width, false>(c);
    }

    template <int Width, bool IsGroup>
    DPMODULE_INLINE void sum_all(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        typename V::Floats sums[Count];
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n) sums[n] = bias<Width>(n, c);
        const std::ptrdiff_t filters = l.groups * l.filters;
        Channels<Width, Groups, IsGroup> channels(l, c);
        for (std::ptrdiff_t k = 0; k < channels.count; ++k, channels.places += 1) {
            const float *from = data(rows.begin, 0, channels.first);
            const float *weight = l.weight + (k * l.y.kernel + rows.begin) * Kernel * filters + c;
            for (std::ptrdiff_t i = rows.begin; i < rows.end; ++i, from += pitch, weight += Kernel * filters) {
                typename V::Floats factors[Kernel];
#pragma GCC unroll 8
                for (int tap = 0; tap < Kernel; ++tap) factors[tap] = V::load(weight + tap * filters);
#pragma GCC unroll 24
                for (int j = 0; j < kColumns; ++j) {
                    if (!(inside >> j & 1)) continue;
                    const typename V::Floats now = channels.load(from + j * step);
#pragma GCC unroll 8
                    for (int n = 0; n < Count; ++n) {
                        const int tap = j - n * Stride;
                        if (tap >= 0 && tap < Kernel) sums[n] += factors[tap] * now;
                    }
                }
            }
        }
        if (l.function == LayerFunction::Relu) {
#pragma GCC unroll 8
            for (int n = 0; n < Count; ++n) sums[n] = sums[n] > 0.0f ? sums[n] : typename V::Floats{};
        } else if (l.function == LayerFunction::Clamp) {
#pragma GCC unroll 8
            for (int n = 0; n < Count; ++n) sums[n] = V::between(sums[n], l.low, l.high);
        }
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n) V::store(result + n * l.result_gap + c, sums[n]);
    }
};

template <bool Groups>
struct OneWindow : Pixels {
    template <int Width>
    DPMODULE_INLINE static void run(const Pixels &first) {
        all_vectors<Width>(first.l.groups * first.l.filters, OneWindow{first});
    }

    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        typename V::Floats sum = bias<Width>(0, c);
        const std::ptrdiff_t filters = l.groups * l.filters;
        Channels<Width, Groups> channels(l, c);
        for (std::ptrdiff_t k = 0; k < channels.count; ++k, channels.places += 1) {
            for (std::ptrdiff_t i = rows.begin; i < rows.end; ++i) {
                const float *weight = l.weight + (k * l.y.kernel + i) * l.x.kernel * filters + c;
                for (std::ptrdiff_t j = columns.begin; j < columns.end; ++j)
                    sum += V::load(weight + j * filters) * channels.load(data(i, j, channels.first));
            }
        }
        put<Width>(0, c, sum);
    }
};

// Writes the first number of all parts, then their second one.
DPMODULE_INLINE void shuffle(const float *from, std::ptrdiff_t parts, std::ptrdiff_t size, float *to) {
    std::ptrdiff_t i = 0;
    for (; parts == 2 && i + 4 <= size; i += 4) {
        const Four one = four(from + i), two = four(from + size + i);
        const Four low = DPMODULE_MIX(one, two, 0, 4, 1, 5), high = DPMODULE_MIX(one, two, 2, 6, 3, 7);
        std::memcpy(to + 2 * i, &low, sizeof low);
        std::memcpy(to + 2 * i + 4, &high, sizeof high);
    }
    for (; i < size; ++i) {
        for (std::ptrdiff_t part = 0; part < parts; ++part) to[i * parts + part] = from[part * size + i];
    }
}

// The maximum of numbers, which is NaN if one of them is.
template <int Width>
struct Largest {
    using V = Vector<Width>;
    using Ints = typename V::Ints;
    typename V::Floats best = typename V::Floats{} + kBegin;
    // compares bits, of which only NaN exceeds infinity, since gcc does not vectorize x != x
    Ints magnitude{};

    static constexpr float kBegin = -std::numeric_limits<float>::infinity();

    DPMODULE_INLINE void add(const typename V::Floats &now) {
        const Ints bits = reinterpret_cast<Ints>(now) & 0x7fffffff;
        best = now > best ? now : best;
        magnitude = bits > magnitude ? bits : magnitude;
    }

    DPMODULE_INLINE typename V::Floats value() const {
        return magnitude > 0x7f800000 ? reinterpret_cast<typename V::Floats>(magnitude) : best;
    }
};

template <int Width>
struct Total {
    typename Vector<Width>::Floats sum{};

    static constexpr float kBegin = 0;

    DPMODULE_INLINE void add(const typename Vector<Width>::Floats &now) { sum += now; }
    DPMODULE_INLINE typename Vector<Width>::Floats value() const { return sum; }
};

// The number of positions of a window that an average counts.
DPMODULE_INLINE std::ptrdiff_t counted(const ImageLayer &l, const Axis &axis, std::ptrdiff_t index) {
    const std::ptrdiff_t begin = index * axis.stride - axis.pad;
    if (l.block) return std::min(axis.kernel, axis.size + axis.pad - begin);
    return std::min(begin + axis.kernel, axis.size) - std::max<std::ptrdiff_t>(begin, 0);
}

template <template <int> class Fold>
struct Pool : Pixels {
    float divisor;

    template <int Width>
    DPMODULE_INLINE void all_channels() const {
        constexpr int kSeveral = 4;  // vectors at a time, or the loops over a window would take most of the time
        std::ptrdiff_t c = 0;
        for (; c + kSeveral * Width <= l.channels; c += kSeveral * Width) several<Width, kSeveral>(c);
        if (c == 0) return all_vectors<Width>(l.channels, *this);
        for (; c < l.channels; c += Width) at<Width>(std::min(c, l.channels - Width));
    }

    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        several<Width, 1>(c);
    }

    template <int Width, int Count>
    DPMODULE_INLINE void several(std::ptrdiff_t c) const {
        Fold<Width> all[Count];
        for (std::ptrdiff_t i = rows.begin; i < rows.end; ++i) {
            Fold<Width> row[Count];
            const float *from = data(i, columns.begin, c);
            for (std::ptrdiff_t j = columns.begin; j < columns.end; ++j, from += step) {
#pragma GCC unroll 4
                for (int v = 0; v < Count; ++v) row[v].add(Vector<Width>::load(from + v * Width));
            }
#pragma GCC unroll 4
            for (int v = 0; v < Count; ++v) all[v].add(row[v].value());
        }
#pragma GCC unroll 4
        for (int v = 0; v < Count; ++v) {
            const auto found = all[v].value();
            put<Width>(0, c + v * Width, l.kind == LayerKind::MeanPool ? found / divisor : found);
        }
    }
};

struct Elementwise : Pixels {
    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        typename V::Floats now = V::load(data(0, 0, c));
        switch (l.kind) {
            case LayerKind::Sum: now += V::load(other + c); break;
            case LayerKind::Scale: now *= V::load(other + c); break;
            case LayerKind::Affine: now = now * V::load(l.weight + c) + V::load(l.bias + c); break;
            default: break;
        }
        put<Width>(0, c, now);
    }
};

// The least vector of windows that share numbers: narrower ones would take half of the time to compile, and x86
// processors without AVX2 are older than ten years.
#if defined(__x86_64__)
constexpr int kSharing = 8;
#else
constexpr int kSharing = 4;
#endif

// Computes `count` pixels of a row.
template <int Width, int Kernel, int Stride, bool Groups, int Count = 8>
DPMODULE_INLINE void sharing_windows(Pixels &next, std::ptrdiff_t count) {
    const ImageLayer &l = next.l;
    for (; count >= Count; count -= Count) {
        all_vectors<Width, kSharing>(l.groups * l.filters, SharingWindows<Kernel, Stride, Groups, Count>(next));
        next.x += Count;
        next.begin += Count * Stride * l.data_gap;
        next.result += Count * l.result_gap;
        if (next.other) next.other += Count * l.other_gap;
    }
    if constexpr (Count > 1) sharing_windows<Width, Kernel, Stride, Groups, Count / 2>(next, count);
}

template <int Width>
DPMODULE_INLINE void compute_one(const Pixels &first) {
    const ImageLayer &l = first.l;
    switch (l.kind) {
        case LayerKind::Depthwise: return OneWindow<false>::run<Width>(first);
        case LayerKind::Grouped: return OneWindow<true>::run<Width>(first);
        case LayerKind::MaxPool: return Pool<Largest>{first, 1}.template all_channels<Width>();
        case LayerKind::MeanPool: {
            const std::ptrdiff_t divisor = counted(l, l.y, first.y) * counted(l, l.x, first.x);
            return Pool<Total>{first, static_cast<float>(divisor)}.template all_channels<Width>();
        }
        case LayerKind::Shuffle: return shuffle(first.begin, l.groups, l.channels, first.result);
        default: return all_vectors<Width>(l.channels, Elementwise{first});
    }
}

// Computes the first of `count` pixels of a row, or all of them; returns how many.
template <int Width, int Kernel, int Stride, bool Groups>
DPMODULE_INLINE std::ptrdiff_t compute(const Pixels &first, std::ptrdiff_t count) {
    const ImageLayer &l = first.l;
    const std::ptrdiff_t filters = l.groups * l.filters;
    if constexpr (Kernel == 0) {
        compute_one<Width>(first);
        return 1;
    } else if (Width >= kSharing && filters >= kSharing && l.x.dilate == 1) {
        Pixels next = first;
        sharing_windows<Width, Kernel, Stride, Groups>(next, count);
        if (l.function > LayerFunction::Clamp)
            run_best<InPlace>(Applied{l.function, l.low, l.high}, first.result, count, l.result_gap, filters);
        return count;
    }
    run_best<OneWindow<Groups>>(first);  // not inlined, or each size would compile it
    return 1;
}

// The windows of rows of one channel, in the usual order: first over the rows of each window, for all columns, then over
// its columns.

template <template <int> class Fold>
struct FoldRows {
    const float *data;
    std::ptrdiff_t rows, pitch;
    float *to;

    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t column) const {
        Fold<Width> all;
        for (std::ptrdiff_t i = 0; i < rows; ++i) all.add(Vector<Width>::load(data + i * pitch + column));
        Vector<Width>::store(to + column, all.value());
    }
};

template <template <int> class Fold>
struct FoldColumns {
    const float *line;  // position p is at p % stride * gap + p / stride
    std::ptrdiff_t kernel, stride, gap;
    const float *counts;  // the divisors, or null
    float rows;           // their factor
    float *result;

    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t x) const {
        using V = Vector<Width>;
        Fold<Width> all;
        for (std::ptrdiff_t first = 0; first < std::min(stride, kernel); ++first) {
            const float *from = line + first * gap + x;
            for (std::ptrdiff_t j = first; j < kernel; j += stride) all.add(V::load(from++));
        }
        V::store(result + x, counts ? all.value() / (V::load(counts + x) * rows) : all.value());
    }
};

// Writes position p of a line to p % stride * gap + p / stride, for the first `count` of p / stride; reads and writes up
// to seven more.
DPMODULE_INLINE void spread(const float *line, std::ptrdiff_t count, std::ptrdiff_t stride, std::ptrdiff_t phases,
                            std::ptrdiff_t gap, float *to) {
    if (stride == 2) {
        for (std::ptrdiff_t i = 0; i < count; i += 4) {
            Four parts[2];
            std::memcpy(parts, line + 2 * i, sizeof parts);
            const Four even = DPMODULE_MIX(parts[0], parts[1], 0, 2, 4, 6);
            const Four odd = DPMODULE_MIX(parts[0], parts[1], 1, 3, 5, 7);
            std::memcpy(to + i, &even, sizeof even);
            std::memcpy(to + gap + i, &odd, sizeof odd);
        }
        return;
    }
    for (std::ptrdiff_t phase = 0; phase < phases; ++phase) {
        for (std::ptrdiff_t i = 0; i < count; ++i) to[phase * gap + i] = line[i * stride + phase];
    }
}

template <int Width, template <int> class Fold>
DPMODULE_INLINE void pool_rows(const ImageLayer &l, std::ptrdiff_t begin, std::ptrdiff_t end) {
    float line[kMaxLine], parts[kMaxLine], counts[kMaxLine];
    const bool divides = l.kind == LayerKind::MeanRows;
    const std::ptrdiff_t phases = std::min(l.x.stride, l.x.kernel);
    const std::ptrdiff_t positions = l.x.result - 1 + (l.x.kernel - 1) / l.x.stride + 1, gap = positions + 8;
    std::fill(line, line + std::max(positions * l.x.stride, l.x.pad + l.x.size) + 16, Fold<1>::kBegin);
    for (std::ptrdiff_t x = 0; divides && x < l.x.result; ++x) counts[x] = static_cast<float>(counted(l, l.x, x));
    while (begin < end) {
        const std::ptrdiff_t row = begin / l.x.result, plane = row / l.y.result, y = row % l.y.result;
        const std::ptrdiff_t x = begin % l.x.result, count = std::min(l.x.result - x, end - begin);
        const Range rows = inside(l.y, y);
        const float *data = l.data + (plane * l.y.size + y * l.y.stride - l.y.pad + rows.begin) * l.x.size;
        all_vectors<Width>(l.x.size, FoldRows<Fold>{data, rows.end - rows.begin, l.x.size, line + l.x.pad});
        if (l.x.stride > 1) spread(line, positions, l.x.stride, phases, gap, parts);
        const float *from = l.x.stride > 1 ? parts : line;
        const float divisor = static_cast<float>(counted(l, l.y, y));
        all_vectors<Width>(count, FoldColumns<Fold>{from + x, l.x.kernel, l.x.stride, gap,
                                                    divides ? counts + x : nullptr, divisor, l.result + begin});
        begin += count;
    }
}

// Layers whose windows have this size and share the numbers that they read, or all other layers if `Kernel` is 0. A
// function for all sizes would take four times as long to compile.
template <int Kernel = 0, int Stride = 0, bool Groups = false>
struct Rows {
    template <int Width>
    DPMODULE_INLINE static void run(const ImageLayer &l, std::ptrdiff_t begin, std::ptrdiff_t end) {
        if constexpr (Kernel == 0) {
            if (l.kind == LayerKind::MaxRows) return pool_rows<Width, Largest>(l, begin, end);
            if (l.kind == LayerKind::MeanRows) return pool_rows<Width, Total>(l, begin, end);
        }
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
                const Pixels first{l, y, x, window, other, result};
                const std::ptrdiff_t done = compute<Width, Kernel, Stride, Groups>(first, stop - x);
                x += done;
                result += done * l.result_gap;
                if (other) other += done * other_step;
            }
        }
    }
};

void relayout(const ImageLayer &l, std::ptrdiff_t begin, std::ptrdiff_t end) {
    const std::ptrdiff_t pixels = l.y.size * l.x.size;
    while (begin < end) {
        const std::ptrdiff_t image = begin / pixels, first = begin % pixels;
        const std::ptrdiff_t stop = std::min(pixels, first + end - begin), before = image * pixels * l.channels;
        change_pixels({const_cast<float *>(l.data) + before, l.result + before, 1, l.channels, pixels}, first, stop,
                      true);
        begin += stop - first;
    }
}

}  // namespace

void compute_pixels(const ImageLayer &layer, std::ptrdiff_t begin, std::ptrdiff_t end) {
    const auto is = [&](LayerKind kind, std::ptrdiff_t kernel, std::ptrdiff_t stride) {
        return layer.kind == kind && layer.x.kernel == kernel && layer.x.stride == stride;
    };
    if (layer.kind == LayerKind::Relayout) return relayout(layer, begin, end);
    if (is(LayerKind::Depthwise, 3, 1)) return run_best<Rows<3, 1>>(layer, begin, end);
    if (is(LayerKind::Depthwise, 3, 2)) return run_best<Rows<3, 2>>(layer, begin, end);
    if (is(LayerKind::Depthwise, 5, 1)) return run_best<Rows<5, 1>>(layer, begin, end);
    if (is(LayerKind::Depthwise, 5, 2)) return run_best<Rows<5, 2>>(layer, begin, end);
    if (is(LayerKind::Depthwise, 7, 1)) return run_best<Rows<7, 1>>(layer, begin, end);
    if (is(LayerKind::Grouped, 1, 1)) return run_best<Rows<1, 1, true>>(layer, begin, end);
    if (is(LayerKind::Grouped, 3, 1)) return run_best<Rows<3, 1, true>>(layer, begin, end);
    if (is(LayerKind::Grouped, 3, 2)) return run_best<Rows<3, 2, true>>(layer, begin, end);
    if (is(LayerKind::Grouped, 5, 1)) return run_best<Rows<5, 1, true>>(layer, begin, end);
    run_best<Rows<>>(layer, begin, end);
}

}  // namespace dpmodule
