// A tile of the result (some pixels and a block of filters) is accumulated in registers. The weight is processed in
// parts, each for all nearby pixels, so that it stays in the L1 cache, while the next part is prefetched.
#include "image_layers.hpp"

#if defined(__x86_64__)

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <thread>
#include <type_traits>

#include "layer_functions.hpp"
#include "parallel.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kLine = 16;         // elements per cache line
constexpr std::ptrdiff_t kPart = 65536;      // elements of the weight per part
constexpr std::ptrdiff_t kNear = 65536;      // elements of data and result per part
constexpr std::ptrdiff_t kMaxNear = 1024;    // pixels per part, whose list of windows fits in the L1 cache
constexpr std::ptrdiff_t kMinPixels = 12;    // minimal pixels per thread
constexpr std::ptrdiff_t kMinWork = 131072;  // minimal multiplications per thread
constexpr std::ptrdiff_t kShallow = 256;     // products of a window up to which finding its place takes as long
constexpr int kTurns = 4096;                 // spins before yielding the processor

// A window of the data.
struct Window {
    std::ptrdiff_t begin;  // element index of its start
    std::ptrdiff_t to;     // element index of its result
    std::int32_t run;      // number of consecutive windows, one pixel step apart
    std::int32_t results;  // number of consecutive results, one pixel apart
};

// Rows and columns of an image with the padding that windows read, the start of the first window, and where the image
// begins.
struct Frame {
    std::ptrdiff_t rows, columns, top, left, above, before;
};

// A part of the windows; parts of several rows or columns contain all channels.
struct Part {
    std::ptrdiff_t row, row_end, column, column_end, channel, channels;
};

// One thread's share of a convolution.
struct Share {
    const std::vector<Part> &parts;
    std::ptrdiff_t pixel, pixel_end, block, block_end;
    std::ptrdiff_t near;        // pixels at a time
    const float *weight;        // of the first block
    const float *next;          // data read next, which is prefetched; or null
    Window *windows = nullptr;  // at a time; null if they are the pixels of the data
    float *padded = nullptr;    // copy of the data that these windows read; null if all are inside
};

// Memory of a thread for the windows of any share.
struct Workspace {
    std::unique_ptr<Window[]> windows;
    std::unique_ptr<float[]> padded;
};

std::vector<Part> cut(const ImageLayer &c) {
    const std::ptrdiff_t depth = std::max(kLine, kPart / c.block), columns = c.x.kernel, channels = c.channels;
    const std::ptrdiff_t channel_step = channels > depth ? (channels - 1) / ((channels - 1) / depth + 1) + 1 : channels;
    const std::ptrdiff_t column_step = std::clamp<std::ptrdiff_t>(depth / channels, 1, columns);
    const std::ptrdiff_t row_step =
        column_step < columns ? 1 : std::clamp<std::ptrdiff_t>(depth / (channels * columns), 1, c.y.kernel);
    std::vector<Part> found;
    for (std::ptrdiff_t row = 0; row < c.y.kernel; row += row_step) {
        for (std::ptrdiff_t column = 0; column < columns; column += column_step) {
            for (std::ptrdiff_t channel = 0; channel < channels; channel += channel_step) {
                found.push_back({row, std::min(row + row_step, c.y.kernel), column,
                                 std::min(column + column_step, columns), channel,
                                 std::min(channel_step, channels - channel)});
            }
        }
    }
    return found;
}

Frame frame_of(const ImageLayer &c) {
    const auto end = [](const Axis &axis) {
        const std::ptrdiff_t windows = (axis.result - 1) * axis.stride + (axis.kernel - 1) * axis.dilate + 1;
        return std::max(axis.size, windows - axis.pad) + std::max<std::ptrdiff_t>(axis.pad, 0);
    };
    const std::ptrdiff_t above = std::max<std::ptrdiff_t>(c.y.pad, 0), before = std::max<std::ptrdiff_t>(c.x.pad, 0);
    return {end(c.y), end(c.x), above - c.y.pad, before - c.x.pad, above, before};
}

// The rows that some windows read, among those of all images.
struct RowRange {
    std::ptrdiff_t begin, end;
};

