// The gradient of the weight is a sum of products of the data's windows and the result's gradient. A row of a window is
// consecutive numbers of the data, which are copied with their padding. A tile, the products of a few of these numbers
// and one to three vectors of filters, is accumulated in registers over a band of windows.
#include "trained_convolution.hpp"

#if defined(__x86_64__)

#include <algorithm>
#include <utility>

#include "kernels.hpp"
#include "parallel.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr int kWidth = 8;                    // floats per vector of the data's gradient
constexpr int kMaxVectors = 3;               // of filters in a tile
constexpr std::ptrdiff_t kBand = 128;        // windows per band, for which the result's gradient fits in the L1 cache
constexpr std::ptrdiff_t kMinWork = 131072;  // minimal multiplications per thread

// A convolution by tiles, with the weight in their order and a bias in `packed`.
ImageLayer packed_layer(const ConvolutionSizes &size, const StridedWeight &weight, const float *bias,
                        std::vector<float> &packed) {
    const std::ptrdiff_t block = convolution_block(size.filters), blocks = (size.filters - 1) / block + 1;
    const std::ptrdiff_t depth = size.channels * block, window = size.y.kernel * size.x.kernel;
    packed.assign(blocks * (window * depth + block), 0.0f);
    for (std::ptrdiff_t first = 0; first < size.filters; first += block) {
        const std::ptrdiff_t count = std::min(block, size.filters - first);
        for (std::ptrdiff_t channel = 0; channel < size.channels; ++channel) {
            const float *row = weight.numbers + first * weight.filter + channel * weight.channel;
            float *to = packed.data() + first * window * size.channels + channel * block;
            for (std::ptrdiff_t y = 0; y < size.y.kernel; ++y, row += weight.row) {
                for (std::ptrdiff_t x = 0; x < size.x.kernel; ++x, to += depth) {
                    const float *from = row + x * weight.column;
                    for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = from[i * weight.filter];
                }
            }
        }
    }
    if (bias) std::copy_n(bias, size.filters, packed.data() + blocks * window * depth);
    ImageLayer layer{};
    layer.kind = LayerKind::Convolution;
    layer.images = size.images, layer.channels = size.channels, layer.filters = size.filters, layer.groups = 1;
    layer.y = size.y, layer.x = size.x, layer.block = block;
    layer.data_gap = size.channels, layer.result_gap = size.filters;
    layer.row_gap = size.x.result * size.filters, layer.image_gap = size.y.result * layer.row_gap;
    layer.weight = packed.data(), layer.bias = packed.data() + blocks * window * depth;
    return layer;
}

// The elements of an axis of the data that are a multiple of the stride apart, from `first` on. Windows over the
// result's gradient compute theirs, with every `stride`th element of the kernel, the last of which is `tap`.
struct Phase {
    Axis axis;
    std::ptrdiff_t first, tap;
};

Phase phase(const Axis &of, std::ptrdiff_t tap) {
    const std::ptrdiff_t taps = of.kernel > tap ? (of.kernel - tap - 1) / of.stride + 1 : 0;
    const std::ptrdiff_t window = (of.pad - tap + of.stride - 1) / of.stride;  // the first one that `tap` belongs to
    const std::ptrdiff_t first = window * of.stride + tap - of.pad;
    const std::ptrdiff_t count = of.size > first ? (of.size - first - 1) / of.stride + 1 : 0;
    return {
        {of.result, count, taps, 1, of.dilate, of.dilate * (taps - 1) - window}, first, tap + of.stride * (taps - 1)};
}

// The gradient of the data, some rows of all images, by one thread. A product with the weight gives the gradient of each
// window, in the order of the data; the elements in which windows overlap are then summed. With few channels, most of a
// tile would be unused.
class OverlapSums {
    using V = Vector<kWidth>;

  public:
    // The weight of a window, packed for the product.
    static std::vector<float> pack(const ConvolutionData &run) {
        const ConvolutionSizes &size = run.size;
        const StridedWeight &w = run.weight;
        const std::ptrdiff_t pitch = pitch_of(size);
        std::vector<float> rows(size.filters * pitch),
            packed(vector::packed_size(vector::kernels(), size.filters, pitch));
        for (std::ptrdiff_t f = 0; f < size.filters; ++f) {
            float *to = rows.data() + f * pitch;
            for (std::ptrdiff_t i = 0; i < size.y.kernel; ++i) {
                for (std::ptrdiff_t j = 0; j < size.x.kernel; ++j) {
                    const float *from = w.numbers + f * w.filter + i * w.row + j * w.column;
                    for (std::ptrdiff_t c = 0; c < size.channels; ++c) *to++ = from[c * w.channel];
                }
            }
        }
        vector::pack(vector::kernels(), size.filters, pitch, rows.data(), pitch, false, packed.data());
        return packed;
    }

