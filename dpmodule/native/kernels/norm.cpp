// Uses compiler vectors as in lstm.cpp. Each pass reads its tensors in the order of their memory: panels of channels,
// whose sums stay in registers, skip most of a row, and processors prefetch such rows badly.
#include "norm.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <limits>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "parallel.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kBlock = 8;                      // rows of a block
constexpr std::ptrdiff_t kChunk = 65536;                  // elements of a chunk of rows
constexpr std::ptrdiff_t kMinRows = 64, kMaxRows = 2048;  // of a chunk, multiples of kBlock
constexpr std::ptrdiff_t kPart = 16384;                   // elements of a sum over a plane
constexpr std::ptrdiff_t kGrain = 32768;                  // minimal elements per thread
constexpr std::ptrdiff_t kOverlap = 4;  // channels of the last vector, which may overlap the one before

struct Chunks {
    std::ptrdiff_t rows, count;

    explicit Chunks(const NormRows &size)
        : rows(std::clamp(kChunk / size.channels / kBlock * kBlock, kMinRows, kMaxRows)),
          count((size.rows + rows - 1) / rows) {}
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

// Two sums per channel, and those of the last vector if it overlaps the one before.
struct Sums {
    float *first, *second;
    std::ptrdiff_t channels;

    static std::ptrdiff_t size(const NormRows &of) { return 2 * (of.channels + kOverlap); }

    Sums(float *from, const NormRows &of) : first(from), second(from + size(of) / 2), channels(of.channels) {}

    void clear() const { std::fill(first, second + channels + kOverlap, 0.0f); }

    // Copies what the overlapping vector alone has.
    void finish() const {
        for (float *sums : {first, second}) {
            const std::ptrdiff_t rest = channels % kOverlap;
            std::copy(sums + channels + kOverlap - rest, sums + channels + kOverlap, sums + channels - rest);
        }
    }
};

template <class Floats>
DPMODULE_INLINE Floats rectified(const Floats &x, float limit) {
    const Floats positive = x < 0 ? Floats{} : x;  // NaN propagates
    return positive > limit ? Floats{} + limit : positive;
}

// Calls body.at<Width, Registers, Rows>(first row, first channel, place of the sums) for blocks of rows, a cache line
// of channels after the other: tensors are read in the order of their memory.
struct EachBlock {
    template <int Width, class Body>
    DPMODULE_INLINE static void run(const Body &body) {
        constexpr int kRows = Width > 8 ? kBlock : kBlock / 2;  // as many as there are registers for
        const std::ptrdiff_t end = body.chunk.first + body.chunk.rows;
        std::ptrdiff_t row = body.chunk.first;
        for (; row + kRows <= end; row += kRows) line<Width, kRows>(body, row);
        for (; row < end; ++row) line<Width, 1>(body, row);
    }

