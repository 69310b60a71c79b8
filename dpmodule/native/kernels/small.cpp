#include "small.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "kernels.hpp"
#include "parallel.hpp"
#include "vector.hpp"

namespace dpmodule {

// Few rows
//
// Several rows of the weight are read together, with prefetching.

namespace {

constexpr std::ptrdiff_t kAhead = 256;         // prefetch distance in elements of a row
constexpr std::ptrdiff_t kMinWeight = 131072;  // minimal elements of the weight per thread

template <int Width, int Rows, int Units>
DPMODULE_INLINE void some_units(const FewRows &run, const float *rests, std::ptrdiff_t unit) {
    using V = Vector<Width>;
    typename V::Floats sums[Rows][Units]{}, data[Rows];
    const float *weight = run.weight + unit * run.weight_gap;
    const auto add = [&](std::ptrdiff_t k, const typename V::Ints &mask) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int u = 0; u < Units; ++u) {
            const typename V::Floats numbers = V::load(weight + u * run.weight_gap + k);
            const auto factors =
                reinterpret_cast<typename V::Floats>(reinterpret_cast<typename V::Ints>(numbers) & mask);
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r) sums[r][u] += factors * data[r];
        }
    };
    std::ptrdiff_t k = 0;
    for (; k + Width <= run.features; k += Width) {
#pragma GCC unroll 4
        for (int u = 0; u < Units; ++u) __builtin_prefetch(weight + u * run.weight_gap + k + kAhead);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) data[r] = V::load(run.data + r * run.data_gap + k);
        add(k, ~typename V::Ints{});
    }
    if (k < run.features) {  // the last vector overlaps the one before, whose numbers do not count again
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) data[r] = V::load(rests + r * Width);
        typename V::Ints mask;
        std::memcpy(&mask, rests + Rows * Width, sizeof mask);
        add(run.features - Width, mask);
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int u = 0; u < Units; ++u) {
            float sum = V::total(sums[r][u]);
            if (run.bias) sum += run.bias[unit + u];
            run.result[r * run.units + unit + u] = run.rectified && sum < 0 ? 0 : sum;  // NaN stays
        }
    }
}

template <int Width, int Rows>
DPMODULE_INLINE void units_between(const FewRows &run, std::ptrdiff_t unit, std::ptrdiff_t end) {
    if constexpr (Width > 1) {
        if (run.features < Width) return units_between<(Width > 4 ? 4 : 1), Rows>(run, unit, end);
    }
    constexpr int kUnits = Width < 16 && Rows > 2 ? 2 : 4;  // as many sums as registers
    float rests[(Rows + 1) * Width] = {};  // the last numbers of each row, at the end of a vector, and a mask of them
    const std::ptrdiff_t rest = run.features % Width;
    if (rest) std::memset(rests + (Rows + 1) * Width - rest, -1, sizeof(float) * rest);
    for (int r = 0; r < Rows; ++r) {
        const float *row_end = run.data + r * run.data_gap + run.features;
        std::copy(row_end - rest, row_end, rests + (r + 1) * Width - rest);
    }
    for (; unit + kUnits <= end; unit += kUnits) some_units<Width, Rows, kUnits>(run, rests, unit);
    for (; unit < end; ++unit) some_units<Width, Rows, 1>(run, rests, unit);
}

struct SomeUnits {
    template <int Width>
    DPMODULE_INLINE static void run(const FewRows &run, std::ptrdiff_t begin, std::ptrdiff_t end) {
        switch (run.rows) {
            case 1: return units_between<Width, 1>(run, begin, end);
            case 2: return units_between<Width, 2>(run, begin, end);
            case 3: return units_between<Width, 3>(run, begin, end);
            default: return units_between<Width, 4>(run, begin, end);
        }
    }
};

}  // namespace

void multiply_few_rows(const FewRows &run) {
    parallel_ranges(run.units, std::min<std::ptrdiff_t>(run.threads, run.units * run.features / kMinWeight),
                    [&](std::ptrdiff_t begin, std::ptrdiff_t end) { run_best<SomeUnits>(run, begin, end); });
}

// Softmax of short rows
//
// One vector of rows is transposed, so that each class of all these rows is one vector.