    OverlapSums(const ConvolutionData &run, const std::vector<float> &packed)
        : run_(run), y_(run.size.y), x_(run.size.x), packed_(packed), step_(x_.stride * run.size.channels),
          row_(x_.kernel * run.size.channels), pitch_(pitch_of(run.size)), parts_((x_.kernel - 1) / x_.stride + 1),
          kept_((y_.kernel - 1) * y_.dilate / y_.stride + 1), windows_(kept_ * x_.result * pitch_ + step_ + kWidth),
          line_(std::max((x_.result + parts_) * step_, (x_.pad + x_.size) * run.size.channels) + kWidth),
          used_(step_ + kWidth), bias_(step_ + kWidth) {
        rows_.reserve(y_.kernel);
        std::fill_n(used_.begin(), std::min(row_ - (parts_ - 1) * step_, step_), -1);
        if (!run.bias) return;
        for (std::vector<float> *numbers : {&line_, &bias_})
            for (std::size_t i = 0; i < numbers->size(); ++i) (*numbers)[i] = run.bias[i % run.size.channels];
    }

    void compute(std::ptrdiff_t begin, std::ptrdiff_t end) {
        const std::ptrdiff_t width = x_.size * run_.size.channels;
        std::ptrdiff_t next = 0;  // row of windows
        for (std::ptrdiff_t at = begin; at < end; ++at) {
            const std::ptrdiff_t image = at / y_.size, row = at % y_.size + y_.pad;
            const std::ptrdiff_t before = row - (y_.kernel - 1) * y_.dilate + y_.stride - 1;
            if (at == begin || row == y_.pad) next = std::max<std::ptrdiff_t>(before, 0) / y_.stride;
            for (; next < y_.result && next * y_.stride <= row; ++next) multiply(image, next);
            add(row);
            std::copy_n(line_.data() + x_.pad * run_.size.channels, width, run_.data + at * width);
        }
    }

  private:
    static std::ptrdiff_t pitch_of(const ConvolutionSizes &size) {
        return (size.y.kernel * size.x.kernel * size.channels + kWidth - 1) / kWidth * kWidth;
    }

    float *windows(std::ptrdiff_t row) { return windows_.data() + row % kept_ * x_.result * pitch_; }

    void multiply(std::ptrdiff_t image, std::ptrdiff_t row) {
        const int count = static_cast<int>(x_.result), filters = static_cast<int>(run_.size.filters);
        const float *grad = run_.grad + (image * y_.result + row) * x_.result * filters;
        vector::kernels().product({count, static_cast<int>(pitch_), filters, grad, filters, 1, packed_.data(),
                                   vector::Layout::Packed, 0, windows(row), pitch_, nullptr, false});
    }

    // Sums a row of the padded data. Steps between windows divide it, and each window, into parts.
    DPMODULE_AVX2 void add(std::ptrdiff_t row) {
        rows_.clear();
        for (std::ptrdiff_t i = 0, at = row; i < y_.kernel && at >= 0; ++i, at -= y_.dilate) {
            if (at % y_.stride == 0 && at / y_.stride < y_.result) rows_.push_back(windows(at / y_.stride) + i * row_);
        }
        const std::ptrdiff_t count = x_.result + parts_ - 1, last = parts_ - 1;
        for (std::ptrdiff_t at = 0; at < count; ++at) {
            const std::ptrdiff_t first = std::max<std::ptrdiff_t>(at - x_.result + 1, 0), end = std::min(at + 1, last);
            for (std::ptrdiff_t v = 0; v < step_; v += kWidth) {
                typename V::Floats sum = V::load(bias_.data() + v);
                typename V::Ints used;
                std::memcpy(&used, used_.data() + v, sizeof used);
                for (const float *windows : rows_) {
                    const float *from = windows + (at - first) * pitch_ + first * step_ + v;
                    for (std::ptrdiff_t part = first; part < end; ++part, from += step_ - pitch_) sum += V::load(from);
                    if (at < last) continue;
                    const auto bits = reinterpret_cast<typename V::Ints>(V::load(from));
                    sum += reinterpret_cast<typename V::Floats>(bits & used);
                }
                V::store(line_.data() + at * step_ + v, sum);  // the next part overwrites what is too much
            }
        }
        std::copy_n(bias_.data(), kWidth, line_.data() + count * step_);
    }

