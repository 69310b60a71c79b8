#include "steps.hpp"

#include <algorithm>
#include <cmath>

#include "layer_functions.hpp"
#include "product.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

struct Operand {
    const float *at;
    std::int64_t gap;

    template <int Width>
    DPMODULE_INLINE typename Vector<Width>::Floats load(std::ptrdiff_t i) const {
        if (gap == 1) return Vector<Width>::load(at + i);
        if (gap == 0) return *at - typename Vector<Width>::Floats{};  // which keeps the sign of zero
        float found[Width];
        for (int k = 0; k < Width; ++k) found[k] = at[(i + k) * gap];
        return Vector<Width>::load(found);
    }
};

template <StepKind Kind>
struct Elementwise {
    const SmallStep &s;
    Operand a, b;
    float *to;

    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t i) const {
        typename Vector<Width>::Floats found = a.load<Width>(i);
        if constexpr (Kind == StepKind::Add) found += b.load<Width>(i);
        if constexpr (Kind == StepKind::Subtract) found -= b.load<Width>(i);
        if constexpr (Kind == StepKind::Multiply) found *= b.load<Width>(i);
        if constexpr (Kind == StepKind::Divide) found /= b.load<Width>(i);
        if constexpr (Kind == StepKind::First) found = applied<Width>(s, found);
        Vector<Width>::store(to + i, found);
    }
};

// The sum of some rows, column by column.
struct SumRows {
    const float *from;
    std::int64_t rows, gap;
    float factor, *to;

    template <int Width>
    DPMODULE_INLINE void at(std::ptrdiff_t column) const {
        typename Vector<Width>::Floats sum{};
        for (std::int64_t i = 0; i < rows; ++i) sum += Vector<Width>::load(from + i * gap + column);
        Vector<Width>::store(to + column, sum * factor);
    }
};

// The sum of consecutive numbers.
template <int Width>
DPMODULE_INLINE float sum_of(const float *from, std::int64_t count) {
    typename Vector<Width>::Floats sums{};
    std::int64_t i = 0;
    for (; i + Width <= count; i += Width) sums += Vector<Width>::load(from + i);
    float sum = Vector<Width>::total(sums);
    for (; i < count; ++i) sum += from[i];
    return sum;
}

template <int Width>
DPMODULE_INLINE void sum(const SmallStep &s) {
    const std::int64_t rows = s.sizes[1], width = s.sizes[2];
    for (std::int64_t i = 0; i < s.sizes[0]; ++i) {
        const float *from = s.a + i * rows * width;
        float *to = s.result + i * width;
        if (width == 1) *to = s.factor * sum_of<Width>(from, rows);
        else all_vectors<Width>(width, SumRows{from, rows, width, s.factor, to});
    }
}

template <int Width, StepKind Kind>
DPMODULE_INLINE void elementwise(const SmallStep &s) {
    const float *b = s.b ? s.b : &s.factor;
    const std::int64_t (&n)[4] = s.sizes, (&p)[4] = s.gaps[0], (&q)[4] = s.gaps[1], (&r)[4] = s.gaps[2];
    for (std::int64_t i = 0; i < n[0]; ++i) {
        for (std::int64_t j = 0; j < n[1]; ++j) {
            for (std::int64_t k = 0; k < n[2]; ++k) {
                const Operand left{s.a + i * p[0] + j * p[1] + k * p[2], p[3]};
                const Operand right{b + i * q[0] + j * q[1] + k * q[2], q[3]};
                float *to = s.result + i * r[0] + j * r[1] + k * r[2];
                all_vectors<Width>(n[3], Elementwise<Kind>{s, left, right, to});
            }
        }
    }
}

struct OneStep {
    template <int Width>
    DPMODULE_INLINE static void run(const SmallStep &s) {
        switch (s.kind) {
            case StepKind::Add: return elementwise<Width, StepKind::Add>(s);
            case StepKind::Subtract: return elementwise<Width, StepKind::Subtract>(s);
            case StepKind::Multiply: return elementwise<Width, StepKind::Multiply>(s);
            case StepKind::Divide: return elementwise<Width, StepKind::Divide>(s);
            case StepKind::First: return elementwise<Width, StepKind::First>(s);
            default: return sum<Width>(s);
        }
    }
};

// An index as torch casts it to an integer on x86.
template <class Number>
std::int64_t row_at(const void *indices, std::int64_t i) {
    const Number found = static_cast<const Number *>(indices)[i];
    if constexpr (std::is_integral_v<Number>) return found;
    else return std::abs(found) < Number{9e18} ? static_cast<std::int64_t>(found) : 0;
}

template <class Number>
void look_up(const SmallStep &s) {
    const std::int64_t width = s.sizes[1], last = s.sizes[2] - 1;
    for (std::int64_t i = 0; i < s.sizes[0]; ++i) {
        const std::int64_t row = std::clamp<std::int64_t>(row_at<Number>(s.a, i), 0, last);
        float *to = s.result + i * width;
        if (width == 1) *to = s.b[row];
        else std::memcpy(to, s.b + row * width, sizeof(float) * width);
    }
}

bool multiply_pairs(const SmallStep &s) {
    const std::int64_t rows = s.sizes[1], columns = s.sizes[2], depth = s.sizes[3];
    for (std::int64_t i = 0; i < s.sizes[0]; ++i) {
        const Matrix left{s.a + i * s.gaps[0][0], s.gaps[0][1], s.gaps[0][2]};
        const Matrix right{s.b + i * s.gaps[1][0], s.gaps[1][1], s.gaps[1][2]};
        if (!multiply({rows, columns, depth, left, right, nullptr, s.result + i * rows * columns})) return false;
    }
    return true;
}

bool run_step(const SmallStep &s, int threads) {
    switch (s.kind) {
        case StepKind::Lookup:
            switch (static_cast<IndexType>(s.sizes[3])) {
                case IndexType::Int64: look_up<std::int64_t>(s); break;
                case IndexType::Int32: look_up<std::int32_t>(s); break;
                case IndexType::Float32: look_up<float>(s); break;
                default: look_up<double>(s); break;
            }
            return true;
        case StepKind::Product: return multiply_pairs(s);
        case StepKind::Dense: {
            const DenseLayer layer{s.sizes[1], s.sizes[2], s.b, s.c, s.function};
            return dense({1, s.sizes[0], s.a, 0, s.sizes[2], s.result, &layer, 1, threads});
        }
        default: run_best<OneStep>(s); return true;
    }
}

}  // namespace

bool run_steps(const std::vector<SmallStep> &steps, int threads) {
    return std::all_of(steps.begin(), steps.end(), [=](const SmallStep &s) { return run_step(s, threads); });
}

}  // namespace dpmodule
