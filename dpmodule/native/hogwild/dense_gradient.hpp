// The gradient of a parameter that every batch uses whole, for one worker.
#pragma once

#include <vector>

#include "plan.hpp"

namespace dpmodule::hogwild {

struct DenseGradient {
    explicit DenseGradient(const Parameter &which)
        : parameter(which), values(static_cast<std::size_t>(which.rows * which.width)) {}

    const Parameter &parameter;
    std::vector<float> values;
    bool used = false;  // by a layer whose backward() runs before
};

// Where a layer puts the gradient of one of its parameters.
struct DenseInput {
    DenseGradient *gradient = nullptr;  // nullptr: there is no such parameter
    bool add = false;

    const float *weight() const { return gradient ? gradient->parameter.weight : nullptr; }
};

}  // namespace dpmodule::hogwild
