// Uses compiler vectors as in lstm.cpp. A chunk is processed in panels of channels that fit in a few registers, so that
// values of the channels stay in registers.
#include "norm.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <limits>
#include <new>
#include <tuple>
#include <utility>

#include "parallel.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kPanel = 64;     // maximal channels of a panel
constexpr std::ptrdiff_t kChunk = 16384;  // elements of a chunk's panel, or of a sum over a plane
constexpr std::ptrdiff_t kGrain = 32768;  // minimal elements per thread

struct Chunks {
    std::ptrdiff_t rows, count;

    explicit Chunks(const NormRows &size)
        : rows(kChunk / std::min(kPanel, size.channels)), count((size.rows + rows - 1) / rows) {}
};

// Some rows of a tensor.
struct Chunk {
    std::ptrdiff_t first, rows;

    Chunk(const NormRows &size, std::ptrdiff_t number) {
        const Chunks chunks(size);
        first = number * chunks.rows;
        rows = std::min(chunks.rows, size.rows - first);
    }
};

template <class Floats>
DPMODULE_INLINE Floats rectified(const Floats &x, float limit) {
    const Floats positive = x < 0 ? Floats{} : x;  // NaN propagates
    return positive > limit ? Floats{} + limit : positive;
}

// Calls body.at<Width, Registers>(first channel) for all panels. The last one may overlap the one before: its channels
// are then computed twice.
struct EachPanel {
    template <int Width, class Body>
    DPMODULE_INLINE static void run(const Body &body) {
        const std::ptrdiff_t channels = body.run.size.channels;
        std::ptrdiff_t first = 0;
        for (; first + 4 * Width <= channels; first += 4 * Width) body.template at<Width, 4>(first);
        if (first + 2 * Width <= channels) {
            body.template at<Width, 2>(first);
            first += 2 * Width;
        }
        if (first + Width <= channels) {
            body.template at<Width, 1>(first);
            first += Width;
        }
        if (Width > 8 && first + 8 <= channels) {
            body.template at<8, 1>(first);
            first += 8;
        }
        if (Width > 4 && first + 4 <= channels) {
            body.template at<4, 1>(first);
            first += 4;
        }
        if (first < channels) body.template at<4, 1>(channels - 4);
    }
};

// Values of some channels: mean, and factor and summand for x - mean.
template <int Width, int Registers>
struct Statistics {
    typename Vector<Width>::Floats mean[Registers], scale[Registers], shift[Registers];

    DPMODULE_INLINE Statistics(const float *from, std::ptrdiff_t gap) {
#pragma GCC unroll 4
        for (int r = 0; r < Registers; ++r) {
            mean[r] = Vector<Width>::load(from + r * Width);
            scale[r] = Vector<Width>::load(from + 2 * gap + r * Width);
            shift[r] = Vector<Width>::load(from + 3 * gap + r * Width);
        }
    }
};

// A chunk's means and sums of squared deviations, stored contiguously.
struct Collect {
    const NormForward &run;
    Chunk chunk;
    float *found;

    template <int Width, int Registers>
    DPMODULE_INLINE void at(std::ptrdiff_t first) const {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        constexpr int kRows = 8 / Registers;  // to shorten dependency chains
        const std::ptrdiff_t gap = run.size.channels;
        const float *const begin = run.x + chunk.first * gap + first;
        // Sums of term(number, register) over the rows.
        const auto sum = [&](Floats(&sums)[kRows][Registers], auto term) __attribute__((always_inline)) {
            const float *x = begin;
            std::ptrdiff_t row = 0;
            for (; row + kRows <= chunk.rows; row += kRows, x += kRows * gap) {
#pragma GCC unroll 8
                for (int k = 0; k < kRows; ++k) {
#pragma GCC unroll 4
                    for (int r = 0; r < Registers; ++r) sums[k][r] += term(L::load(x + k * gap + r * Width), r);
                }
            }
            for (; row < chunk.rows; ++row, x += gap) {
#pragma GCC unroll 4
                for (int r = 0; r < Registers; ++r) sums[0][r] += term(L::load(x + r * Width), r);
            }
#pragma GCC unroll 4
            for (int r = 0; r < Registers; ++r) {
#pragma GCC unroll 8
                for (int k = 1; k < kRows; ++k) sums[0][r] += sums[k][r];
            }
        };
        Floats sums[kRows][Registers] = {}, squares[kRows][Registers] = {}, means[Registers];
        sum(sums, [](const Floats &x, int) __attribute__((always_inline)) { return x; });
#pragma GCC unroll 4
        for (int r = 0; r < Registers; ++r) {
            means[r] = sums[0][r] / static_cast<float>(chunk.rows);
            L::store(found + first + r * Width, means[r]);
        }
        sum(squares,
            [&](const Floats &x, int r) __attribute__((always_inline)) { return (x - means[r]) * (x - means[r]); });
#pragma GCC unroll 4
        for (int r = 0; r < Registers; ++r) L::store(found + gap + first + r * Width, squares[0][r]);
    }
};

