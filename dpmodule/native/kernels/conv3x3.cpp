// Each loaded element is used for all three columns of the windows and for several rows, since with few filters loads
// take as long as multiplications.
#include "conv3x3.hpp"

#if defined(__x86_64__)

#include <algorithm>
#include <vector>

#include "parallel.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kNear = 6144;   // elements of a weight that fit in the L1 cache with rows of the data
constexpr std::ptrdiff_t kBand = 65536;  // elements of the data that fit in the L2 cache

// Calls body(index in the weight, index in the kernels' order (blocks, 3, channels, 3, lanes)) for all elements.
template <class Body>
void each_weight(const Conv3x3Sizes &size, const StridedWeight &weight, const Body &body) {
    const std::ptrdiff_t lanes = conv3x3_lanes();
    for (std::ptrdiff_t filter = 0; filter < size.filters; ++filter) {
        for (std::ptrdiff_t channel = 0; channel < size.channels; ++channel) {
            float *const from = weight.numbers + filter * weight.filter + channel * weight.channel;
            for (std::ptrdiff_t row = 0; row < 3; ++row) {
                std::ptrdiff_t at = ((filter / lanes * 3 + row) * size.channels + channel) * 3 * lanes + filter % lanes;
                for (std::ptrdiff_t column = 0; column < 3; ++column, at += lanes)
                    body(from[row * weight.row + column * weight.column], at);
            }
        }
    }
}

std::ptrdiff_t numbers(const Conv3x3Sizes &size) { return 9 * size.channels * size.filters; }

// Data positions for the rows or columns of a tile. `Step` is the stride, `Spread` the distance of the data; one of
// them is 1. `Odd`: the tile begins between data.
template <int Count, int Step, int Spread, int Odd>
struct Reach {
    static constexpr int kFirst = Spread == 1 ? -1 : 0;
    static constexpr int kLast = Spread == 1 ? Step * (Count - 1) + 1 : (Count + Odd) / 2;

    // The window position at which a result reads a data element; outside 0 to 2 if it does not.
    static constexpr int tap(int number, int result) { return Spread * number + 1 - Step * result - Odd; }
};

// Sums of some rows and columns of the result, for a vector of filters, with an optional border left and right.
template <int Width, int Rows, int Columns, int Step, int Spread, int Odd, bool Left, bool Right>
struct Tile {
    using Floats = typename Vector<Width>::Floats;
    using Down = Reach<Rows, Step, Spread, Odd>;
    using Across = Reach<Columns, Step, Spread, 0>;

    static constexpr int kFirst = Left && Spread == 1 ? 0 : Across::kFirst;
    static constexpr int kLast = Right && Step == 1 ? Across::kLast - 1 : Across::kLast;

    const Conv3x3Sizes &size;
    Floats sums[Rows][Columns];

    // Adds the contribution of a data row.
    template <int Row>
    DPMODULE_INLINE void add(const float *data, const float *weight) {
        const std::ptrdiff_t channels = size.channels;
        for (std::ptrdiff_t channel = 0; channel < channels; ++channel) {
            Floats factors[Rows][3];
#pragma GCC unroll 4
            for (int row = 0; row < Rows; ++row) {
                const int tap_down = Down::tap(Row, row);
                if (tap_down < 0 || tap_down > 2) continue;
                const float *from = weight + (tap_down * channels + channel) * 3 * Width;
#pragma GCC unroll 3
                for (int tap = 0; tap < 3; ++tap) factors[row][tap] = Vector<Width>::load(from + tap * Width);
            }
#pragma GCC unroll 64
            for (int column = kFirst; column <= kLast; ++column) {
                const float number = data[column * channels + channel];
#pragma GCC unroll 4
                for (int row = 0; row < Rows; ++row) {
                    const int tap_down = Down::tap(Row, row);
                    if (tap_down < 0 || tap_down > 2) continue;
#pragma GCC unroll 16
                    for (int to = 0; to < Columns; ++to) {
                        const int tap = Across::tap(column, to);
                        if (tap >= 0 && tap <= 2) sums[row][to] += factors[row][tap] * number;
                    }
                }
            }
        }
    }