RowRange rows_of(const ImageLayer &c, const Frame &frame, std::ptrdiff_t pixel, std::ptrdiff_t count) {
    const auto first = [&](std::ptrdiff_t at) {
        const std::ptrdiff_t row = at / c.x.result;
        return row / c.y.result * frame.rows + frame.top + row % c.y.result * c.y.stride;
    };
    return {first(pixel), first(pixel + count - 1) + (c.y.kernel - 1) * c.y.dilate + 1};
}

void copy_padded(const ImageLayer &c, const Frame &frame, const RowRange &rows, float *to) {
    const std::ptrdiff_t channels = c.groups * c.channels, pitch = frame.columns * channels;
    for (std::ptrdiff_t at = rows.begin; at < rows.end; ++at, to += pitch) {
        const std::ptrdiff_t y = at % frame.rows - frame.above;
        if (y < 0 || y >= c.y.size) {
            std::fill_n(to, pitch, 0.0f);
            continue;
        }
        const float *from = c.data + (at / frame.rows * c.y.size + y) * c.x.size * c.data_gap;
        float *const inside = std::fill_n(to, frame.before * channels, 0.0f);
        float *next = inside;
        if (c.data_gap == channels) next = std::copy_n(from, c.x.size * channels, next);
        for (; next < inside + c.x.size * channels; from += c.data_gap) next = std::copy_n(from, channels, next);
        std::fill(next, to + pitch, 0.0f);
    }
}

// Lists windows, whose data begins with the row `first` among those of all images.
void place(const ImageLayer &c, const Frame &frame, std::ptrdiff_t first, std::ptrdiff_t pixel, Window *to,
           std::ptrdiff_t count) {
    const std::ptrdiff_t pitch = c.x.stride * c.data_gap;
    const Window *after = nullptr;
    for (std::ptrdiff_t end = count; end > 0;) {  // from the last row on, since runs go on in the next one
        const std::ptrdiff_t row = (pixel + end - 1) / c.x.result, image = row / c.y.result, y = row % c.y.result;
        const std::ptrdiff_t begin = std::max<std::ptrdiff_t>(0, row * c.x.result - pixel);
        const std::ptrdiff_t x = pixel + begin - row * c.x.result, past = end - begin;
        const std::ptrdiff_t line = image * frame.rows + frame.top + y * c.y.stride - first;
        Window window{(line * frame.columns + frame.left + x * c.x.stride) * c.data_gap,
                      image * c.image_gap + y * c.row_gap + x * c.result_gap, 0, 0};
        const bool goes_on = after && after->begin - window.begin == past * pitch;
        const bool follows = after && after->to - window.to == past * c.result_gap;
        window.run = static_cast<std::int32_t>(past + (goes_on ? after->run : 0));
        window.results = static_cast<std::int32_t>(past + (follows ? after->results : 0));
        for (std::ptrdiff_t i = begin; i < end; ++i) {
            to[i] = window;
            window.begin += pitch;
            window.to += c.result_gap;
            --window.run;
            --window.results;
        }
        after = to + begin;
        end = begin;
    }
}

// Tiles of the first `Vectors` of a block, whose other filters are padding.
template <int Width, int Vectors, std::ptrdiff_t kBlock>
struct Tiles {
    using V = Vector<Width>;
    using Floats = typename V::Floats;

    const ImageLayer &c;
    const Share &share;
    const float *data, *bias, *other;  // of a group, of a block, and for a block or null
    float *result;                     // of a block
    std::ptrdiff_t columns;            // filters of the group from this block on
    std::ptrdiff_t first_pixel;
    bool begins, ends;

    // Index of the first number of a pixel's window.
    DPMODULE_INLINE std::ptrdiff_t start(std::ptrdiff_t pixel) const {
        return share.windows ? share.windows[pixel].begin : (first_pixel + pixel) * c.data_gap;
    }

    // True if the numbers of a row of a window have consecutive addresses.
    DPMODULE_INLINE bool rows_are_dense() const {
        return c.x.dilate == 1 && (c.data_gap == c.channels || c.x.kernel == 1);
    }

