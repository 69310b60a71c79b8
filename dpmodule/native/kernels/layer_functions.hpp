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
        case LayerFunction::HardSwish: return x * V::between(x + 3.0f, 0.0f, 6.0f) / 6.0f;
        case LayerFunction::Swish: return x * V::sigmoid(x);
        case LayerFunction::Sigmoid: return V::sigmoid(x);
        case LayerFunction::Tanh: return V::tanh(x);
        case LayerFunction::Leaky:  // gcc does not vectorize a choice here
            return V::between(x, 0.0f, kInfinity) + V::between(x, -kInfinity, 0.0f) * layer.low;
        case LayerFunction::HardSigmoid: return V::between(x * layer.low + layer.high, 0.0f, 1.0f);
        default: return x;
    }
}

}  // namespace
}  // namespace dpmodule