// A chunk of the result.
struct Apply {
    const NormForward &run;
    Chunk chunk;

    template <int Width, int Registers>
    DPMODULE_INLINE void at(std::ptrdiff_t first) const {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const std::ptrdiff_t gap = run.size.channels, begin = chunk.first * gap + first;
        const Statistics<Width, Registers> of(run.statistics + first, gap);
        const std::ptrdiff_t end = begin + chunk.rows * gap;
        for (std::ptrdiff_t i = begin; i < end; i += gap) {
#pragma GCC unroll 4
            for (int r = 0; r < Registers; ++r) {
                Floats value = (L::load(run.x + i + r * Width) - of.mean[r]) * of.scale[r] + of.shift[r];
                if (run.other) value += L::load(run.other + i + r * Width);
                if (run.relu) value = rectified(value, run.limit);
                L::store(run.out + i + r * Width, value);
            }
        }
    }
};

// The gradient before the ReLU, for one register at index `i`.
template <int Width>
DPMODULE_INLINE typename Vector<Width>::Floats
unrectified(const NormBackward &run, std::ptrdiff_t i, const typename Vector<Width>::Floats &distance,
            const typename Vector<Width>::Floats &scale, const typename Vector<Width>::Floats &shift) {
    using L = Vector<Width>;
    using Floats = typename L::Floats;
    const Floats grad = L::load(run.grad + i);
    if (!run.relu) return grad;
    if (run.limit < std::numeric_limits<float>::infinity()) {
        const Floats before = distance * scale + shift, above = before >= 0 ? grad : Floats{};
        return before <= run.limit ? above : Floats{};
    }
    const Floats out = run.out ? L::load(run.out + i) : rectified(distance * scale + shift, run.limit);
    const Floats found = out == 0 ? Floats{} : grad;
    return run.nan_stays ? (out == out ? found : out) : found;
}

// A chunk's sums of gradients, and of gradients times x - mean.
struct Reduce {
    const NormBackward &run;
    Chunk chunk;
    float *found;

    template <int Width, int Registers>
    DPMODULE_INLINE void at(std::ptrdiff_t first) const {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        constexpr int kRows = 4 / Registers;
        const std::ptrdiff_t gap = run.size.channels;
        const Statistics<Width, Registers> of(run.statistics + first, gap);
        Floats sums[kRows][Registers] = {}, products[kRows][Registers] = {};
        std::ptrdiff_t i = chunk.first * gap + first, row = 0;
        const auto add = [&](int k) __attribute__((always_inline)) {
#pragma GCC unroll 4
            for (int r = 0; r < Registers; ++r) {
                const Floats distance = L::load(run.x + i + r * Width) - of.mean[r];
                const Floats grad = unrectified<Width>(run, i + r * Width, distance, of.scale[r], of.shift[r]);
                if (run.for_other) L::store(run.for_other + i + r * Width, grad);
                sums[k][r] += grad;
                products[k][r] += grad * distance;
            }
            i += gap;
        };
        for (; row + kRows <= chunk.rows; row += kRows) {
#pragma GCC unroll 4
            for (int k = 0; k < kRows; ++k) add(k);
        }
        for (; row < chunk.rows; ++row) add(0);
#pragma GCC unroll 4
        for (int r = 0; r < Registers; ++r) {
#pragma GCC unroll 4
            for (int k = 1; k < kRows; ++k) {
                sums[0][r] += sums[k][r];
                products[0][r] += products[k][r];
            }
            L::store(found + first + r * Width, sums[0][r]);
            L::store(found + gap + first + r * Width, products[0][r]);
        }
    }
};

