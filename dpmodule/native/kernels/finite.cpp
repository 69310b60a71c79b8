#include "finite.hpp"

#include "vector.hpp"

namespace dpmodule {
namespace {

// A number less itself is 0 if it is finite, else NaN, which a sum keeps.
struct DifferencesVanish {
    // Eight runs are read side by side: memory delivers half as much again as for one.
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

}  // namespace dpmodule
