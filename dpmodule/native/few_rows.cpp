// Some rows of the weight are read side by side, far enough ahead for memory to keep up.
#include "few_rows.hpp"

#if defined(__GNUC__)

#include <algorithm>

#include "team.hpp"
#include "vector/functions.hpp"
#include "vector/instructions.hpp"

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

template <int Width>
DPMODULE_INLINE void units_of(const FewRows &run, std::ptrdiff_t begin, std::ptrdiff_t end) {
    switch (run.rows) {
        case 1: return units_between<Width, 1>(run, begin, end);
        case 2: return units_between<Width, 2>(run, begin, end);
        case 3: return units_between<Width, 3>(run, begin, end);
        default: return units_between<Width, 4>(run, begin, end);
    }
}

using Units = void (*)(const FewRows &, std::ptrdiff_t begin, std::ptrdiff_t end);

void plain(const FewRows &run, std::ptrdiff_t begin, std::ptrdiff_t end) { units_of<4>(run, begin, end); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void avx2(const FewRows &run, std::ptrdiff_t begin, std::ptrdiff_t end) {
    units_of<8>(run, begin, end);
}
__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) void avx512(const FewRows &run, std::ptrdiff_t begin,
                                                                          std::ptrdiff_t end) {
    units_of<16>(run, begin, end);
}

Units choose() {
    switch (vector::best_instructions()) {
        case vector::Instructions::Avx512: return avx512;
        case vector::Instructions::Avx2: return avx2;
        default: return plain;
    }
}
#else
Units choose() { return plain; }
#endif

struct Shared {
    const FewRows &run;
    std::ptrdiff_t parts;
    Units units;
};

void one_part(void *given, std::ptrdiff_t part) {
    const Shared &shared = *static_cast<const Shared *>(given);
    const std::ptrdiff_t units = shared.run.units;
    shared.units(shared.run, units * part / shared.parts, units * (part + 1) / shared.parts);
}

}  // namespace

bool multiply_few_rows(const FewRows &run) {
    static const Units units = choose();
    const std::ptrdiff_t parts = std::min<std::ptrdiff_t>(run.threads, run.units * run.features / kLeastWeight);
    Shared shared{run, std::max<std::ptrdiff_t>(parts, 1), units};
    in_parts(shared.parts, static_cast<int>(shared.parts), one_part, &shared);
    return true;
}

}  // namespace dpmodule

#endif