// A chunk of the data's gradient; `factors` has factors of x - mean, then summands.
struct Differentiate {
    const NormBackward &run;
    Chunk chunk;
    const float *factors;

    template <int Width, int Registers>
    DPMODULE_INLINE void at(std::ptrdiff_t first) const {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const std::ptrdiff_t gap = run.size.channels, begin = chunk.first * gap + first;
        const Statistics<Width, Registers> of(run.statistics + first, gap);
        Floats factor[Registers], summand[Registers];
#pragma GCC unroll 4
        for (int r = 0; r < Registers; ++r) {
            factor[r] = L::load(factors + first + r * Width);
            summand[r] = L::load(factors + gap + first + r * Width);
        }
        const std::ptrdiff_t end = begin + chunk.rows * gap;
        for (std::ptrdiff_t i = begin; i < end; i += gap) {
#pragma GCC unroll 4
            for (int r = 0; r < Registers; ++r) {
                const std::ptrdiff_t at = i + r * Width;
                const Floats distance = L::load(run.x + at) - of.mean[r];
                const Floats grad = run.for_other ? L::load(run.for_other + at)
                                                  : unrectified<Width>(run, at, distance, of.scale[r], of.shift[r]);
                L::store(run.for_x + at, grad * of.scale[r] + (distance * factor[r] + summand[r]));
            }
        }
    }
};

// Writes the values that follow from a channel's mean and variance.
void write_statistics(const NormForward &run, std::ptrdiff_t c, double mean, double variance) {
    const std::ptrdiff_t channels = run.size.channels;
    const double scale = 1 / std::sqrt(variance + run.eps);
    const double factor = run.gamma ? scale * run.gamma[c] : scale;
    run.statistics[c] = static_cast<float>(mean);
    run.statistics[channels + c] = static_cast<float>(scale);
    run.statistics[2 * channels + c] = static_cast<float>(factor);
    run.statistics[3 * channels + c] = static_cast<float>(run.beta[c] + (run.statistics[c] - mean) * factor);
    run.new_mean[c] = static_cast<float>(run.momentum * run.moving_mean[c] + (1 - run.momentum) * mean);
    run.new_var[c] = static_cast<float>(run.momentum * run.moving_var[c] + (1 - run.momentum) * variance);
}

// Writes a channel's gradients of gamma and beta. Returns factor and summand of x - mean in the data's gradient.
std::pair<float, float> write_gradients(const NormBackward &run, std::ptrdiff_t c, double sum, double products) {
    const std::ptrdiff_t channels = run.size.channels;
    const double rows = static_cast<double>(run.size.rows);
    const double scale = run.statistics[channels + c], factor = run.statistics[2 * channels + c];
    run.for_gamma[c] = static_cast<float>(products * scale);
    run.for_beta[c] = static_cast<float>(sum);
    return {static_cast<float>(-factor * scale * scale * products / rows), static_cast<float>(-factor * sum / rows)};
}

// Combines the statistics of all chunks.
void settle(const NormForward &run, const float *found) {
    const std::ptrdiff_t channels = run.size.channels;
    const Chunks chunks(run.size);
    const double rows = static_cast<double>(run.size.rows);
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
        double sum = 0, squares = 0;
        for (std::ptrdiff_t k = 0; k < chunks.count; ++k) {
            sum += static_cast<double>(found[2 * k * channels + c]) * Chunk(run.size, k).rows;
        }
        const double mean = sum / rows;
        for (std::ptrdiff_t k = 0; k < chunks.count; ++k) {
            const double distance = found[2 * k * channels + c] - mean;
            squares += found[(2 * k + 1) * channels + c] + distance * distance * Chunk(run.size, k).rows;
        }
        write_statistics(run, c, mean, squares / rows);
    }
}