    template <int Rows>
    DPMODULE_INLINE static void add(const float *const (&from)[Rows], std::ptrdiff_t count, const float *weight,
                                    const float *ahead, std::ptrdiff_t step, Floats (&sums)[Rows][Vectors]) {
        for (std::ptrdiff_t k = 0; k < count; ++k) {
            Floats factors[Vectors];
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) factors[v] = V::load(weight + k * kBlock + v * Width);
            __builtin_prefetch(ahead, 0, 2);  // the L1 cache is reserved for the current data
            ahead += step;
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const float number = from[r][k];
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) sums[r][v] += factors[v] * number;
            }
        }
    }

    // The same for consecutive windows, `pitch` apart, with few addresses, which fit in registers; prefetches if `step`.
    template <int Rows>
    DPMODULE_INLINE static void add_run(const float *row, std::ptrdiff_t pitch, std::ptrdiff_t count,
                                        const float *&weight, const float *&ahead, std::ptrdiff_t step,
                                        Floats (&sums)[Rows][Vectors]) {
        constexpr int kThirds = (Rows + 2) / 3;
        const float *from[kThirds];
#pragma GCC unroll 4
        for (int third = 0; third < kThirds; ++third) from[third] = row + 3 * third * pitch;
        for (const float *end = weight + count * kBlock; weight != end; weight += kBlock) {
            Floats factors[Vectors];
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) factors[v] = V::load(weight + v * Width);
            if (step) __builtin_prefetch(ahead, 0, 2);
            ahead += step;
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const float number = from[r / 3][r % 3 * pitch];
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) sums[r][v] += factors[v] * number;
            }
