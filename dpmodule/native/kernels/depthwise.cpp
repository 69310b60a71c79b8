// The gradients of data and weight are computed together, a vector of channels and a row of windows at a time: the sums
// of a row of taps stay in registers.
#include "depthwise.hpp"

#include <algorithm>
#include <vector>

#include "parallel.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kLine = 16;      // floats of a cache line, which threads do not share
constexpr std::ptrdiff_t kGrain = 65536;  // products for which another thread pays

// A weight (channels, taps) as (taps, channels).
std::vector<float> packed(const DepthwiseSizes &size, const float *weight) {
    const std::ptrdiff_t taps = size.y.kernel * size.x.kernel;
    std::vector<float> found(taps * size.channels);
    for (std::ptrdiff_t c = 0; c < size.channels; ++c) {
        for (std::ptrdiff_t tap = 0; tap < taps; ++tap) found[tap * size.channels + c] = *weight++;
    }
    return found;
}

std::ptrdiff_t threads_for(const DepthwiseSizes &size) {
    const std::ptrdiff_t pixels = size.images * size.y.result * size.x.result;
    const std::ptrdiff_t most = pixels * size.channels * size.y.kernel * size.x.kernel / kGrain;
    return std::clamp<std::ptrdiff_t>(most, 1, std::max(size.threads, 1));
}

// A row of windows and one row of their taps. For stride 1, both operands stay in registers between windows.
template <int Kernel>
struct Row {
    const DepthwiseSizes &size;
    const float *data, *grad, *weight;
    float *for_data, *sums;

    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t c) const {
        using V = Vector<Width>;
        const Axis &x = size.x;
        const std::ptrdiff_t gap = size.channels;
        typename V::Floats factors[Kernel], found[Kernel];
#pragma GCC unroll 8
        for (int tap = 0; tap < Kernel; ++tap) {
            factors[tap] = V::load(weight + tap * gap + c);
            found[tap] = V::load(sums + tap * gap + c);
        }
        if (x.stride == 1 && x.dilate == 1 && x.result >= Kernel && x.size >= Kernel) {
            roll<Width>(c, factors, found);
        } else {
            scatter<Width>(c, factors, found);
        }
#pragma GCC unroll 8
        for (int tap = 0; tap < Kernel; ++tap) V::store(sums + tap * gap + c, found[tap]);
    }

    // All windows that read a column are computed with it.
    template <int Width>
    DPMODULE_INLINE void roll(std::ptrdiff_t c, const typename Vector<Width>::Floats (&factors)[Kernel],
                              typename Vector<Width>::Floats (&found)[Kernel]) const {
        using V = Vector<Width>;
        const std::ptrdiff_t gap = size.channels, pad = size.x.pad, windows = size.x.result;
        typename V::Floats grads[Kernel];  // of the windows whose first to last tap is the column
        const auto load = [&](std::ptrdiff_t window) __attribute__((always_inline)) {
            return window >= 0 && window < windows ? V::load(grad + window * gap + c) : typename V::Floats{};
        };
#pragma GCC unroll 8
        for (int tap = 1; tap < Kernel; ++tap) grads[tap - 1] = load(pad - tap);
        for (std::ptrdiff_t column = 0; column < size.x.size; ++column) {
#pragma GCC unroll 8
            for (int tap = Kernel - 1; tap > 0; --tap) grads[tap] = grads[tap - 1];
            grads[0] = load(column + pad);
            const typename V::Floats now = V::load(data + column * gap + c);
            typename V::Floats sum = V::load(for_data + column * gap + c);
#pragma GCC unroll 8
            for (int tap = 0; tap < Kernel; ++tap) {
                found[tap] += now * grads[tap];
                sum += factors[tap] * grads[tap];
            }
            V::store(for_data + column * gap + c, sum);
        }
    }

    template <int Width>
    DPMODULE_INLINE void scatter(std::ptrdiff_t c, const typename Vector<Width>::Floats (&factors)[Kernel],
                                 typename Vector<Width>::Floats (&found)[Kernel]) const {
        using V = Vector<Width>;
        const Axis &x = size.x;
        const std::ptrdiff_t gap = size.channels;
        for (std::ptrdiff_t window = 0; window < x.result; ++window) {
            const typename V::Floats now = V::load(grad + window * gap + c);
            const std::ptrdiff_t first = window * x.stride - x.pad;
#pragma GCC unroll 8
            for (int tap = 0; tap < Kernel; ++tap) {
                const std::ptrdiff_t column = first + tap * x.dilate, at = column * gap + c;
                if (column < 0 || column >= x.size) continue;
                found[tap] += now * V::load(data + at);
                V::store(for_data + at, V::load(for_data + at) + now * factors[tap]);
            }
        }
    }
};