// Combines the sums of all chunks; `factors` are written for `Differentiate`.
void settle(const NormBackward &run, const float *found, float *factors) {
    const std::ptrdiff_t channels = run.size.channels, count = Chunks(run.size).count;
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
        double sum = 0, products = 0;
        for (std::ptrdiff_t k = 0; k < count; ++k) {
            sum += found[2 * k * channels + c];
            products += found[(2 * k + 1) * channels + c];
        }
        std::tie(factors[c], factors[channels + c]) = write_gradients(run, c, sum, products);
    }
}

int threads_of(const NormRows &size) {
    return static_cast<int>(std::min<std::ptrdiff_t>(size.threads, size.rows * size.channels / kGrain));
}

// Calls body(chunk, its two rows of sums) for all chunks.
template <class Body>
void each_chunk(const NormRows &size, float *sums, const Body &body) {
    parallel_for(Chunks(size).count, threads_of(size),
                 [&](std::ptrdiff_t k) { body(Chunk(size, k), sums + 2 * k * size.channels); });
}

// Calls body(index, count) for parts of a channel's planes, each of at least kChunk elements or a whole plane.
template <class Body>
DPMODULE_INLINE void each_part(const NormRows &size, std::ptrdiff_t channel, const Body &body) {
    for (std::ptrdiff_t begin = channel * size.pixels, end = size.rows * size.channels; begin < end;
         begin += size.channels * size.pixels) {
        std::ptrdiff_t i = begin, last = begin + size.pixels;
        for (; last - i >= 2 * kChunk; i += kChunk) body(i, kChunk);
        body(i, last - i);
    }
}

// Calls body(index, number of an accumulator, elements to skip) for all vectors of at least `Width` elements. The last one
// may overlap the one before, whose elements are then to be skipped in sums.
template <int Width, class Body>
DPMODULE_INLINE void each_vector(std::ptrdiff_t begin, std::ptrdiff_t count, const Body &body) {
    const std::ptrdiff_t end = begin + count;
    std::ptrdiff_t i = begin;
    for (; i + 4 * Width <= end; i += 4 * Width) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) body(i + k * Width, k, 0);
    }
    for (; i + Width <= end; i += Width) body(i, 0, 0);
    if (i < end) body(end - Width, 0, static_cast<int>(Width - (end - i)));
}

// The elements of a vector, with zeros in place of the first ones.
template <int Width>
DPMODULE_INLINE typename Vector<Width>::Floats without(const typename Vector<Width>::Floats &x, int skip) {
    typename Vector<Width>::Ints places;
#pragma GCC unroll 16
    for (int i = 0; i < Width; ++i) places[i] = i;
    return places >= skip ? x : typename Vector<Width>::Floats{};
}

