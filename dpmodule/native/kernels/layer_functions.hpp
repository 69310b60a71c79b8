// Functions applied to a layer's results while they are in registers.
#pragma once

#include "image_layers.hpp"
#include "vector.hpp"

namespace dpmodule {
namespace {

template <int Width>
DPMODULE_INLINE typename Vector<Width>::Floats applied(const ImageLayer &layer,
                                                       const typename Vector<Width>::Floats &x) {
    using V = Vector<Width>;
    const typename V::Floats zero{};
    switch (layer.function) {
        case LayerFunction::Relu: return x > zero ? x : zero;
        case LayerFunction::Clamp: return V::between(x, layer.low, layer.high);
        case LayerFunction::HardSwish: return x * V::between(x + 3.0f, 0.0f, 6.0f) / 6.0f;
        case LayerFunction::Swish: return x * V::sigmoid(x);
        case LayerFunction::Sigmoid: return V::sigmoid(x);
        case LayerFunction::Tanh: return V::tanh(x);
        case LayerFunction::Leaky: return x > zero ? x : x * layer.low;
        case LayerFunction::HardSigmoid: return V::between(x * layer.low + layer.high, 0.0f, 1.0f);
        default: return x;
    }
}

}  // namespace
}  // namespace dpmodule