#pragma GCC unroll 4
            for (int third = 0; third < kThirds; ++third) ++from[third];
        }
    }

    // The products of consecutive windows with a part of the weight.
    template <int Rows>
    DPMODULE_INLINE void sum_run(const float *row, const Part &part, const float *weight, const float *ahead,
                                 std::ptrdiff_t step, Floats (&sums)[Rows][Vectors]) const {
        const std::ptrdiff_t pitch = c.x.stride * c.data_gap, down = c.y.dilate * c.x.size * c.data_gap;
        const std::ptrdiff_t right = c.x.dilate * c.data_gap, columns = part.column_end - part.column;
        const std::ptrdiff_t together = rows_are_dense() ? columns : 1;  // columns with consecutive addresses
        const std::ptrdiff_t count = (together - 1) * c.channels + part.channels;
        row += part.row * down + part.column * right + part.channel;
        for (std::ptrdiff_t rows = part.row_end - part.row; rows > 0; --rows, row += down) {
            for (std::ptrdiff_t column = 0; column < columns; column += together)
                add_run<Rows>(row + column * right, pitch, count, weight, ahead, step, sums);
        }
    }

    // The same for windows in several rows.
    template <int Rows>
    DPMODULE_INLINE void sum(const Window *windows, const Part &part, const float *weight, const float *ahead,
                             std::ptrdiff_t pace, Floats (&sums)[Rows][Vectors]) const {
        const std::ptrdiff_t columns = part.column_end - part.column, step = rows_are_dense() ? columns : 1;
        const std::ptrdiff_t count = (step - 1) * c.channels + part.channels;
        for (std::ptrdiff_t row = part.row; row < part.row_end; ++row) {
            for (std::ptrdiff_t column = part.column; column < part.column_end; column += step) {
                const std::ptrdiff_t shift =
                    (row * c.y.dilate * c.x.size + column * c.x.dilate) * c.data_gap + part.channel;
                const float *from[Rows];
#pragma GCC unroll 16
                for (int r = 0; r < Rows; ++r) from[r] = data + windows[r].begin + shift;
                add<Rows>(from, count, weight, ahead, pace, sums);
                weight += count * kBlock;
                ahead += count * pace;
            }
        }
    }

    // Initial sums of some pixels; `before` has `gap` elements for each, of which `columns` belong to this group.
    template <int Rows>
    DPMODULE_INLINE void begin(const float *before, std::ptrdiff_t gap, Floats (&sums)[Rows][Vectors]) const {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
            const Floats first = begins ? V::load(bias + v * Width) : Floats{};
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) sums[r][v] = first;
        }
        if (!before) return;
        if (columns >= Vectors * Width) {
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) sums[r][v] += V::load(before + r * gap + v * Width);
            }
        } else {
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v)
                    sums[r][v] += V::load(before + r * gap + v * Width, columns - v * Width);
            }
        }
    }

    template <int Rows>
    DPMODULE_INLINE void rectify(bool clamp, Floats (&sums)[Rows][Vectors]) const {
        const Floats zero{};
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) {
                Floats &sum = sums[r][v];
                sum = clamp ? V::between(sum, c.low, c.high) : sum > zero ? sum : zero;
            }
        }
    }

    template <int Rows>
    DPMODULE_INLINE static void put(float *to, std::ptrdiff_t gap, const Floats (&sums)[Rows][Vectors]) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r, to += gap) {
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) std::memcpy(to + v * Width, &sums[r][v], sizeof(Floats));
        }
    }

    template <int Rows>
    DPMODULE_INLINE void end(float *to, std::ptrdiff_t gap, Floats (&sums)[Rows][Vectors]) const {
        const bool relu = ends && c.function == LayerFunction::Relu;
        const bool clamp = ends && c.function == LayerFunction::Clamp;
        if (relu || clamp) rectify<Rows>(clamp, sums);
        if (columns >= Vectors * Width) {
            put<Rows>(to, gap, sums);
        } else {
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) V::store(to + r * gap + v * Width, sums[r][v], columns - v * Width);
            }
        }
        if (!ends || relu || clamp || c.function == LayerFunction::None) return;
        const std::ptrdiff_t rows = Rows;
        run_best<InPlace>(Applied{c.function, c.low, c.high}, to, rows, gap,
                          std::min(columns, kBlock));  // still in the cache
    }

    // Reads the results of some pixels, or writes them.
    template <int Rows, bool Writes>
    DPMODULE_INLINE void exchange(const Window *windows, float *own) const {
        for (int r = 0; r < Rows; ++r, own += kBlock) {
            float *const place = result + windows[r].to;
            float *const from = Writes ? own : place, *const to = Writes ? place : own;
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) {
                const std::ptrdiff_t count = columns - v * Width;
                V::store(to + v * Width, V::load(from + v * Width, count), count);
            }
        }
    }

    template <int Rows>
    DPMODULE_INLINE void tile(std::ptrdiff_t pixel, const Part &part, const float *weight, const float *ahead,
                              std::ptrdiff_t pace) const {
        const Window *const windows = share.windows ? share.windows + pixel : nullptr;
        const std::ptrdiff_t place = first_pixel + pixel;
        const bool is_apart = windows && windows[0].results < Rows;
        float apart[Rows * kBlock];  // pixels of several rows of a result whose rows do not follow each other
        float *const to = is_apart ? apart : result + (windows ? windows[0].to : place * c.result_gap);
        const std::ptrdiff_t result_gap = is_apart ? kBlock : c.result_gap;
        if (is_apart && !begins) exchange<Rows, false>(windows, apart);
        const float *before = to;
        const std::ptrdiff_t gap = begins && other ? c.other_gap : result_gap;
        if (begins) before = other ? other + place * gap : nullptr;
        Floats sums[Rows][Vectors];
        begin<Rows>(before, gap, sums);
        const float *soon = before ? before + Rows * gap : to + Rows * gap;
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r, soon += gap) {
#pragma GCC unroll 4
            for (int at = 0; at < Vectors * Width; at += kLine) __builtin_prefetch(soon + at, 1);
        }
        if (!windows || windows[0].run >= Rows) {
            sum_run<Rows>(data + start(pixel), part, weight, ahead, pace, sums);
        } else {
            sum<Rows>(windows, part, weight, ahead, pace, sums);
        }
        end<Rows>(to, result_gap, sums);
        if (is_apart) exchange<Rows, true>(windows, apart);
    }

    // Computes tiles of consecutive windows from `pixel` on, before `last`, and returns the first other pixel. Between
    // tiles of few products, finding the places of windows takes as long as the products.
    template <int Rows>
    DPMODULE_INLINE std::ptrdiff_t run_of_tiles(std::ptrdiff_t pixel, std::ptrdiff_t last, const float *weight) const {
        const std::ptrdiff_t pitch = c.x.stride * c.data_gap, down = c.y.dilate * c.x.size * c.data_gap;
        const std::ptrdiff_t right = c.x.dilate * c.data_gap, gap = c.result_gap;
        const std::ptrdiff_t together = rows_are_dense() ? c.x.kernel : 1, count = together * c.channels;
        const float *first = data + start(pixel);
        float *to = result + (first_pixel + pixel) * gap;
        if (share.windows) {
            const Window &window = share.windows[pixel];
            last = std::min({last, pixel + window.run, pixel + window.results});
            to = result + window.to;
        }
        for (; pixel + Rows <= last; pixel += Rows, first += Rows * pitch, to += Rows * gap) {
            Floats sums[Rows][Vectors];
            begin<Rows>(nullptr, 0, sums);
            const float *factors = weight, *ahead = nullptr, *row = first;
            for (std::ptrdiff_t i = c.y.kernel; i > 0; --i, row += down) {
                const float *line = row;
                for (std::ptrdiff_t j = 0; j < c.x.kernel; j += together, line += right)
                    add_run<Rows>(line, pitch, count, factors, ahead, 0, sums);
            }
            end<Rows>(to, gap, sums);
        }
        return pixel;
    }

    // True if every tile of consecutive windows begins and ends with this part of the weight.
    DPMODULE_INLINE bool is_whole() const { return begins && ends && !other && columns >= Vectors * Width; }

    template <int Rows>
    DPMODULE_INLINE void all(std::ptrdiff_t pixel, std::ptrdiff_t end, const Part &part, const float *weight,
                             const float *next, const float *next_end, std::ptrdiff_t depth) const {
        for (; pixel + Rows <= end; pixel += Rows) {
            if (depth <= kShallow && is_whole()) {
                pixel = run_of_tiles<Rows>(pixel, end, weight);
                if (pixel + Rows > end) break;
            }
            const float *soon = data + start(std::min(pixel + Rows, end - 1)) + part.channel;
            const bool more = next < next_end;
            tile<Rows>(pixel, part, weight, more ? next : soon, more ? kLine : Rows);
            if (more) next += depth * kLine;
        }
        if constexpr (Rows > 1) all<(Rows > 6 ? Rows / 2 : Rows - 1)>(pixel, end, part, weight, next, next_end, depth);
    }
};