    template <int Width, int Rows, class Body>
    DPMODULE_INLINE static void line(const Body &body, std::ptrdiff_t row) {
        constexpr int kRegisters = Width > 8 ? 1 : 2;
        const std::ptrdiff_t channels = body.run.size.channels;
        std::ptrdiff_t c = 0;
        for (; c + kRegisters * Width <= channels; c += kRegisters * Width)
            body.template at<Width, kRegisters, Rows>(row, c, c);
        if (kRegisters > 1 && c + Width <= channels) {
            body.template at<Width, 1, Rows>(row, c, c);
            c += Width;
        }
        if (Width > 8 && c + 8 <= channels) {
            body.template at<8, 1, Rows>(row, c, c);
            c += 8;
        }
        if (Width > 4 && c + 4 <= channels) {
            body.template at<4, 1, Rows>(row, c, c);
            c += 4;
        }
        if (c < channels) body.template at<kOverlap, 1, Rows>(row, channels - kOverlap, channels);
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

// A chunk's sums, and sums of squared deviations: those of each block are computed in registers, and combined.
struct Collect {
    const NormForward &run;
    Chunk chunk;
    Sums found;

    template <int Width, int Registers, int Rows>
    DPMODULE_INLINE void at(std::ptrdiff_t row, std::ptrdiff_t first, std::ptrdiff_t place) const {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const std::ptrdiff_t gap = run.size.channels;
        const float *const begin = run.x + row * gap + first;
        const float before = static_cast<float>(row - chunk.first), inverse = before > 0 ? 1 / before : 0;
        const float share = Rows * before / (before + Rows);
#pragma GCC unroll 2
        for (int r = 0; r < Registers; ++r) {
            Floats x[Rows];
#pragma GCC unroll 8
            for (int k = 0; k < Rows; ++k) x[k] = L::load(begin + k * gap + r * Width);
            const Floats sum = total<Rows>(x), mean = sum * (1.0f / Rows);
#pragma GCC unroll 8
            for (int k = 0; k < Rows; ++k) x[k] = (x[k] - mean) * (x[k] - mean);
            const std::ptrdiff_t to = place + r * Width;
            const Floats old = L::load(found.first + to), distance = mean - old * inverse;
            L::store(found.first + to, old + sum);
            L::store(found.second + to, L::load(found.second + to) + (total<Rows>(x) + distance * distance * share));
        }
    }

    template <int Count, class Floats>
    DPMODULE_INLINE static Floats total(const Floats *x) {
        if constexpr (Count == 1) {
            return *x;
        } else {
            return total<Count / 2>(x) + total<Count / 2>(x + Count / 2);
        }
    }
};

// What follows the normalisation.
template <bool WithSum, NormEnd end>
struct Finish {
    template <class L>
    DPMODULE_INLINE static typename L::Floats of(const NormForward &run, std::ptrdiff_t i,
                                                 const typename L::Floats &normalised) {
        typename L::Floats value = normalised;
        if (WithSum) value += L::load(run.other + i);
        if (end == NormEnd::Silu) return value / L::sigmoid_divisor(value);
        return end == NormEnd::Relu ? rectified(value, run.limit) : value;
    }
};

// Calls body(a `Finish`).
template <class Body>
void with_finish(const NormForward &run, const Body &body) {
    if (run.end == NormEnd::Silu) return body(Finish<false, NormEnd::Silu>{});
    if (run.end == NormEnd::None)
        return run.other ? body(Finish<true, NormEnd::None>{}) : body(Finish<false, NormEnd::None>{});
    return run.other ? body(Finish<true, NormEnd::Relu>{}) : body(Finish<false, NormEnd::Relu>{});
}

// A chunk of the result.
template <class Finish>
struct Apply {
    const NormForward &run;
    Chunk chunk;

    template <int Width, int Registers, int Rows>
    DPMODULE_INLINE void at(std::ptrdiff_t row, std::ptrdiff_t first, std::ptrdiff_t) const {
        using L = Vector<Width>;
        const std::ptrdiff_t gap = run.size.channels, begin = row * gap + first;
        const Statistics<Width, Registers> of(run.statistics + first, gap);
        typename L::Floats found[Rows][Registers];  // rows of some sizes delay loads after stores
#pragma GCC unroll 8
        for (int k = 0; k < Rows; ++k) {
#pragma GCC unroll 2
            for (int r = 0; r < Registers; ++r) {
                const std::ptrdiff_t i = begin + k * gap + r * Width;
                found[k][r] =
                    Finish::template of<L>(run, i, (L::load(run.x + i) - of.mean[r]) * of.scale[r] + of.shift[r]);
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < Rows; ++k) {
#pragma GCC unroll 2
            for (int r = 0; r < Registers; ++r) L::store(run.out + begin + k * gap + r * Width, found[k][r]);
        }
    }
};

// Where gradients pass: everywhere, by the sign before the ReLU, by its limits, or by its result; or by SiLU's slope.
enum class Mask { None, Sign, Limits, Result, Slope };

// The gradient before the ReLU or SiLU, for one register at index `i`.
template <Mask mask, class L>
DPMODULE_INLINE typename L::Floats unrectified(const NormBackward &run, std::ptrdiff_t i,
                                               const typename L::Floats &distance, const typename L::Floats &scale,
                                               const typename L::Floats &shift) {
    using Floats = typename L::Floats;
    const Floats grad = L::load(run.grad + i);
    if (mask == Mask::None) return grad;
    const Floats end = mask == Mask::Result ? L::load(run.out + i) : distance * scale + shift;
    if (mask == Mask::Slope) {
        const Floats gate = L::sigmoid(end);
        return grad * (gate + gate * (end - end * gate));
    }
    if (mask == Mask::Limits) return end == L::between(end, 0.0f, run.limit) ? grad : Floats{};  // gcc splits `&&`
    const Floats found = end <= 0 ? Floats{} : grad;
    return run.nan_stays ? (end == end ? found : end) : found;
}

// Calls body(a constant `Mask`).
template <class Body>
void with_mask(const NormBackward &run, const Body &body) {
    if (run.end == NormEnd::None) return body(std::integral_constant<Mask, Mask::None>{});
    if (run.end == NormEnd::Silu) return body(std::integral_constant<Mask, Mask::Slope>{});
    if (run.limit < std::numeric_limits<float>::infinity()) return body(std::integral_constant<Mask, Mask::Limits>{});
    return run.out ? body(std::integral_constant<Mask, Mask::Result>{})
                   : body(std::integral_constant<Mask, Mask::Sign>{});
}

// The same gradients where those before the end are written already.
NormBackward before_end(NormBackward run) {
    if (run.for_other) {
        run.grad = run.for_other;
        run.end = NormEnd::None;
    }
    return run;
}

// A chunk's sums of gradients, and of gradients times x - mean.
template <Mask mask>
struct Reduce {
    const NormBackward &run;
    Chunk chunk;
    Sums found;

    template <int Width, int Registers, int Rows>
    DPMODULE_INLINE void at(std::ptrdiff_t row, std::ptrdiff_t first, std::ptrdiff_t place) const {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const std::ptrdiff_t gap = run.size.channels, begin = row * gap + first;
        const Statistics<Width, Registers> of(run.statistics + first, gap);
        Floats sums[Registers] = {}, products[Registers] = {};
#pragma GCC unroll 8
        for (int k = 0; k < Rows; ++k) {
#pragma GCC unroll 2
            for (int r = 0; r < Registers; ++r) {
                const std::ptrdiff_t i = begin + k * gap + r * Width;
                const Floats distance = L::load(run.x + i) - of.mean[r];
                const Floats grad = unrectified<mask, L>(run, i, distance, of.scale[r], of.shift[r]);
                if (run.for_other) L::store(run.for_other + i, grad);
                sums[r] += grad;
                products[r] += grad * distance;
            }
        }
#pragma GCC unroll 2
        for (int r = 0; r < Registers; ++r) {
            const std::ptrdiff_t to = place + r * Width;
            L::store(found.first + to, L::load(found.first + to) + sums[r]);
            L::store(found.second + to, L::load(found.second + to) + products[r]);
        }
    }
};

// A chunk of the data's gradient; `factors` has factors of x - mean, then summands.
template <Mask mask>
struct Differentiate {
    const NormBackward &run;
    Chunk chunk;
    const float *factors;

    template <int Width, int Registers, int Rows>
    DPMODULE_INLINE void at(std::ptrdiff_t row, std::ptrdiff_t first, std::ptrdiff_t) const {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const std::ptrdiff_t gap = run.size.channels, begin = row * gap + first;
        const Statistics<Width, Registers> of(run.statistics + first, gap);
        Floats factor[Registers], summand[Registers], found[Rows][Registers];
#pragma GCC unroll 2
        for (int r = 0; r < Registers; ++r) {
            factor[r] = L::load(factors + first + r * Width);
            summand[r] = L::load(factors + gap + first + r * Width);
        }
#pragma GCC unroll 8
        for (int k = 0; k < Rows; ++k) {
#pragma GCC unroll 2
            for (int r = 0; r < Registers; ++r) {
                const std::ptrdiff_t i = begin + k * gap + r * Width;
                const Floats distance = L::load(run.x + i) - of.mean[r];
                const Floats grad = unrectified<mask, L>(run, i, distance, of.scale[r], of.shift[r]);
                found[k][r] = grad * of.scale[r] + (distance * factor[r] + summand[r]);
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < Rows; ++k) {
#pragma GCC unroll 2
            for (int r = 0; r < Registers; ++r) L::store(run.for_x + begin + k * gap + r * Width, found[k][r]);
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

Sums sums_of(const NormRows &size, float *found, std::ptrdiff_t chunk) {
    return {found + chunk * Sums::size(size), size};
}

// Combines the statistics of all chunks.
void settle(const NormForward &run, float *found) {
    const Chunks chunks(run.size);
    const double rows = static_cast<double>(run.size.rows);
    for (std::ptrdiff_t c = 0; c < run.size.channels; ++c) {
        double sum = 0, squares = 0;
        for (std::ptrdiff_t k = 0; k < chunks.count; ++k) sum += sums_of(run.size, found, k).first[c];
        const double mean = sum / rows;
        for (std::ptrdiff_t k = 0; k < chunks.count; ++k) {
            const Sums of = sums_of(run.size, found, k);
            const double count = static_cast<double>(Chunk(run.size, k).rows), distance = of.first[c] / count - mean;
            squares += of.second[c] + distance * distance * count;
        }
        write_statistics(run, c, mean, squares / rows);
    }
}

// Combines the sums of all chunks; `factors` are written for `Differentiate`.
void settle(const NormBackward &run, float *found, float *factors) {
    const std::ptrdiff_t channels = run.size.channels, count = Chunks(run.size).count;
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
        double sum = 0, products = 0;
        for (std::ptrdiff_t k = 0; k < count; ++k) {
            const Sums of = sums_of(run.size, found, k);
            sum += of.first[c];
            products += of.second[c];
        }
        std::tie(factors[c], factors[channels + c]) = write_gradients(run, c, sum, products);
    }
}

int threads_of(const NormRows &size) {
    return static_cast<int>(std::min<std::ptrdiff_t>(size.threads, size.rows * size.channels / kGrain));
}

// Runs Body{run, chunk, the chunk's sums} for all chunks.
template <class Body, class Run>
void reduce_chunks(const Run &run, float *found) {
    parallel_for(Chunks(run.size).count, threads_of(run.size), [&](std::ptrdiff_t k) {
        const Sums to = sums_of(run.size, found, k);
        to.clear();
        run_best<EachBlock>(Body{run, Chunk(run.size, k), to});
        to.finish();
    });
}

// Runs Body{run, chunk, given...} for all chunks, the last one first: it was read last, and may be in the cache.
template <class Body, class Run, class... Given>
void write_chunks(const Run &run, Given... given) {
    const std::ptrdiff_t last = Chunks(run.size).count - 1;
    parallel_for(last + 1, threads_of(run.size),
                 [&](std::ptrdiff_t k) { run_best<EachBlock>(Body{run, Chunk(run.size, last - k), given...}); });
}

// Calls body(index, count) for parts of a channel's planes, each of at least kPart elements or a whole plane.
template <class Body>
DPMODULE_INLINE void each_part(const NormRows &size, std::ptrdiff_t channel, const Body &body) {
    for (std::ptrdiff_t begin = channel * size.pixels, end = size.rows * size.channels; begin < end;
         begin += size.channels * size.pixels) {
        std::ptrdiff_t i = begin, last = begin + size.pixels;
        for (; last - i >= 2 * kPart; i += kPart) body(i, kPart);
        body(i, last - i);
    }
}

// Normalises the planes of a channel.
template <class Finish>
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
                L::store(run.out + i, Finish::template of<L>(run, i, (L::load(run.x + i) - start) * scale + summand));
            });
        });
    }
};

// Computes the gradients of a channel's planes.
template <Mask mask>
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
                const Floats grad = unrectified<mask, L>(run, i, distance, scale, shift);
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
                    run.for_other ? L::load(run.for_other + i) : unrectified<mask, L>(run, i, distance, scale, shift);
                L::store(run.for_x + i, grad * scale + (distance * factors + summands));
            });
        });
    }
};