    const ConvolutionData &run_;
    const Axis &y_, &x_;
    const std::vector<float> &packed_;
    std::ptrdiff_t step_, row_, pitch_;  // elements from window to window, of a window's row, and of a window
    std::ptrdiff_t parts_, kept_;        // of a window's row; rows of windows that overlap
    std::vector<float> windows_, line_;
    std::vector<std::int32_t> used_;   // bits of the elements in the last part of a window's row, which may be shorter
    std::vector<float> bias_;          // of each element of a part
    std::vector<const float *> rows_;  // that overlap in a row of the data
};

// Consecutive windows: the start of the first one, and their number.
struct Line {
    const float *from;
    std::ptrdiff_t windows;
};

// A tile of the weight's gradient: some numbers of a window's row.
struct GradientTile {
    std::ptrdiff_t filter, row, column, number;  // the first ones
    int numbers, vectors;
};

using Lines = std::vector<Line>;

template <int Rows, int Vectors>
struct AddTile {
    template <int Width>
    DPMODULE_INLINED static void run(const Lines &lines, std::ptrdiff_t shift, std::ptrdiff_t step, const float *grad,
                                     float *to) {
        using V = Vector<Width>;
        typename V::Floats sums[Rows][Vectors];
#pragma GCC unroll 24
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 3
            for (int v = 0; v < Vectors; ++v) sums[r][v] = typename V::Floats{};
        }
        for (const Line &line : lines) {
            const float *from = line.from + shift;
            for (std::ptrdiff_t left = line.windows; left > 0; --left, from += step, grad += Vectors * Width) {
                typename V::Floats factors[Vectors];
#pragma GCC unroll 3
                for (int v = 0; v < Vectors; ++v) factors[v] = V::load(grad + v * Width);
#pragma GCC unroll 24
                for (int r = 0; r < Rows; ++r) {
                    const float number = from[r];
#pragma GCC unroll 3
                    for (int v = 0; v < Vectors; ++v) sums[r][v] += factors[v] * number;
                }
            }
        }
#pragma GCC unroll 24
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 3
            for (int v = 0; v < Vectors; ++v, to += Width) V::store(to, V::load(to) + sums[r][v]);
        }
    }
};

// Calls a kernel compiled for vectors of `Width` floats.
template <int Width, class Kernel, class... Given>
void run_wide(const Given &...given) {
    if constexpr (Width == 16) run_avx512<Kernel>(given...);
    else run_avx2<Kernel>(given...);
}

using Tile = void (*)(const Lines &, const std::ptrdiff_t &, const std::ptrdiff_t &, const float *const &,
                      float *const &);

// The vectors of a tile.
template <int Width>
constexpr int kSums = Width == 16 ? 24 : 12;

template <int Width, int Vectors, int... Rows>
Tile tile_of(std::ptrdiff_t rows, std::integer_sequence<int, Rows...>) {
    constexpr Tile found[] = {
        run_wide<Width, AddTile<Rows + 1, Vectors>, Lines, std::ptrdiff_t, std::ptrdiff_t, const float *, float *>...};
    return found[rows - 1];
}

template <int Width>
Tile tile_of(std::ptrdiff_t rows, int vectors) {
    constexpr int kMost = kSums<Width>;
    switch (vectors) {
        case 1: return tile_of<Width, 1>(rows, std::make_integer_sequence<int, kMost>{});
        case 2: return tile_of<Width, 2>(rows, std::make_integer_sequence<int, kMost / 2>{});
        default: return tile_of<Width, 3>(rows, std::make_integer_sequence<int, kMost / 3>{});
    }
}

// Some tiles of the weight's gradient, by one thread.
template <int Width>
class TileGradients {
    using V = Vector<Width>;
    static constexpr std::ptrdiff_t kNumbers = kSums<Width> * Width;  // of a tile

