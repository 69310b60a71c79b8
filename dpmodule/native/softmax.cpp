// As many rows as a vector has numbers are turned round, so that each class of all of them is one vector.
#include "softmax.hpp"

#if defined(__GNUC__)

#include <algorithm>

#include "vector/functions.hpp"
#include "vector/instructions.hpp"

namespace dpmodule {
namespace {

// Rows beyond those that there are count as zeros.
template <int Width>
DPMODULE_INLINE void some_rows(const float *scores, float *result, std::ptrdiff_t rows, std::ptrdiff_t classes) {
    using V = Vector<Width>;
    using Floats = typename V::Floats;
    float turned[kMostClasses][Width] = {};
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
        const Floats power = below < -87.0f ? Floats{} : e.part * e.scale + e.scale;  // NaN stays
        sum += power;
        V::store(turned[k], power, Width);
    }
    for (std::ptrdiff_t k = 0; k < classes; ++k) V::store(turned[k], V::load(turned[k]) / sum, Width);
    for (std::ptrdiff_t row = 0; row < rows; ++row) {
        for (std::ptrdiff_t k = 0; k < classes; ++k) result[row * classes + k] = turned[k][row];
    }
}

template <int Width>
DPMODULE_INLINE void all_rows(const Softmax &run) {
    for (std::ptrdiff_t row = 0; row < run.rows; row += Width) {
        const std::ptrdiff_t at = row * run.classes, rows = std::min<std::ptrdiff_t>(Width, run.rows - row);
        some_rows<Width>(run.scores + at, run.result + at, rows, run.classes);
    }
}

using Rows = void (*)(const Softmax &);

void plain(const Softmax &run) { all_rows<4>(run); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void avx2(const Softmax &run) { all_rows<8>(run); }
__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) void avx512(const Softmax &run) { all_rows<16>(run); }

Rows choose() {
    switch (vector::best_instructions()) {
        case vector::Instructions::Avx512: return avx512;
        case vector::Instructions::Avx2: return avx2;
        default: return plain;
    }
}
#else
Rows choose() { return plain; }
#endif

}  // namespace

bool softmax(const Softmax &run) {
    static const Rows rows = choose();
    rows(run);
    return true;
}

}  // namespace dpmodule

#endif