namespace {

// Missing rows are padded with zeros.
template <int Width>
DPMODULE_INLINE void some_rows(const float *scores, float *result, std::ptrdiff_t rows, std::ptrdiff_t classes,
                               bool is_log) {
    using V = Vector<Width>;
    using Floats = typename V::Floats;
    float turned[kMaxClasses][Width] = {};
    for (std::ptrdiff_t row = 0; row < rows; ++row) {
        for (std::ptrdiff_t k = 0; k < classes; ++k) turned[k][row] = scores[row * classes + k];
    }
    Floats largest = V::load(turned[0]), sum{};
    for (std::ptrdiff_t k = 1; k < classes; ++k) {
        const Floats now = V::load(turned[k]);
        largest = now > largest ? now : largest;
    }
    for (std::ptrdiff_t k = 0; k < classes; ++k) {
        const Floats below = V::load(turned[k]) - largest;
        const typename V::Exponent e = V::exponent(V::between(below, -87.0f, 0.0f));
        const Floats power = below < -87.0f ? Floats{} : e.part * e.scale + e.scale;  // NaN propagates
        sum += power;
        V::store(turned[k], is_log ? below : power);
    }
    for (std::ptrdiff_t i = 0; is_log && i < Width; ++i) sum[i] = std::log(sum[i]);
    for (std::ptrdiff_t k = 0; k < classes; ++k) {
        const Floats now = V::load(turned[k]);
        V::store(turned[k], is_log ? now - sum : now / sum);
    }
    for (std::ptrdiff_t row = 0; row < rows; ++row) {
        for (std::ptrdiff_t k = 0; k < classes; ++k) result[row * classes + k] = turned[k][row];
    }
}

struct AllRows {
    template <int Width>
    DPMODULE_INLINE static void run(const Softmax &run) {
        for (std::ptrdiff_t row = 0; row < run.rows; row += Width) {
            const std::ptrdiff_t at = row * run.classes, rows = std::min<std::ptrdiff_t>(Width, run.rows - row);
            some_rows<Width>(run.scores + at, run.result + at, rows, run.classes, run.is_log);
        }
    }
};

}  // namespace

void softmax(const Softmax &run) { run_best<AllRows>(run); }

// Non-finite elements

namespace {

// x - x is 0 for finite x, else NaN, which propagates through sums.
struct DifferencesVanish {
    // Eight streams are read together, which increases the memory bandwidth by half.
    template <int Width>
    DPMODULE_INLINE static bool run(const float *at, std::ptrdiff_t count) {
        using V = Vector<Width>;
        constexpr int kRuns = 8;
        const std::ptrdiff_t run = count / (kRuns * Width) * Width;
        typename V::Floats sums[kRuns] = {};
        for (std::ptrdiff_t i = 0; i < run; i += Width) {
#pragma GCC unroll 8
            for (int k = 0; k < kRuns; ++k) {
                const typename V::Floats now = V::load(at + k * run + i);
                sums[k] += now - now;
            }
        }
        float each[kRuns * Width], sum = 0;
        std::memcpy(each, sums, sizeof each);
        for (const float one : each) sum += one;
        for (std::ptrdiff_t i = kRuns * run; i < count; ++i) sum += at[i] - at[i];
        return sum == 0;
    }
};

}  // namespace

bool all_finite(const float *at, std::ptrdiff_t count) { return run_best<DifferencesVanish>(at, count); }

// Equal numbers

namespace {

struct GroupItem {
    std::uint64_t number;  // minus the least one
    std::int64_t place;
};

constexpr int digit_bits = 11;
constexpr std::size_t digits = std::size_t{1} << digit_bits;

// Stable sort by one digit.
void sort_by_digit(const GroupItem *from, GroupItem *to, std::size_t count, int shift) {
    std::size_t starts[digits + 1] = {};
    const auto digit = [shift](const GroupItem &item) { return (item.number >> shift) & (digits - 1); };
    for (std::size_t i = 0; i < count; ++i) ++starts[digit(from[i]) + 1];
    for (std::size_t i = 0; i < digits; ++i) starts[i + 1] += starts[i];
    for (std::size_t i = 0; i < count; ++i) to[starts[digit(from[i])]++] = from[i];
}

}  // namespace

bool group_numbers(const Groups &call) {
    call.found = 0;
    if (!call.count) return true;
    const std::unique_ptr<GroupItem[]> memory(new (std::nothrow) GroupItem[2 * call.count]);
    if (!memory) return false;
    GroupItem *items = memory.get(), *other = items + call.count;
    const auto ends = std::minmax_element(call.numbers, call.numbers + call.count);
    const std::uint64_t least = static_cast<std::uint64_t>(*ends.first);
    const std::uint64_t range = static_cast<std::uint64_t>(*ends.second) - least;
    for (std::size_t i = 0; i < call.count; ++i) {
        items[i] = {static_cast<std::uint64_t>(call.numbers[i]) - least,
                    call.given ? call.given[i] : static_cast<std::int64_t>(i)};
    }
    for (int shift = 0; shift < 64 && range >> shift; shift += digit_bits) {
        sort_by_digit(items, other, call.count, shift);
        std::swap(items, other);
    }
    for (std::size_t i = 0; i < call.count; ++i) {
        call.places[i] = items[i].place;
        if (i && items[i].number == items[i - 1].number) continue;
        call.distinct[call.found] = static_cast<std::int64_t>(items[i].number + least);
        call.starts[call.found++] = static_cast<std::int64_t>(i);
    }
    return true;
}

// Windows as rows