template <class Kernel, class Run>
void each_channel(const Run &run) {
    parallel_for(run.size.channels, threads_of(run.size), [&](std::ptrdiff_t c) { run_best<Kernel>(run, c); });
}

// Room for the sums of all chunks and `more` numbers; null without memory.
std::unique_ptr<float[]> room(const NormRows &size, std::ptrdiff_t more) {
    return std::unique_ptr<float[]>(new (std::nothrow) float[Chunks(size).count * Sums::size(size) + more]);
}

}  // namespace

bool norm_forward(const NormForward &run) {
    bool done = true;
    with_finish(run, [&](auto finish) {
        using Finish = decltype(finish);
        if (run.size.pixels > 1) return each_channel<NormalizePlanes<Finish>>(run);
        const std::unique_ptr<float[]> found = room(run.size, 0);
        if (!(done = found != nullptr)) return;
        reduce_chunks<Collect>(run, found.get());
        settle(run, found.get());
        write_chunks<Apply<Finish>>(run);
    });
    return done;
}

bool norm_backward(const NormBackward &run) {
    if (run.size.pixels > 1) {
        with_mask(run, [&](auto mask) { each_channel<DifferentiatePlanes<mask.value>>(run); });
        return true;
    }
    const std::unique_ptr<float[]> found = room(run.size, 2 * run.size.channels);
    if (!found) return false;
    with_mask(run, [&](auto mask) { reduce_chunks<Reduce<mask.value>>(run, found.get()); });
    float *const factors = found.get() + Chunks(run.size).count * Sums::size(run.size);
    settle(run, found.get(), factors);
    const NormBackward rest = before_end(run);
    if (run.for_x) with_mask(rest, [&](auto mask) { write_chunks<Differentiate<mask.value>>(rest, factors); });
    return true;
}

}  // namespace dpmodule