  public:
    TileGradients(const ConvolutionGradients &run, const GradientTile *tiles, std::ptrdiff_t count)
        : run_(run), size_(run.size), tiles_(tiles), sums_(count * kNumbers) {
        const Axis &y = size_.y, &x = size_.x;
        const std::ptrdiff_t rows = std::max<std::ptrdiff_t>(kBand / x.result, 1), windows = std::max(kBand, x.result);
        lines_.reserve(rows);
        copy_.reserve(rows * (y.stride + reach(y, 1)) * reach(x, x.result) * size_.channels);
        grad_.reserve(windows * kMaxVectors * Width);
    }

    template <int>
    DPMODULE_INLINED static void run(TileGradients *share) {
        share->compute();
    }

  private:
    DPMODULE_INLINE void compute() {
        const Axis &y = size_.y, &x = size_.x;
        const auto is_plain = [](const Axis &axis) { return axis.kernel == 1 && axis.stride == 1 && axis.pad == 0; };
        const std::ptrdiff_t windows = size_.images * y.result * x.result;
        if (is_plain(y) && is_plain(x)) {
            pitch_ = 0;
            for (std::ptrdiff_t at = 0; at < windows; at += kBand) {
                lines_.assign(1, {run_.data + at * size_.channels, std::min(kBand, windows - at)});
                add(at, lines_[0].windows);
            }
        } else {
            const bool is_padded = y.pad > 0 || x.pad > 0;
            pitch_ = (is_padded ? reach(x, x.result) : x.size) * size_.channels;
            const std::ptrdiff_t rows = size_.images * y.result, step = std::max<std::ptrdiff_t>(kBand / x.result, 1);
            for (std::ptrdiff_t at = 0; at < rows; at += step) {
                const std::ptrdiff_t end = std::min(at + step, rows);
                lines_.clear();
                if (is_padded) copy_band(at, end);
                else {
                    for (std::ptrdiff_t row = at; row < end; ++row)
                        lines_.push_back(
                            {run_.data + (row / y.result * y.size + row % y.result * y.stride) * pitch_, x.result});
                }
                add(at * x.result, (end - at) * x.result);
            }
        }
        write();
    }

    // Number of elements that some windows read along an axis.
    static std::ptrdiff_t reach(const Axis &axis, std::ptrdiff_t windows) {
        return (windows - 1) * axis.stride + (axis.kernel - 1) * axis.dilate + 1;
    }

    // Copies what some rows of windows read, with the padding.
    void copy_band(std::ptrdiff_t first, std::ptrdiff_t end) {
        const Axis &y = size_.y, &x = size_.x;
        const auto images = [&](const auto &body) {
            for (std::ptrdiff_t row = first, rows; row < end; row += rows) {
                rows = std::min(end - row, y.result - row % y.result);
                body(row / y.result, row % y.result, rows);
            }
        };
        std::ptrdiff_t rows_read = 0;
        images([&](std::ptrdiff_t, std::ptrdiff_t, std::ptrdiff_t rows) { rows_read += reach(y, rows); });
        copy_.resize(rows_read * pitch_);
        float *to = copy_.data();
        const std::ptrdiff_t width = pitch_ / size_.channels, left = std::min(x.pad, width);
        const std::ptrdiff_t inside = std::clamp<std::ptrdiff_t>(width - left, 0, x.size);
        images([&](std::ptrdiff_t image, std::ptrdiff_t row, std::ptrdiff_t rows) {
            for (std::ptrdiff_t k = 0; k < rows; ++k) lines_.push_back({to + k * y.stride * pitch_, x.result});
            const std::ptrdiff_t top = row * y.stride - y.pad;
            for (std::ptrdiff_t k = 0; k < reach(y, rows); ++k, to += pitch_) {
                const bool is_inside = top + k >= 0 && top + k < y.size;
                float *const end_of_data = to + (left + (is_inside ? inside : 0)) * size_.channels;
                std::fill(to, to + left * size_.channels, 0.0f);
                if (is_inside)
                    std::copy_n(run_.data + (image * y.size + top + k) * x.size * size_.channels,
                                inside * size_.channels, to + left * size_.channels);
                std::fill(end_of_data, to + pitch_, 0.0f);
            }
        });
    }