    // `y` is the data row at the centre of the first row's windows.
    template <int Row = Down::kFirst>
    DPMODULE_INLINE void add_all(std::ptrdiff_t y, const float *data, const float *weight) {
        if constexpr (Row <= Down::kLast) {
            const std::ptrdiff_t from = y + Row;
            if (from >= 0 && from < size.height) add<Row>(data + from * size.width * size.channels, weight);
            add_all<Row + 1>(y, data, weight);
        }
    }
};

// One image.
template <int Width, int Rows, int Columns, int Step, int Spread>
struct Image {
    using L = Vector<Width>;

    const Conv3x3 &run;
    const float *weight;  // in the kernels' order
    std::ptrdiff_t number;

    template <int Odd, bool Left, bool Right>
    DPMODULE_INLINE void tile(std::ptrdiff_t y, std::ptrdiff_t x, std::ptrdiff_t filter) const {
        const Conv3x3Sizes &size = run.size;
        Tile<Width, Rows, Columns, Step, Spread, Odd, Left, Right> found{size, {}};
        const typename L::Floats begin = run.bias ? L::load(run.bias + filter) : typename L::Floats{};
#pragma GCC unroll 4
        for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 16
            for (int column = 0; column < Columns; ++column) found.sums[row][column] = begin;
        }
        const float *data = run.data + (number * size.height * size.width + x * Step / Spread) * size.channels;
        found.add_all(y * Step / Spread, data, weight + 9 * size.channels * filter);
        const std::ptrdiff_t height = size.height * Spread / Step, width = size.width * Spread / Step;
        float *to = run.result + ((number * height + y) * width + x) * size.filters + filter;
#pragma GCC unroll 4
        for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 16
            for (int column = 0; column < Columns; ++column)
                L::store(to + (row * width + column) * size.filters, found.sums[row][column]);
        }
    }

    // The last tiles overlap the previous ones if the size is not a multiple of the tile size.
    template <int Odd>
    DPMODULE_INLINE void row(std::ptrdiff_t y, std::ptrdiff_t filter) const {
        const std::ptrdiff_t last = run.size.width * Spread / Step - Columns;
        if (last == 0) {
            tile<Odd, true, true>(y, 0, filter);
            return;
        }
        tile<Odd, true, false>(y, 0, filter);
        for (std::ptrdiff_t x = Columns; x < last; x += Columns) tile<Odd, false, false>(y, x, filter);
        tile<Odd, false, true>(y, last, filter);
    }

    // Either the whole weight, or that of one vector, stays in the L1 cache while processing a band of the image.
    DPMODULE_INLINE void all() const {
        const std::ptrdiff_t height = run.size.height * Spread / Step;
        const std::ptrdiff_t tile_size = Rows * Step * run.size.width * run.size.channels / Spread;
        const std::ptrdiff_t tiles = numbers(run.size) <= kNear ? 1 : std::max<std::ptrdiff_t>(kBand / tile_size, 1);
        const std::ptrdiff_t band = tiles * Rows;
        for (std::ptrdiff_t first = 0; first < height; first += band) {
            for (std::ptrdiff_t filter = 0; filter < run.size.filters; filter += Width) {
                for (std::ptrdiff_t next = first; next < first + band && next < height; next += Rows) {
                    const std::ptrdiff_t y = std::min(next, height - Rows);
                    if (Rows < Spread && y % Spread) {
                        row<1>(y, filter);
                    } else {
                        row<0>(y, filter);
                    }
                }
            }
        }
    }
};

// Sums of products of some channels and a vector of filters, for one window row and all its columns.
template <int Width, int Channels, int Step>
struct Products {
    using L = Vector<Width>;
    using Floats = typename L::Floats;

    Floats sums[Channels][3];

