// Some rows of the weight are read side by side, far enough ahead for memory to keep up.
#include "few_rows.hpp"

#include <algorithm>

#include "team.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kAhead = 256;           // numbers of a row that are fetched before they are needed
constexpr std::ptrdiff_t kLeastWeight = 131072;  // numbers of the weight that are worth a thread

template <int Width, int Rows, int Units>
DPMODULE_INLINE void some_units(const FewRows &run, std::ptrdiff_t unit) {
    using V = Vector<Width>;
    typename V::Floats sums[Rows][Units]{};
    const float *weight = run.weight + unit * run.weight_gap;
    const auto add = [&](std::ptrdiff_t k, std::ptrdiff_t count) __attribute__((always_inline)) {
        typename V::Floats data[Rows];
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) data[r] = V::load(run.data + r * run.data_gap + k, count);
#pragma GCC unroll 4
        for (int u = 0; u < Units; ++u) {
            const typename V::Floats factors = V::load(weight + u * run.weight_gap + k, count);
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r) sums[r][u] += factors * data[r];
        }
    };
    std::ptrdiff_t k = 0;
    for (; k + Width <= run.features; k += Width) {
#pragma GCC unroll 4
        for (int u = 0; u < Units; ++u) __builtin_prefetch(weight + u * run.weight_gap + k + kAhead);
        add(k, Width);
    }
    if (k < run.features) add(k, run.features - k);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int u = 0; u < Units; ++u) {
            float sum = 0;
            for (int i = 0; i < Width; ++i) sum += sums[r][u][i];
            run.result[r * run.units + unit + u] = run.bias ? sum + run.bias[unit + u] : sum;
        }
    }
}

template <int Width, int Rows>
DPMODULE_INLINE void units_between(const FewRows &run, std::ptrdiff_t unit, std::ptrdiff_t end) {
    constexpr int kUnits = Width < 16 && Rows > 2 ? 2 : 4;  // as many sums as there are registers
    for (; unit + kUnits <= end; unit += kUnits) some_units<Width, Rows, kUnits>(run, unit);
    for (; unit < end; ++unit) some_units<Width, Rows, 1>(run, unit);
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
    in_ranges(run.units, std::min<std::ptrdiff_t>(run.threads, run.units * run.features / kLeastWeight),
              [&](std::ptrdiff_t begin, std::ptrdiff_t end) { run_best<SomeUnits>(run, begin, end); });
}

}  // namespace dpmodule
