#include "finite.hpp"

#if defined(__GNUC__)

#include <cstring>

#include "vector/instructions.hpp"

// the functions with vectors are always inlined
#pragma GCC diagnostic ignored "-Wpsabi"

#define DPMODULE_INLINE inline __attribute__((always_inline))

namespace dpmodule {
namespace {

// A number less itself is 0 if it is finite, else NaN, which a sum keeps.
template <int Width>
struct Differences {
    typedef float Floats __attribute__((vector_size(4 * Width)));

    // Eight runs are read side by side: memory delivers half as much again as for one.
    DPMODULE_INLINE static bool vanish(const float *at, std::ptrdiff_t count) {
        constexpr int kRuns = 8;
        const std::ptrdiff_t run = count / (kRuns * Width) * Width;
        Floats sums[kRuns] = {};
        for (std::ptrdiff_t i = 0; i < run; i += Width) {
#pragma GCC unroll 8
            for (int k = 0; k < kRuns; ++k) {
                Floats now;
                std::memcpy(&now, at + k * run + i, sizeof now);
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

using Look = bool (*)(const float *, std::ptrdiff_t);

bool plain(const float *at, std::ptrdiff_t count) { return Differences<4>::vanish(at, count); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) bool avx2(const float *at, std::ptrdiff_t count) {
    return Differences<8>::vanish(at, count);
}

__attribute__((target("avx512f"))) bool avx512(const float *at, std::ptrdiff_t count) {
    return Differences<16>::vanish(at, count);
}

Look choose() {
    switch (vector::best_instructions()) {
        case vector::Instructions::Avx512: return avx512;
        case vector::Instructions::Avx2: return avx2;
        default: return plain;
    }
}
#else
Look choose() { return plain; }
#endif

}  // namespace

bool all_finite(const float *at, std::ptrdiff_t count) {
    static const Look look = choose();
    return look(at, count);
}

}  // namespace dpmodule

#else

#include <cmath>

bool dpmodule::all_finite(const float *at, std::ptrdiff_t count) {
    for (std::ptrdiff_t i = 0; i < count; ++i) {
        if (!std::isfinite(at[i])) return false;
    }
    return true;
}

#endif