    // Adds the contributions of `Step` data columns, the first of which is the centre of a window.
    template <bool Left, bool Right>
    DPMODULE_INLINE void add(const Conv3x3Sizes &size, const float *data, const float *grad) {
        constexpr int kFirst = Left || Step > 1 ? 0 : -1, kLast = Right ? 0 : 1;
        Floats factors[3];
#pragma GCC unroll 3
        for (int result = kFirst; result <= kLast; ++result)
            factors[result + 1] = L::load(grad + result * size.filters);
#pragma GCC unroll 8
        for (int channel = 0; channel < Channels; ++channel) {
#pragma GCC unroll 2
            for (int column = 0; column < Step; ++column) {
                const float number = data[column * size.channels + channel];
#pragma GCC unroll 3
                for (int result = kFirst; result <= kLast; ++result) {
                    const int tap = column + 1 - Step * result;
                    if (tap >= 0 && tap <= 2) sums[channel][tap] += factors[result + 1] * number;
                }
            }
        }
    }

    DPMODULE_INLINE void add_row(const Conv3x3Sizes &size, const float *data, const float *grad) {
        const std::ptrdiff_t last = size.width / Step - 1, data_step = Step * size.channels;
        add<true, false>(size, data, grad);
        for (std::ptrdiff_t x = 1; x < last; ++x)
            add<false, false>(size, data + x * data_step, grad + x * size.filters);
        add<false, true>(size, data + last * data_step, grad + last * size.filters);
    }
};

template <int Width>
DPMODULE_INLINE void add_bias(const Conv3x3Sizes &size, std::ptrdiff_t pixels, const float *grad, float *to) {
    using L = Vector<Width>;
    typename L::Floats sums[4] = {};  // several, to avoid a dependency chain
    std::ptrdiff_t pixel = 0;
    for (; pixel + 4 <= pixels; pixel += 4) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) sums[k] += L::load(grad + (pixel + k) * size.filters);
    }
    for (; pixel < pixels; ++pixel) sums[0] += L::load(grad + pixel * size.filters);
    L::store(to, L::load(to) + ((sums[0] + sums[1]) + (sums[2] + sums[3])));
}

// Adds one image's contribution to sums in the kernels' order, which are followed by those of the bias.
template <int Width, int Channels, int Step>
DPMODULE_INLINE void add_image(const Conv3x3Gradients &run, std::ptrdiff_t number, float *sums) {
    using L = Vector<Width>;
    const Conv3x3Sizes &size = run.size;
    const std::ptrdiff_t height = size.height / Step, width = size.width / Step;
    const float *const image = run.data + number * size.height * size.width * size.channels;
    float *to = sums;
    for (std::ptrdiff_t filter = 0; filter < size.filters; filter += Width) {
        const float *const grad = run.grad + number * height * width * size.filters + filter;
        if (run.bias) add_bias<Width>(size, height * width, grad, sums + numbers(size) + filter);
        for (std::ptrdiff_t row = -1; row < 2; ++row) {
            const std::ptrdiff_t first = row < 0 ? 1 : 0, end = height - (row > 0 && Step == 1 ? 1 : 0);
            for (std::ptrdiff_t channel = 0; channel < size.channels; channel += Channels, to += 3 * Channels * Width) {
                Products<Width, Channels, Step> products;
#pragma GCC unroll 8
                for (int k = 0; k < Channels; ++k) {
#pragma GCC unroll 3
                    for (int tap = 0; tap < 3; ++tap) products.sums[k][tap] = L::load(to + (3 * k + tap) * Width);
                }
                for (std::ptrdiff_t y = first; y < end; ++y) {
                    const float *data = image + (y * Step + row) * size.width * size.channels + channel;
                    products.add_row(size, data, grad + y * width * size.filters);
                }
#pragma GCC unroll 8
                for (int k = 0; k < Channels; ++k) {
#pragma GCC unroll 3
                    for (int tap = 0; tap < 3; ++tap) L::store(to + (3 * k + tap) * Width, products.sums[k][tap]);
                }
            }
        }
    }
}

