#include "row_norm.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>

#include "parallel.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kChunkNumbers = 131072, kLeastRows = 16, kMostRows = 512;  // of a chunk
constexpr std::ptrdiff_t kSummed = 16384;                                           // numbers of a sum in float32
constexpr std::ptrdiff_t kNumbersPerThread = 32768;                                 // minimum

std::ptrdiff_t numbers_of(const RowSizes &size) { return size.parts * size.length; }

// Each number has a gamma of its own, as in LayerNorm.
bool has_own(const RowSizes &size) { return size.length == 1; }

std::ptrdiff_t chunk_rows(const RowSizes &size) {
    return std::clamp<std::ptrdiff_t>(kChunkNumbers / numbers_of(size), has_own(size) ? kLeastRows : 1, kMostRows);
}

std::ptrdiff_t chunk_count(const RowSizes &size) { return (size.rows - 1) / chunk_rows(size) + 1; }

// Calls body(chunk, first row, end) for all chunks.
template <class Body>
void each_chunk(const RowSizes &size, const Body &body) {
    const std::ptrdiff_t rows = chunk_rows(size), threads = size.rows * numbers_of(size) / kNumbersPerThread;
    parallel_for(chunk_count(size), static_cast<int>(std::min<std::ptrdiff_t>(size.threads, threads)),
                 [&](std::ptrdiff_t k) { body(k, k * rows, std::min((k + 1) * rows, size.rows)); });
}

// The sum of value(index) for the vectors of a row.
template <int Width, class Value>
DPMODULE_INLINE double row_sum(std::ptrdiff_t numbers, const Value &value) {
    double sum = 0;
    for (std::ptrdiff_t i = 0, end; i < numbers; i = end) {
        end = numbers - i < 2 * kSummed ? numbers : i + kSummed;
        typename Vector<Width>::Floats sums[4] = {};
        each_vector<Width>(i, end - i, [&](std::ptrdiff_t at, int k, int skip) __attribute__((always_inline)) {
            sums[k] += without<Width>(value(at), skip);
        });
        sum += total<Width>(sums);
    }
    return sum;
}

template <bool Own>
struct NormalizeRows {
    template <int Width>
    DPMODULE_INLINE static void run(const RowNormForward &run, std::ptrdiff_t first, std::ptrdiff_t end) {
        if constexpr (Width > 4)
            if ((Own ? run.size.parts : run.size.length) < Width) return NormalizeRows::run<Width / 2>(run, first, end);
        for (std::ptrdiff_t row = first; row < end; ++row) at<Width>(run, row);
    }

    template <int Width>
    DPMODULE_INLINE static void at(const RowNormForward &run, std::ptrdiff_t row) {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const std::ptrdiff_t numbers = numbers_of(run.size), place = row % run.size.groups * run.size.parts;
        const float *const x = run.x + row * numbers;
        float *const out = run.out + row * numbers;
        const double mean =
            row_sum<Width>(numbers, [&](std::ptrdiff_t i) __attribute__((always_inline)) { return L::load(x + i); }) /
            static_cast<double>(numbers);
        const float near = static_cast<float>(mean);
        const double squares = row_sum<Width>(numbers, [&](std::ptrdiff_t i) __attribute__((always_inline)) {
            const Floats distance = L::load(x + i) - near;
            return distance * distance;
        });
        const double shift = near - mean, variance = squares / static_cast<double>(numbers) - shift * shift;
        const float scale = static_cast<float>(1 / std::sqrt(variance + run.eps));
        run.statistics[row] = near;
        run.statistics[run.size.rows + row] = scale;
        const float *gamma = run.gamma + place, *beta = run.beta + place;
        if (Own) {
            each_vector<Width>(0, numbers, [&](std::ptrdiff_t i, int, int) __attribute__((always_inline)) {
                L::store(out + i, (L::load(x + i) - near) * scale * L::load(gamma + i) + L::load(beta + i));
            });
            return;
        }
        for (std::ptrdiff_t i = 0; i < numbers; i += run.size.length) {
            const float factor = scale * *gamma++, summand = *beta++;
            each_vector<Width>(i, run.size.length, [&](std::ptrdiff_t j, int, int) __attribute__((always_inline)) {
                L::store(out + j, (L::load(x + j) - near) * factor + summand);
            });
        }
    }
};

// Sums of the gradients of gamma and beta: one set for each chunk, or for each image if an image has each gamma once.
std::ptrdiff_t set_count(const RowSizes &size) { return has_own(size) ? chunk_count(size) : size.rows / size.groups; }

std::ptrdiff_t set_size(const RowSizes &size) { return 2 * size.groups * size.parts; }

