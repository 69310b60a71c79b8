// As many rows as a vector has numbers are turned round, so that each class of all of them is one vector.
#include "softmax.hpp"

#include <algorithm>

#include "vector.hpp"

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

struct AllRows {
    template <int Width>
    DPMODULE_INLINE static void run(const Softmax &run) {
        for (std::ptrdiff_t row = 0; row < run.rows; row += Width) {
            const std::ptrdiff_t at = row * run.classes, rows = std::min<std::ptrdiff_t>(Width, run.rows - row);
            some_rows<Width>(run.scores + at, run.result + at, rows, run.classes);
        }
    }
};

}  // namespace

void softmax(const Softmax &run) { run_best<AllRows>(run); }

}  // namespace dpmodule
