// Functions applied to a layer's results while they are in registers.
#pragma once

#include <limits>

#include "image_layers.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

// `layer` has a function and its parameters.
template <int Width, class Layer>
DPMODULE_INLINE typename Vector<Width>::Floats applied(const Layer &layer, const typename Vector<Width>::Floats &x) {
    using V = Vector<Width>;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    switch (layer.function) {
        case LayerFunction::Relu: return x > 0.0f ? x : typename V::Floats{};
        case LayerFunction::Clamp: return V::between(x, layer.low, layer.high);
        case LayerFunction::HardSwish: return x * V::between(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6);
        case LayerFunction::Swish: return x / V::sigmoid_divisor(x);
        case LayerFunction::Sigmoid: return V::sigmoid(x);
        case LayerFunction::Tanh: return V::tanh(x);
        case LayerFunction::Leaky:  // gcc does not vectorize a choice here
            return V::between(x, 0.0f, kInfinity) + V::between(x, -kInfinity, 0.0f) * layer.low;
        case LayerFunction::HardSigmoid: return V::between(x * layer.low + layer.high, 0.0f, 1.0f);
        case LayerFunction::Gelu: return V::gelu(x);
        default: return x;
    }
}

struct Applied {
    LayerFunction function;
    float low = 0.0f, high = 0.0f;
};

// Applies a function to rows of numbers in place, for `run_best`: kernels of many sizes share it. Each function from
// `First` on has loops of its own, so that its constants stay in registers.
struct InPlace {
    template <int Width, LayerFunction First = LayerFunction::HardSwish>
    DPMODULE_INLINE static void run(const Applied &given, float *values, std::ptrdiff_t rows, std::ptrdiff_t gap,
                                    std::ptrdiff_t count) {
        using V = Vector<Width>;
        if (given.function != First) {
            constexpr auto next = static_cast<LayerFunction>(static_cast<std::ptrdiff_t>(First) + 1);
            if constexpr (First < LayerFunction::Gelu) run<Width, next>(given, values, rows, gap, count);
            return;
        }
        const Applied known{First, given.low, given.high};
        for (std::ptrdiff_t row = 0; row < rows; ++row, values += gap) {
            std::ptrdiff_t i = 0;
            for (; i + Width <= count; i += Width) V::store(values + i, applied<Width>(known, V::load(values + i)));
            if (i < count) {
                const typename V::Floats value = applied<Width>(known, V::load(values + i, count - i));
                V::store(values + i, value, count - i);
            }
        }
    }
};

}  // namespace
}  // namespace dpmodule