template <int Count>
using Constant = std::integral_constant<int, Count>;

// The vectors of narrower tiles for a last block with few filters; all if there are none.
constexpr int fewer_vectors(int width, int vectors) {
    if (width == 8) return vectors == 2 ? 1 : vectors;
    return vectors > 2 ? vectors - 1 : vectors;
}

template <int Width, int Vectors, int Rows>
DPMODULE_INLINE void convolve_with(const ImageLayer &layer, const Share &share) {
    constexpr std::ptrdiff_t kBlock = Width * Vectors;
    constexpr int kFewer = fewer_vectors(Width, Vectors), kLastRows = kFewer == Vectors ? Rows : kFewer == 2 ? 12 : 8;
    const Frame frame = frame_of(layer);
    ImageLayer c = layer;
    if (share.padded) c.data = share.padded, c.data_gap = c.groups * c.channels, c.x.size = frame.columns;
    const std::ptrdiff_t blocks = (c.filters - 1) / kBlock + 1;
    for (std::ptrdiff_t first = share.pixel; first < share.pixel_end; first += share.near) {
        const std::ptrdiff_t count = std::min(share.near, share.pixel_end - first);
        const RowRange rows = share.padded ? rows_of(layer, frame, first, count) : RowRange{0, 0};
        if (share.padded) copy_padded(layer, frame, rows, share.padded);
        if (share.windows) place(c, frame, rows.begin, first, share.windows, count);
        const float *weight = share.weight;
        for (std::ptrdiff_t block = share.block; block < share.block_end; ++block) {
            const std::ptrdiff_t group = block / blocks, filter = block % blocks * kBlock;
            const std::ptrdiff_t place = group * c.filters + filter;
            for (const Part &part : share.parts) {
                const bool begins = &part == &share.parts.front(), ends = &part == &share.parts.back();
                const std::ptrdiff_t depth =
                    (part.row_end - part.row) * (part.column_end - part.column) * part.channels;
                const float *part_end = weight + depth * kBlock;
                const bool is_last = ends && block + 1 == share.block_end;
                const float *next = !is_last                               ? part_end
                                    : first + share.near < share.pixel_end ? share.weight
                                                                           : share.next;
                const auto compute = [&](auto vectors, auto together) __attribute__((always_inline)) {
                    const Tiles<Width, vectors, kBlock> tiles{c,
                                                              share,
                                                              c.data + group * c.channels,
                                                              c.bias + block * kBlock,
                                                              c.other ? c.other + place : nullptr,
                                                              c.result + place,
                                                              c.filters - filter,
                                                              first,
                                                              begins,
                                                              ends};
                    const float *const next_end = next + (next ? depth * kBlock : 0);
                    tiles.template all<together>(0, count, part, weight, next, next_end, depth);
                };
                if (kFewer < Vectors && c.filters - filter <= kFewer * Width) {
                    compute(Constant<kFewer>{}, Constant<kLastRows>{});
                } else {
                    compute(Constant<Vectors>{}, Constant<Rows>{});
                }
                weight = part_end;
            }
        }
    }
}