template <bool Own>
struct DifferentiateRows {
    // `sums`: of the first row.
    template <int Width>
    DPMODULE_INLINE static void run(const RowNormBackward &run, std::ptrdiff_t first, std::ptrdiff_t end, float *sums) {
        if constexpr (Width > 4)
            if ((Own ? run.size.parts : run.size.length) < Width)
                return DifferentiateRows::run<Width / 2>(run, first, end, sums);
        const std::ptrdiff_t groups = run.size.groups;
        for (std::ptrdiff_t row = first; row < end; ++row)
            at<Width>(run, row, Own ? sums : sums + (row / groups - first / groups) * set_size(run.size));
    }

    template <int Width>
    DPMODULE_INLINE static void at(const RowNormBackward &run, std::ptrdiff_t row, float *sums) {
        using L = Vector<Width>;
        using Floats = typename L::Floats;
        const std::ptrdiff_t numbers = numbers_of(run.size), place = row % run.size.groups * run.size.parts;
        const std::ptrdiff_t length = Own ? numbers : run.size.length;
        const float *const x = run.x + row * numbers, *const grad = run.grad + row * numbers;
        const float mean = run.statistics[row], scale = run.statistics[run.size.rows + row];
        const float *gamma = run.gamma + place;
        float *for_gamma = sums + place, *for_beta = for_gamma + set_size(run.size) / 2;
        double sum = 0, products = 0;
        for (std::ptrdiff_t i = 0; i < numbers; i += length) {
            Floats grads[4] = {}, multiples[4] = {};
            each_vector<Width>(i, length, [&](std::ptrdiff_t j, int k, int skip) __attribute__((always_inline)) {
                const Floats distance = L::load(x + j) - mean;
                Floats found = without<Width>(L::load(grad + j), skip);
                if (Own) {
                    L::store(for_beta + j, L::load(for_beta + j) + found);
                    L::store(for_gamma + j, L::load(for_gamma + j) + found * (distance * scale));
                    found *= L::load(gamma + j);
                }
                grads[k] += found;
                multiples[k] += found * distance;
            });
            const double of_grad = total<Width>(grads), of_product = total<Width>(multiples);
            sum += Own ? of_grad : of_grad * gamma[i / length];
            products += Own ? of_product : of_product * gamma[i / length];
            if (Own) continue;
            for_beta[i / length] += static_cast<float>(of_grad);
            for_gamma[i / length] += static_cast<float>(of_product * scale);
        }
        if (!run.for_x) return;
        float *const to = run.for_x + row * numbers;
        const double share = -scale / static_cast<double>(numbers);
        const float summand = static_cast<float>(share * sum);
        const float factor = static_cast<float>(share * scale * scale * products);
        for (std::ptrdiff_t i = 0; i < numbers; i += length) {
            const float all = Own ? scale : scale * gamma[i / length];
            each_vector<Width>(i, length, [&](std::ptrdiff_t j, int, int) __attribute__((always_inline)) {
                Floats found = L::load(grad + j);
                if (Own) found *= L::load(gamma + j);
                L::store(to + j, found * all + ((L::load(x + j) - mean) * factor + summand));
            });
        }
    }
};

}  // namespace

void row_norm_forward(const RowNormForward &run) {
    each_chunk(run.size, [&](std::ptrdiff_t, std::ptrdiff_t first, std::ptrdiff_t end) {
        has_own(run.size) ? run_best<NormalizeRows<true>>(run, first, end)
                          : run_best<NormalizeRows<false>>(run, first, end);
    });
}

bool row_norm_backward(const RowNormBackward &run) {
    const std::ptrdiff_t sets = set_count(run.size), size = set_size(run.size);
    const std::unique_ptr<float[]> found(new (std::nothrow) float[sets * size]());
    if (!found) return false;
    each_chunk(run.size, [&](std::ptrdiff_t chunk, std::ptrdiff_t first, std::ptrdiff_t end) {
        const bool own = has_own(run.size);
        float *const sums = found.get() + (own ? chunk : first / run.size.groups) * size;
        own ? run_best<DifferentiateRows<true>>(run, first, end, sums)
            : run_best<DifferentiateRows<false>>(run, first, end, sums);
    });
    for (std::ptrdiff_t i = 0; i < size; ++i) {
        double sum = 0;
        for (std::ptrdiff_t k = 0; k < sets; ++k) sum += found[k * size + i];
        (i < size / 2 ? run.for_gamma[i] : run.for_beta[i - size / 2]) = static_cast<float>(sum);
    }
    return true;
}

}  // namespace dpmodule