template <int Width>
DPMODULE_INLINE double total(const typename Vector<Width>::Floats (&sums)[4]) {
    return Vector<Width>::total((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Normalises the planes of a channel.
struct NormalizePlanes {
    template <int Width>
    DPMODULE_INLINE static void run(const NormForward &run, std::ptrdiff_t channel) {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const NormRows &size = run.size;
        double sum = 0, squares = 0;
        each_part(size, channel, [&](std::ptrdiff_t begin, std::ptrdiff_t count) __attribute__((always_inline)) {
            Floats sums[4] = {};
            each_vector<Width>(begin, count, [&](std::ptrdiff_t i, int k, int skip) __attribute__((always_inline)) {
                sums[k] += without<Width>(L::load(run.x + i), skip);
            });
            sum += total<Width>(sums);
        });
        const double mean = sum / static_cast<double>(size.rows);
        const float near = static_cast<float>(mean);
        each_part(size, channel, [&](std::ptrdiff_t begin, std::ptrdiff_t count) __attribute__((always_inline)) {
            Floats sums[4] = {};
            each_vector<Width>(begin, count, [&](std::ptrdiff_t i, int k, int skip) __attribute__((always_inline)) {
                const Floats distance = without<Width>(L::load(run.x + i) - near, skip);
                sums[k] += distance * distance;
            });
            squares += total<Width>(sums);
        });
        const double shift = near - mean;
        write_statistics(run, channel, mean, squares / static_cast<double>(size.rows) - shift * shift);
        const Statistics<1, 1> of(run.statistics + channel, size.channels);
        const Floats start = Floats{} + of.mean[0][0], scale = Floats{} + of.scale[0][0],
                     summand = Floats{} + of.shift[0][0];
        each_part(size, channel, [&](std::ptrdiff_t begin, std::ptrdiff_t count) __attribute__((always_inline)) {
            each_vector<Width>(begin, count, [&](std::ptrdiff_t i, int, int) __attribute__((always_inline)) {
                Floats value = (L::load(run.x + i) - start) * scale + summand;
                if (run.other) value += L::load(run.other + i);
                if (run.relu) value = rectified(value, run.limit);
                L::store(run.out + i, value);
            });
        });
    }
};

// Computes the gradients of a channel's planes.
struct DifferentiatePlanes {
    template <int Width>
    DPMODULE_INLINE static void run(const NormBackward &run, std::ptrdiff_t channel) {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const NormRows &size = run.size;
        const Statistics<1, 1> of(run.statistics + channel, size.channels);
        const Floats mean = Floats{} + of.mean[0][0], scale = Floats{} + of.scale[0][0],
                     shift = Floats{} + of.shift[0][0];
        double sum = 0, products = 0;
        each_part(size, channel, [&](std::ptrdiff_t begin, std::ptrdiff_t count) __attribute__((always_inline)) {
            Floats sums[4] = {}, multiples[4] = {};
            each_vector<Width>(begin, count, [&](std::ptrdiff_t i, int k, int skip) __attribute__((always_inline)) {
                const Floats distance = L::load(run.x + i) - mean;
                const Floats grad = unrectified<Width>(run, i, distance, scale, shift);
                if (run.for_other) L::store(run.for_other + i, grad);
                const Floats counted = without<Width>(grad, skip);
                sums[k] += counted;
                multiples[k] += counted * distance;
            });
            sum += total<Width>(sums);
            products += total<Width>(multiples);
        });
        const auto [factor, summand] = write_gradients(run, channel, sum, products);
        if (!run.for_x) return;
        const Floats factors = Floats{} + factor, summands = Floats{} + summand;
        each_part(size, channel, [&](std::ptrdiff_t begin, std::ptrdiff_t count) __attribute__((always_inline)) {
            each_vector<Width>(begin, count, [&](std::ptrdiff_t i, int, int) __attribute__((always_inline)) {
                const Floats distance = L::load(run.x + i) - mean;
                const Floats grad =
                    run.for_other ? L::load(run.for_other + i) : unrectified<Width>(run, i, distance, scale, shift);
                L::store(run.for_x + i, grad * scale + (distance * factors + summands));
            });
        });
    }
};

template <class Kernel, class Run>
bool each_channel(const Run &run) {
    parallel_for(run.size.channels, threads_of(run.size), [&](std::ptrdiff_t c) { run_best<Kernel>(run, c); });
    return true;
}

}  // namespace

bool norm_forward(const NormForward &run) {
    if (run.size.pixels > 1) return each_channel<NormalizePlanes>(run);
    const std::unique_ptr<float[]> found(new (std::nothrow) float[2 * Chunks(run.size).count * run.size.channels]);
    if (!found) return false;
    each_chunk(run.size, found.get(),
               [&](const Chunk &chunk, float *sums) { run_best<EachPanel>(Collect{run, chunk, sums}); });
    settle(run, found.get());
    each_chunk(run.size, found.get(), [&](const Chunk &chunk, float *) { run_best<EachPanel>(Apply{run, chunk}); });
    return true;
}

bool norm_backward(const NormBackward &run) {
    if (run.size.pixels > 1) return each_channel<DifferentiatePlanes>(run);
    const std::ptrdiff_t sums = 2 * Chunks(run.size).count * run.size.channels;
    const std::unique_ptr<float[]> found(new (std::nothrow) float[sums + 2 * run.size.channels]);
    if (!found) return false;
    each_chunk(run.size, found.get(),
               [&](const Chunk &chunk, float *to) { run_best<EachPanel>(Reduce{run, chunk, to}); });
    float *const factors = found.get() + sums;
    settle(run, found.get(), factors);
    if (!run.for_x) return true;
    each_chunk(run.size, found.get(),
               [&](const Chunk &chunk, float *) { run_best<EachPanel>(Differentiate{run, chunk, factors}); });
    return true;
}

}  // namespace dpmodule