    // Copies the gradient of a tile's filters for some windows; adds its sums to the bias if the tile is the first one
    // of these filters.
    DPMODULE_INLINE void copy_grad(const GradientTile &tile, std::ptrdiff_t window, std::ptrdiff_t windows) {
        const std::ptrdiff_t filters = size_.filters - tile.filter, width = tile.vectors * Width;
        const float *from = run_.grad + window * size_.filters + tile.filter;
        typename V::Floats sums[kMaxVectors] = {};
        grad_.resize(windows * width);
        for (float *to = grad_.data(), *end = to + windows * width; to != end; from += size_.filters) {
            for (int v = 0; v < tile.vectors; ++v, to += Width) {
                const typename V::Floats numbers = V::load(from + v * Width, filters - v * Width);
                sums[v] += numbers;
                V::store(to, numbers);
            }
        }
        if (!run_.bias || tile.row || tile.column || tile.number) return;
        for (int v = 0; v < tile.vectors; ++v) {
            float *const to = run_.bias + tile.filter + v * Width;
            const std::ptrdiff_t left = filters - v * Width;
            V::store(to, V::load(to, left) + sums[v], left);
        }
    }

    // Adds the products of some windows to all tiles.
    DPMODULE_INLINE void add(std::ptrdiff_t window, std::ptrdiff_t windows) {
        const std::ptrdiff_t channels = size_.channels, count = sums_.size() / kNumbers;
        float *to = sums_.data();
        for (std::ptrdiff_t i = 0; i < count; ++i, to += kNumbers) {
            const GradientTile &tile = tiles_[i];
            if (i == 0 || tile.filter != tiles_[i - 1].filter) copy_grad(tile, window, windows);
            const std::ptrdiff_t shift =
                tile.row * size_.y.dilate * pitch_ + tile.column * size_.x.dilate * channels + tile.number;
            tile_of<Width>(tile.numbers, tile.vectors)(lines_, shift, size_.x.stride * channels, grad_.data(), to);
        }
    }

    // Writes all numbers of a filter before the next one: filters may be a multiple of 4096 bytes apart, of which the
    // L1 cache keeps only a few lines.
    void write() const {
        const StridedWeight &weight = run_.weight;
        const float *from = sums_.data();
        for (const GradientTile *tile = tiles_; from != sums_.data() + sums_.size(); ++tile, from += kNumbers) {
            std::ptrdiff_t offsets[kSums<Width>];
            for (std::ptrdiff_t i = 0; i < tile->numbers; ++i) {
                const std::ptrdiff_t number = tile->number + i, column = tile->column + number / size_.channels;
                offsets[i] = number % size_.channels * weight.channel + column * weight.column;
            }
            const std::ptrdiff_t width = tile->vectors * Width, filters = std::min(width, size_.filters - tile->filter);
            float *to = weight.numbers + tile->filter * weight.filter + tile->row * weight.row;
            for (std::ptrdiff_t f = 0; f < filters; ++f, to += weight.filter) {
                for (std::ptrdiff_t i = 0; i < tile->numbers; ++i) to[offsets[i]] = from[i * width + f];
            }
        }
    }

    const ConvolutionGradients &run_;
    const ConvolutionSizes &size_;
    const GradientTile *tiles_;
    std::ptrdiff_t pitch_ = 0;  // elements from one row of the data to the next
    std::vector<Line> lines_;   // of a band
    std::vector<float> copy_;   // of the data
    std::vector<float> grad_;   // of the result, for a tile's filters
    std::vector<float> sums_;   // of each tile
};

template <int Width>
std::vector<GradientTile> all_tiles(const ConvolutionSizes &size) {
    const bool is_dense = size.x.dilate == 1;  // the numbers of a window's row are consecutive
    const std::ptrdiff_t numbers = is_dense ? size.x.kernel * size.channels : size.channels;
    std::vector<GradientTile> found;
    for (std::ptrdiff_t filter = 0, vectors; filter < size.filters; filter += vectors * Width) {
        const std::ptrdiff_t left = (size.filters - filter - 1) / Width + 1;
        vectors = left == 3 ? 3 : std::min<std::ptrdiff_t>(left, 2);
        const std::ptrdiff_t tiles = (numbers - 1) / (kSums<Width> / vectors) + 1;
        for (std::ptrdiff_t row = 0; row < size.y.kernel; ++row) {
            for (std::ptrdiff_t column = 0; column < (is_dense ? 1 : size.x.kernel); ++column) {
                for (std::ptrdiff_t i = 0; i < tiles; ++i) {
                    const std::ptrdiff_t first = numbers * i / tiles;
                    const int count = static_cast<int>(numbers * (i + 1) / tiles - first);
                    found.push_back({filter, row, column, first, count, static_cast<int>(vectors)});
                }
            }
        }
    }
    return found;
}