using Forward = void (*)(const Conv3x3 &, const float *, std::ptrdiff_t);
using Gradients = void (*)(const Conv3x3Gradients &, std::ptrdiff_t, float *);

template <int Rows, int Columns, int Step, int Spread>
DPMODULE_AVX512 void avx512(const Conv3x3 &run, const float *weight, std::ptrdiff_t number) {
    Image<16, Rows, Columns, Step, Spread>{run, weight, number}.all();
}

template <int Rows, int Columns, int Step, int Spread>
DPMODULE_AVX2 void avx2(const Conv3x3 &run, const float *weight, std::ptrdiff_t number) {
    Image<8, Rows, Columns, Step, Spread>{run, weight, number}.all();
}

template <int Channels, int Step>
DPMODULE_AVX512 void avx512_gradients(const Conv3x3Gradients &run, std::ptrdiff_t number, float *sums) {
    add_image<16, Channels, Step>(run, number, sums);
}

template <int Step>
DPMODULE_AVX2 void avx2_gradients(const Conv3x3Gradients &run, std::ptrdiff_t number, float *sums) {
    add_image<8, 4, Step>(run, number, sums);
}

Forward forward_for(const Conv3x3 &run) {
    const std::ptrdiff_t width = run.size.width / run.size.step;
    const bool wide = width >= 16 && (width - 1) % 16 >= 8;
    if (conv3x3_lanes() < 16)
        return run.spread > 1 ? avx2<1, 8, 1, 2> : run.size.step > 1 ? avx2<1, 8, 2, 1> : avx2<1, 8, 1, 1>;
    if (run.spread > 1) return avx512<2, 8, 1, 2>;
    if (run.size.step > 1) return wide ? avx512<1, 16, 2, 1> : avx512<2, 8, 2, 1>;
    return wide ? avx512<1, 16, 1, 1> : avx512<2, 8, 1, 1>;
}

Gradients gradients_for(const Conv3x3Sizes &size) {
    if (conv3x3_lanes() < 16) return size.step > 1 ? avx2_gradients<2> : avx2_gradients<1>;
    if (size.channels % 8) return size.step > 1 ? avx512_gradients<4, 2> : avx512_gradients<4, 1>;
    return size.step > 1 ? avx512_gradients<8, 2> : avx512_gradients<8, 1>;
}

}  // namespace

std::ptrdiff_t conv3x3_lanes() {
    const vector::Instructions best = vector::best_instructions();
    return best == vector::Instructions::Avx512 ? 16 : best == vector::Instructions::Avx2 ? 8 : 0;
}

void conv3x3(const Conv3x3 &run) {
    std::vector<float> weight(numbers(run.size));
    each_weight(run.size, run.weight, [&](float &number, std::ptrdiff_t at) { weight[at] = number; });
    const Forward kernel = forward_for(run);
    parallel_for(run.size.images, run.size.threads, [&](std::ptrdiff_t image) { kernel(run, weight.data(), image); });
}

void conv3x3_gradients(const Conv3x3Gradients &run) {
    const std::ptrdiff_t parts = std::max(run.size.threads, 1), size = numbers(run.size) + run.size.filters;
    std::vector<float> sums(parts * size);
    const Gradients kernel = gradients_for(run.size);
    parallel_for(parts, run.size.threads, [&](std::ptrdiff_t part) {
        const std::ptrdiff_t images = run.size.images, end = images * (part + 1) / parts;
        for (std::ptrdiff_t image = images * part / parts; image < end; ++image)
            kernel(run, image, sums.data() + part * size);
    });
    for (std::ptrdiff_t at = size; at < parts * size; ++at) sums[at % size] += sums[at];
    each_weight(run.size, run.weight, [&](float &number, std::ptrdiff_t at) { number = sums[at]; });
    if (run.bias) std::copy_n(sums.data() + numbers(run.size), run.size.filters, run.bias);
}

}  // namespace dpmodule

#endif