template <int Width, class Work>
DPMODULE_INLINE void each_channel(std::ptrdiff_t begin, std::ptrdiff_t end, const Work &work) {
    for (; begin + Width <= end; begin += Width) work.template at<Width>(begin);
    if constexpr (Width > 1) each_channel<(Width > 4 ? 4 : 1)>(begin, end, work);
}

template <int Kernel>
struct Channels {
    template <int Width>
    DPMODULE_INLINE static void run(const DepthwiseGradients &g, const float *weight, float *sums, std::ptrdiff_t begin,
                                    std::ptrdiff_t end) {
        const DepthwiseSizes &size = g.size;
        const Axis &y = size.y;
        const std::ptrdiff_t line = size.x.size * size.channels, taps = Kernel * size.channels;
        std::ptrdiff_t clear = 0;  // first row of the data's gradient that is not written yet
        const auto clear_to = [&](std::ptrdiff_t row) {
            for (; clear < row; ++clear) {
                for (std::ptrdiff_t at = 0; at < line; at += size.channels)
                    std::fill(g.for_data + clear * line + at + begin, g.for_data + clear * line + at + end, 0.0f);
            }
        };
        for (std::ptrdiff_t row = 0; row < size.images * y.result; ++row) {
            const float *grad = g.grad + row * size.x.result * size.channels;
            for (std::ptrdiff_t tap = 0; tap < y.kernel; ++tap) {
                const std::ptrdiff_t from = row % y.result * y.stride - y.pad + tap * y.dilate;
                if (from < 0 || from >= y.size) continue;
                clear_to(row / y.result * y.size + from + 1);
                const std::ptrdiff_t at = (row / y.result * y.size + from) * line;
                each_channel<Width>(
                    begin, end,
                    Row<Kernel>{size, g.data + at, grad, weight + tap * taps, g.for_data + at, sums + tap * taps});
            }
        }
        clear_to(size.images * y.size);
    }
};

}  // namespace

void depthwise(const Depthwise &run) {
    const DepthwiseSizes &size = run.size;
    const std::vector<float> weight = packed(size, run.weight);
    ImageLayer layer{};
    layer.kind = LayerKind::Depthwise, layer.images = size.images, layer.groups = 1;
    layer.channels = layer.filters = layer.data_gap = layer.result_gap = size.channels;
    layer.y = size.y, layer.x = size.x;
    layer.data = run.data, layer.weight = weight.data(), layer.bias = run.bias, layer.result = run.result;
    parallel_ranges(size.images * size.y.result * size.x.result, threads_for(size),
                    [&](std::ptrdiff_t begin, std::ptrdiff_t end) { compute_pixels(layer, begin, end); });
}

void depthwise_gradients(const DepthwiseGradients &run) {
    const DepthwiseSizes &size = run.size;
    const std::vector<float> weight = packed(size, run.weight);
    std::vector<float> sums(weight.size());
    parallel_ranges((size.channels + kLine - 1) / kLine, threads_for(size),
                    [&](std::ptrdiff_t first, std::ptrdiff_t last) {
                        const std::ptrdiff_t begin = first * kLine, end = std::min(last * kLine, size.channels);
                        const auto compute = [&](auto kernel) {
                            run_best<decltype(kernel)>(run, weight.data(), sums.data(), begin, end);
                        };
                        if (size.x.kernel == 3) return compute(Channels<3>{});
                        if (size.x.kernel == 5) return compute(Channels<5>{});
                        compute(Channels<7>{});
                    });
    const std::ptrdiff_t taps = size.y.kernel * size.x.kernel;
    for (std::ptrdiff_t at = 0; at < taps * size.channels; ++at)
        run.for_weight[at] = sums[at % taps * size.channels + at / taps];
}

}  // namespace dpmodule