std::ptrdiff_t threads_for(const ConvolutionSizes &size) {
    const std::ptrdiff_t work =
        size.images * size.y.result * size.x.result * size.filters * size.channels * size.y.kernel * size.x.kernel;
    return std::clamp<std::ptrdiff_t>(work / kMinWork, 1, std::max(size.threads, 1));
}

template <int Width>
void weight_gradients(const ConvolutionGradients &run) {
    const std::vector<GradientTile> tiles = all_tiles<Width>(run.size);
    const std::ptrdiff_t parts = threads_for(run.size), count = tiles.size();
    if (run.bias) std::fill_n(run.bias, run.size.filters, 0.0f);
    std::vector<TileGradients<Width>> shares;
    shares.reserve(parts);
    for (std::ptrdiff_t part = 0; part < parts; ++part) {
        const std::ptrdiff_t first = count * part / parts;
        shares.emplace_back(run, tiles.data() + first, count * (part + 1) / parts - first);
    }
    parallel_for(parts, static_cast<int>(parts),
                 [&](std::ptrdiff_t part) { run_wide<Width, TileGradients<Width>>(shares.data() + part); });
}

}  // namespace

void convolve(const TrainedConvolution &run) {
    std::vector<float> packed;
    ImageLayer layer = packed_layer(run.size, run.weight, run.bias, packed);
    layer.data = run.data, layer.result = run.result;
    run_layers({layer}, run.size.threads);
}

void convolution_data(const ConvolutionData &run) {
    const Axis &y = run.size.y, &x = run.size.x;
    const std::ptrdiff_t channels = run.size.channels;
    std::vector<std::vector<float>> packed(y.stride * x.stride);
    std::vector<ImageLayer> layers;
    bool is_filled = false;
    for (std::ptrdiff_t i = 0; i < y.stride * x.stride; ++i) {
        const Phase down = phase(y, i / x.stride), across = phase(x, i % x.stride);
        if (!down.axis.result || !across.axis.result) continue;
        if (!down.axis.kernel || !across.axis.kernel) {
            const std::ptrdiff_t pixels = is_filled ? 0 : run.size.images * y.size * x.size;
            is_filled = true;
            if (!run.bias) std::fill_n(run.data, pixels * channels, 0.0f);
            for (std::ptrdiff_t at = 0; run.bias && at < pixels; ++at)
                std::copy_n(run.bias, channels, run.data + at * channels);
            continue;
        }
        const StridedWeight &w = run.weight;
        const StridedWeight turned{w.numbers + down.tap * w.row + across.tap * w.column, w.channel, w.filter,
                                   -y.stride * w.row, -x.stride * w.column};
        ImageLayer layer = packed_layer({run.size.images, run.size.filters, channels, down.axis, across.axis, 1},
                                        turned, run.bias, packed[i]);
        layer.data = run.grad;
        layer.result = run.data + (down.first * x.size + across.first) * channels;
        layer.result_gap = x.stride * channels, layer.row_gap = y.stride * x.size * channels;
        layer.image_gap = y.size * x.size * channels;
        layers.push_back(layer);
    }
    run_layers(layers, run.size.threads);
}

void overlapping_data(const ConvolutionData &run) {
    const std::vector<float> packed = OverlapSums::pack(run);
    const std::ptrdiff_t rows = run.size.images * run.size.y.size, parts = std::min(threads_for(run.size), rows);
    std::vector<OverlapSums> shares;
    shares.reserve(parts);
    for (std::ptrdiff_t part = 0; part < parts; ++part) shares.emplace_back(run, packed);
    parallel_for(parts, static_cast<int>(parts),
                 [&](std::ptrdiff_t part) { shares[part].compute(rows * part / parts, rows * (part + 1) / parts); });
}

void convolution_gradients(const ConvolutionGradients &run) {
    best_width() == 16 && run.size.filters > 8 ? weight_gradients<16>(run) : weight_gradients<8>(run);
}

}  // namespace dpmodule

#endif