DPMODULE_AVX2 void avx2_16(const ImageLayer &c, const Share &share) { convolve_with<8, 2, 6>(c, share); }
DPMODULE_AVX2 void avx2_24(const ImageLayer &c, const Share &share) { convolve_with<8, 3, 4>(c, share); }
DPMODULE_AVX512 void avx512_16(const ImageLayer &c, const Share &share) { convolve_with<16, 1, 12>(c, share); }
DPMODULE_AVX512 void avx512_32(const ImageLayer &c, const Share &share) { convolve_with<16, 2, 12>(c, share); }
DPMODULE_AVX512 void avx512_48(const ImageLayer &c, const Share &share) { convolve_with<16, 3, 8>(c, share); }
DPMODULE_AVX512 void avx512_64(const ImageLayer &c, const Share &share) { convolve_with<16, 4, 6>(c, share); }

using Run = void (*)(const ImageLayer &, const Share &);

Run kernel(std::ptrdiff_t block) {
    if (vector::best_instructions() == vector::Instructions::Avx2) return block == 24 ? avx2_24 : avx2_16;
    return block == 16 ? avx512_16 : block == 32 ? avx512_32 : block == 48 ? avx512_48 : avx512_64;
}

// One of several layers, and its distribution to threads.
struct Step {
    const ImageLayer &c;
    std::vector<Part> parts;
    std::ptrdiff_t windows = 0, padded = 0;  // sizes of a thread's memory
    std::vector<Share> shares;
    std::vector<std::atomic<bool>> taken;
    std::atomic<std::size_t> done{0};

    Step(const ImageLayer &layer, std::ptrdiff_t threads) : c(layer), taken(threads) {
        const std::ptrdiff_t pixels = c.images * c.y.result * c.x.result;
        if (c.kind == LayerKind::Convolution) {
            share_convolution(pixels, threads);
            return;
        }
        const bool by_row = c.kind == LayerKind::MaxRows || c.kind == LayerKind::MeanRows;
        const std::ptrdiff_t work = by_row ? c.images * c.y.size * c.x.size
                                           : pixels * c.groups * c.channels * c.y.kernel * c.x.kernel *
                                                 (c.kind == LayerKind::Grouped ? c.filters : 1);
        threads = std::clamp<std::ptrdiff_t>(work / kMinWork, 1, threads);
        for (std::ptrdiff_t i = 0; i < threads; ++i)
            shares.push_back({parts, pixels * i / threads, pixels * (i + 1) / threads, 0, 0, 0, nullptr, nullptr});
    }

