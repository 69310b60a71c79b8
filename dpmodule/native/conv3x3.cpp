// A number that has been read is used for all three columns of the windows, and for several rows: with few filters,
// reading takes as long as multiplying.
#include "conv3x3.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "team.hpp"
#include "vector/instructions.hpp"

// none of the functions with vectors is called across files, nor left without being inlined
#pragma GCC diagnostic ignored "-Wpsabi"

#define DPMODULE_INLINE inline __attribute__((always_inline))

namespace dpmodule {
namespace {

template <int Width>
struct Lanes {
    typedef float Floats __attribute__((vector_size(4 * Width)));

    DPMODULE_INLINE static Floats load(const float *from) {
        Floats found;
        std::memcpy(&found, from, sizeof found);
        return found;
    }

    DPMODULE_INLINE static void store(float *to, const Floats &value) { std::memcpy(to, &value, sizeof value); }
};

// Where a number of the weight is in the order of the kernels, (blocks, 3, channels, 3, lanes). Calls body(number of
// the weight, number in this order) for all.
template <class Body>
void each_weight(const Conv3x3Sizes &size, const Conv3x3Weight &weight, const Body &body) {
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

// Sums of some rows and columns of the result, for a vector of filters. At the left and right there may be a border.
template <int Width, int Rows, int Columns, bool Left, bool Right>
struct Tile {
    using Floats = typename Lanes<Width>::Floats;

    const Conv3x3Sizes &size;
    Floats sums[Rows][Columns];

    // Adds what a row of the data gives, which is above the first row of the result if `Row` is 0.
    template <int Row>
    DPMODULE_INLINE void add(const float *data, const float *weight) {
        constexpr int kFirst = std::max(Row - 2, 0), kCount = std::min(Row, Rows - 1) - kFirst + 1;
        const std::ptrdiff_t channels = size.channels;
        for (std::ptrdiff_t channel = 0; channel < channels; ++channel) {
            Floats factors[kCount][3];
#pragma GCC unroll 4
            for (int row = 0; row < kCount; ++row) {
                const float *from = weight + ((Row - kFirst - row) * channels + channel) * 3 * Width;
#pragma GCC unroll 3
                for (int tap = 0; tap < 3; ++tap) factors[row][tap] = Lanes<Width>::load(from + tap * Width);
            }
#pragma GCC unroll 32
            for (int column = Left ? 0 : -1; column < Columns + (Right ? 0 : 1); ++column) {
                const float number = data[column * channels + channel];
#pragma GCC unroll 4
                for (int row = 0; row < kCount; ++row) {
#pragma GCC unroll 3
                    for (int tap = 0; tap < 3; ++tap) {
                        const int to = column + 1 - tap;
                        if (to >= 0 && to < Columns) sums[kFirst + row][to] += factors[row][tap] * number;
                    }
                }
            }
        }
    }

    template <int Row = 0>
    DPMODULE_INLINE void add_all(std::ptrdiff_t y, const float *data, const float *weight) {
        if constexpr (Row < Rows + 2) {
            const std::ptrdiff_t from = y + Row - 1;
            if (from >= 0 && from < size.height) add<Row>(data + from * size.width * size.channels, weight);
            add_all<Row + 1>(y, data, weight);
        }
    }
};

// One image.
template <int Width, int Rows, int Columns>
struct Image {
    using L = Lanes<Width>;

    const Conv3x3 &run;
    const float *weight;  // in the order of the kernels
    std::ptrdiff_t number;

    template <bool Left, bool Right>
    DPMODULE_INLINE void tile(std::ptrdiff_t y, std::ptrdiff_t x, std::ptrdiff_t filter) const {
        const Conv3x3Sizes &size = run.size;
        Tile<Width, Rows, Columns, Left, Right> found{size, {}};
        const typename L::Floats begin = run.bias ? L::load(run.bias + filter) : typename L::Floats{};
#pragma GCC unroll 4
        for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 16
            for (int column = 0; column < Columns; ++column) found.sums[row][column] = begin;
        }
        const float *data = run.data + (number * size.height * size.width + x) * size.channels;
        found.add_all(y, data, weight + 9 * size.channels * filter);
        float *to = run.result + ((number * size.height + y) * size.width + x) * size.filters + filter;
#pragma GCC unroll 4
        for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 16
            for (int column = 0; column < Columns; ++column)
                L::store(to + (row * size.width + column) * size.filters, found.sums[row][column]);
        }
    }