namespace {

constexpr int kRows = 16;  // rows that are transposed together, at least a vector

// Calls `run(row, pixels, count)` for up to `kRows` elements of every window: where the elements of its first channel
// are in the rows, their addresses in the image, null in the padding, and their number.
template <class Run>
void each_part(const ImageWindows &w, const Run &run) {
    const std::ptrdiff_t area = w.kernel[0] * w.kernel[1];
    float *row = w.rows, *pixels[kRows];
    for (std::ptrdiff_t n = 0; n < w.number; ++n) {
        for (std::ptrdiff_t y = 0; y < w.counts[0]; ++y) {
            for (std::ptrdiff_t x = 0; x < w.counts[1]; ++x, row += w.channels * area) {
                float *at = row;
                int count = 0;
                for (std::ptrdiff_t i = 0; i < w.kernel[0]; ++i) {
                    const std::ptrdiff_t down = y * w.stride[0] - w.pad[0] + i * w.dilate[0];
                    const bool has_row = down >= 0 && down < w.sizes[0];
                    for (std::ptrdiff_t j = 0; j < w.kernel[1]; ++j) {
                        const std::ptrdiff_t across = x * w.stride[1] - w.pad[1] + j * w.dilate[1];
                        const bool inside = has_row && across >= 0 && across < w.sizes[1];
                        float *from = w.image + n * w.gaps[0] + down * w.gaps[2] + across * w.gaps[3];
                        pixels[count++] = inside ? from : nullptr;
                        if (count < kRows) continue;
                        run(at, pixels, count);
                        at += count;
                        count = 0;
                    }
                }
                if (count) run(at, pixels, count);
            }
        }
    }
}

}  // namespace

void unfold(const ImageWindows &w) {
    const std::ptrdiff_t area = w.kernel[0] * w.kernel[1], gap = w.gaps[1];
    each_part(w, [&](float *row, float *const *pixels, int count) {
        if (gap == 1) return vector::kernels().interleave(count, static_cast<int>(w.channels), pixels, row, area);
        for (int i = 0; i < count; ++i) {
            for (std::ptrdiff_t c = 0; c < w.channels; ++c) row[c * area + i] = pixels[i] ? pixels[i][c * gap] : 0;
        }
    });
}

void fold(const ImageWindows &w) {
    const std::ptrdiff_t area = w.kernel[0] * w.kernel[1], gap = w.gaps[1];
    each_part(w, [&](float *row, float *const *pixels, int count) {
        if (gap == 1) return vector::kernels().separate(count, static_cast<int>(w.channels), row, area, pixels, true);
        for (int i = 0; i < count; ++i) {
            for (std::ptrdiff_t c = 0; pixels[i] && c < w.channels; ++c) pixels[i][c * gap] += row[c * area + i];
        }
    });
}

// Layouts

namespace {

constexpr std::ptrdiff_t kMinNumbers = 65536;  // minimal numbers per thread

// Vectorized, it takes a third of the time.
template <int kChannels, bool kToLast>
DPMODULE_VECTORIZE void change_few_channels(float *__restrict usual, float *__restrict last, std::ptrdiff_t gap,
                                            std::ptrdiff_t count) {
    for (std::ptrdiff_t pixel = 0; pixel < count; ++pixel) {
        for (int c = 0; c < kChannels; ++c) {
            if (kToLast) last[pixel * kChannels + c] = usual[c * gap + pixel];
            else usual[c * gap + pixel] = last[pixel * kChannels + c];
        }
    }
}

}  // namespace

void change_pixels(const LayoutPair &image, std::ptrdiff_t first, std::ptrdiff_t end, bool to_last) {
    const std::ptrdiff_t channels = image.channels, gap = image.pixels;
    float *const usual = image.usual + first, *const last = image.last + first * channels, *pixels[kRows];
    if (channels == 2)
        return (to_last ? change_few_channels<2, true> : change_few_channels<2, false>)(usual, last, gap, end - first);
    if (channels == 3)
        return (to_last ? change_few_channels<3, true> : change_few_channels<3, false>)(usual, last, gap, end - first);
    for (std::ptrdiff_t at = 0; at < end - first; at += kRows) {
        const int count = static_cast<int>(std::min<std::ptrdiff_t>(kRows, end - first - at));
        for (int i = 0; i < count; ++i) pixels[i] = last + (at + i) * channels;
        if (to_last) vector::kernels().separate(count, static_cast<int>(channels), usual + at, gap, pixels, false);
        else vector::kernels().interleave(count, static_cast<int>(channels), pixels, usual + at, gap);
    }
}

void change_layouts(const Relayout &run) {
    std::ptrdiff_t numbers = 0;
    for (std::size_t i = 0; i < run.count; ++i) {
        numbers += run.pairs[i].images * run.pairs[i].channels * run.pairs[i].pixels;
    }
    const std::ptrdiff_t threads = std::clamp<std::ptrdiff_t>(numbers / kMinNumbers, 1, std::max(run.threads, 1));
    parallel_for(threads, static_cast<int>(threads), [&](std::ptrdiff_t part) {
        for (std::size_t i = 0; i < run.count; ++i) {
            const LayoutPair &pair = run.pairs[i];
            const std::ptrdiff_t end = pair.images * (part + 1) / threads;
            for (std::ptrdiff_t image = pair.images * part / threads; image < end; ++image) {
                const std::ptrdiff_t begin = image * pair.channels * pair.pixels;
                change_pixels({pair.usual + begin, pair.last + begin, 1, pair.channels, pair.pixels}, 0, pair.pixels,
                              run.to_last);
            }
        }
    });
}

}  // namespace dpmodule