    void share_convolution(std::ptrdiff_t pixels, std::ptrdiff_t threads) {
        parts = cut(c);
        const std::ptrdiff_t blocks = c.groups * ((c.filters - 1) / c.block + 1);
        const std::ptrdiff_t depth = c.y.kernel * c.x.kernel * c.channels;
        threads = std::clamp<std::ptrdiff_t>(pixels * depth * c.groups * c.filters / kMinWork, 1, threads);
        // every thread reads the whole of the smaller one of data and weight
        const bool is_wide = depth * c.filters > c.images * c.y.size * c.x.size * c.channels;
        const std::ptrdiff_t across = is_wide ? std::gcd(blocks, threads) : 1;
        const std::ptrdiff_t down = std::clamp<std::ptrdiff_t>(pixels / kMinPixels, 1, threads / across);
        const std::ptrdiff_t near =
            std::clamp<std::ptrdiff_t>(kNear / (c.groups * (c.channels + c.filters)), 96, kMaxNear);
        const std::ptrdiff_t room = std::min(near, pixels / down + 1);
        const auto is_plain = [](const Axis &axis) {
            return axis.kernel == 1 && axis.stride == 1 && axis.pad == 0 && axis.size == axis.result;
        };
        const bool is_flat = is_plain(c.y) && is_plain(c.x) && c.row_gap == c.x.result * c.result_gap &&
                             c.image_gap == c.y.result * c.row_gap;
        if (!is_flat) windows = room;
        const Frame frame = frame_of(c);
        std::ptrdiff_t rows = 0;
        for (std::ptrdiff_t y = 0; y < down && (frame.rows > c.y.size || frame.columns > c.x.size); ++y) {
            const std::ptrdiff_t end = pixels * (y + 1) / down;
            for (std::ptrdiff_t at = pixels * y / down; at < end; at += room) {
                const RowRange range = rows_of(c, frame, at, std::min(room, end - at));
                rows = std::max(rows, range.end - range.begin);
            }
        }
        padded = rows * frame.columns * c.groups * c.channels;
        for (std::ptrdiff_t i = 0; i < across * down; ++i) {
            const std::ptrdiff_t x = i / down, y = i % down, block = blocks * x / across;
            shares.push_back({parts, pixels * y / down, pixels * (y + 1) / down, block, blocks * (x + 1) / across, room,
                              c.weight + block * c.block * depth, nullptr});
        }
    }
};

void wait_for(const Step &step) {
    for (int turn = 0; step.done.load(std::memory_order_acquire) < step.shares.size(); ++turn) {
        if (turn < kTurns) {
            relax();
        } else {
            std::this_thread::yield();  // the other thread may need this processor
        }
    }
}

// The work of a thread: its own share of each convolution first, then unclaimed shares, since sleeping threads start
// late.
void of_one_thread(std::deque<Step> &steps, std::ptrdiff_t thread, const Workspace &space) {
    for (Step &step : steps) {
        const std::size_t count = step.shares.size();
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = (thread + i) % count;
            if (step.taken[at].exchange(true)) continue;
            Share share = step.shares[at];
            if (step.windows) share.windows = space.windows.get();
            if (step.padded) share.padded = space.padded.get();
            if (step.c.kind == LayerKind::Convolution) {
                kernel(step.c.block)(step.c, share);
            } else {
                compute_pixels(step.c, share.pixel, share.pixel_end);
            }
            step.done.fetch_add(1, std::memory_order_release);
        }
        wait_for(step);
    }
}

}  // namespace

std::ptrdiff_t convolution_block(std::ptrdiff_t filters) {
    switch (vector::best_instructions()) {
        case vector::Instructions::Avx512: {
            if (filters <= 16) return 16;
            const auto computed = [&](int vectors) {
                const std::ptrdiff_t block = 16 * vectors, full = filters / block, rest = filters % block;
                const std::ptrdiff_t fewer = 16 * fewer_vectors(16, vectors);
                return full * block + (rest > fewer ? block : rest ? fewer : 0);
            };
            const std::ptrdiff_t most = computed(4), some = computed(3), least = computed(2);
            return some < most ? (least < some ? 32 : 48) : least < most ? 32 : 64;
        }
        case vector::Instructions::Avx2: return filters > 16 && filters <= 24 ? 24 : 16;
        default: return 0;
    }
}

void run_layers(const std::vector<ImageLayer> &layers, int threads) {
    std::deque<Step> steps;
    std::size_t most = 1;
    std::ptrdiff_t windows = 0, padded = 0;
    for (const ImageLayer &each : layers) {
        Step &step = steps.emplace_back(each, threads);
        most = std::max(most, step.shares.size());
        windows = std::max(windows, step.windows);
        padded = std::max(padded, step.padded);
    }
    std::vector<Workspace> spaces(most);
    for (Workspace &space : spaces)
        space = {std::unique_ptr<Window[]>(new Window[windows]), std::unique_ptr<float[]>(new float[padded])};
    for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
        std::vector<Share> &shares = steps[i].shares, &next = steps[i + 1].shares;
        for (std::size_t at = 0; at < shares.size(); ++at) shares[at].next = next[at % next.size()].weight;
    }
    parallel_for(most, static_cast<int>(most),
                 [&](std::ptrdiff_t thread) { of_one_thread(steps, thread, spaces[thread]); });
}

}  // namespace dpmodule

#endif