    // The last tiles lie over the ones before as far as the size is no multiple of theirs.
    DPMODULE_INLINE void all() const {
        const Conv3x3Sizes &size = run.size;
        const std::ptrdiff_t last = size.width - Columns;
        for (std::ptrdiff_t filter = 0; filter < size.filters; filter += Width) {
            for (std::ptrdiff_t row = 0; row < size.height; row += Rows) {
                const std::ptrdiff_t y = std::min(row, size.height - Rows);
                if (last == 0) {
                    tile<true, true>(y, 0, filter);
                    continue;
                }
                tile<true, false>(y, 0, filter);
                for (std::ptrdiff_t x = Columns; x < last; x += Columns) tile<false, false>(y, x, filter);
                tile<false, true>(y, last, filter);
            }
        }
    }
};

// Sums of products of some channels and a vector of filters, for one row of the windows and all their columns.
template <int Width, int Channels>
struct Products {
    using L = Lanes<Width>;
    using Floats = typename L::Floats;

    Floats sums[Channels][3];

    template <bool Left, bool Right>
    DPMODULE_INLINE void add(const float *data, const float *grad, std::ptrdiff_t filters) {
        Floats factors[3];  // the right column's window begins further left
        if (!Right) factors[0] = L::load(grad + filters);
        factors[1] = L::load(grad);
        if (!Left) factors[2] = L::load(grad - filters);
#pragma GCC unroll 8
        for (int channel = 0; channel < Channels; ++channel) {
            const float number = data[channel];
#pragma GCC unroll 3
            for (int tap = Right ? 1 : 0; tap < (Left ? 2 : 3); ++tap) sums[channel][tap] += factors[tap] * number;
        }
    }

    DPMODULE_INLINE void add_row(const Conv3x3Sizes &size, const float *data, const float *grad) {
        const std::ptrdiff_t last = size.width - 1;
        add<true, false>(data, grad, size.filters);
        for (std::ptrdiff_t x = 1; x < last; ++x)
            add<false, false>(data + x * size.channels, grad + x * size.filters, size.filters);
        add<false, true>(data + last * size.channels, grad + last * size.filters, size.filters);
    }
};

template <int Width>
DPMODULE_INLINE void add_bias(const Conv3x3Sizes &size, const float *grad, float *to) {
    using L = Lanes<Width>;
    typename L::Floats sums[4] = {};  // one would wait for itself
    const std::ptrdiff_t pixels = size.height * size.width;
    std::ptrdiff_t pixel = 0;
    for (; pixel + 4 <= pixels; pixel += 4) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) sums[k] += L::load(grad + (pixel + k) * size.filters);
    }
    for (; pixel < pixels; ++pixel) sums[0] += L::load(grad + pixel * size.filters);
    L::store(to, L::load(to) + ((sums[0] + sums[1]) + (sums[2] + sums[3])));
}

// Adds what one image gives to sums in the order of the kernels, behind which those of the bias lie.
template <int Width, int Channels>
DPMODULE_INLINE void add_image(const Conv3x3Gradients &run, std::ptrdiff_t number, float *sums) {
    using L = Lanes<Width>;
    const Conv3x3Sizes &size = run.size;
    const std::ptrdiff_t pixels = size.height * size.width, data_row = size.width * size.channels;
    float *to = sums;
    for (std::ptrdiff_t filter = 0; filter < size.filters; filter += Width) {
        const float *grad = run.grad + number * pixels * size.filters + filter;
        if (run.bias) add_bias<Width>(size, grad, sums + numbers(size) + filter);
        for (std::ptrdiff_t row = -1; row < 2; ++row) {
            const std::ptrdiff_t first = row < 0 ? 1 : 0, end = size.height - (row > 0 ? 1 : 0);
            for (std::ptrdiff_t channel = 0; channel < size.channels; channel += Channels, to += 3 * Channels * Width) {
                const float *data = run.data + number * pixels * size.channels + channel;
                Products<Width, Channels> products;
#pragma GCC unroll 8
                for (int k = 0; k < Channels; ++k) {
#pragma GCC unroll 3
                    for (int tap = 0; tap < 3; ++tap) products.sums[k][tap] = L::load(to + (3 * k + tap) * Width);
                }
                for (std::ptrdiff_t y = first; y < end; ++y)
                    products.add_row(size, data + (y + row) * data_row, grad + y * size.width * size.filters);
#pragma GCC unroll 8
                for (int k = 0; k < Channels; ++k) {
#pragma GCC unroll 3
                    for (int tap = 0; tap < 3; ++tap) L::store(to + (3 * k + tap) * Width, products.sums[k][tap]);
                }
            }
        }
    }
}

#define DPMODULE_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#define DPMODULE_AVX2 __attribute__((target("avx2,fma")))

using Forward = void (*)(const Conv3x3 &, const float *, std::ptrdiff_t);
using Gradients = void (*)(const Conv3x3Gradients &, std::ptrdiff_t, float *);

DPMODULE_AVX512 void avx512_wide(const Conv3x3 &run, const float *weight, std::ptrdiff_t number) {
    Image<16, 1, 16>{run, weight, number}.all();
}

DPMODULE_AVX512 void avx512_narrow(const Conv3x3 &run, const float *weight, std::ptrdiff_t number) {
    Image<16, 2, 8>{run, weight, number}.all();
}

DPMODULE_AVX2 void avx2(const Conv3x3 &run, const float *weight, std::ptrdiff_t number) {
    Image<8, 1, 8>{run, weight, number}.all();
}

DPMODULE_AVX512 void avx512_gradients_8(const Conv3x3Gradients &run, std::ptrdiff_t number, float *sums) {
    add_image<16, 8>(run, number, sums);
}

DPMODULE_AVX512 void avx512_gradients_4(const Conv3x3Gradients &run, std::ptrdiff_t number, float *sums) {
    add_image<16, 4>(run, number, sums);
}

DPMODULE_AVX2 void avx2_gradients(const Conv3x3Gradients &run, std::ptrdiff_t number, float *sums) {
    add_image<8, 4>(run, number, sums);
}

Forward forward_for(const Conv3x3Sizes &size) {
    if (conv3x3_lanes() < 16) return avx2;
    return size.width < 16 || (size.width - 1) % 16 < 8 ? avx512_narrow : avx512_wide;
}

Gradients gradients_for(const Conv3x3Sizes &size) {
    if (conv3x3_lanes() < 16) return avx2_gradients;
    return size.channels % 8 ? avx512_gradients_4 : avx512_gradients_8;
}

struct ForwardWork {
    const Conv3x3 &run;
    const float *weight;
    Forward kernel;
};

void forward_part(void *given, std::ptrdiff_t image) {
    const ForwardWork &work = *static_cast<const ForwardWork *>(given);
    work.kernel(work.run, work.weight, image);
}

struct GradientsWork {
    const Conv3x3Gradients &run;
    Gradients kernel;
    std::ptrdiff_t parts, size;
    float *sums;
};

void gradients_part(void *given, std::ptrdiff_t part) {
    const GradientsWork &work = *static_cast<const GradientsWork *>(given);
    const std::ptrdiff_t images = work.run.size.images, end = images * (part + 1) / work.parts;
    for (std::ptrdiff_t image = images * part / work.parts; image < end; ++image)
        work.kernel(work.run, image, work.sums + part * work.size);
}

}  // namespace

std::ptrdiff_t conv3x3_lanes() {
    const vector::Instructions best = vector::best_instructions();
    return best == vector::Instructions::Avx512 ? 16 : best == vector::Instructions::Avx2 ? 8 : 0;
}

bool conv3x3(const Conv3x3 &run) {
    try {
        std::vector<float> weight(numbers(run.size));
        each_weight(run.size, run.weight, [&](float &number, std::ptrdiff_t at) { weight[at] = number; });
        ForwardWork work{run, weight.data(), forward_for(run.size)};
        in_parts(run.size.images, run.size.threads, forward_part, &work);
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

bool conv3x3_gradients(const Conv3x3Gradients &run) {
    try {
        const std::ptrdiff_t parts = std::max(run.size.threads, 1), size = numbers(run.size) + run.size.filters;
        std::vector<float> sums(parts * size);
        GradientsWork work{run, gradients_for(run.size), parts, size, sums.data()};
        in_parts(parts, run.size.threads, gradients_part, &work);
        for (std::ptrdiff_t at = size; at < parts * size; ++at) sums[at % size] += sums[at];
        each_weight(run.size, run.weight, [&](float &number, std::ptrdiff_t at) { number = sums[at]; });
        if (run.bias) std::copy_n(sums.data() + numbers(run.size), run.size.filters, run.bias);
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

}  // namespace dpmodule

#endif
