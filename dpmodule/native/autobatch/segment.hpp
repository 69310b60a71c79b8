// A plan and what its computation leaves for the backward pass.
#pragma once

#include <memory>
#include <vector>

#include "affine.hpp"
#include "plan.hpp"

namespace dpmodule::autobatch {

struct Segment {
    explicit Segment(Plan made) : plan(std::move(made)), affine(plan.runs.size()) {}
    Plan plan;
    // per run and step, made at the first bucket; only for products
    std::vector<std::vector<std::unique_ptr<Affine>>> affine;
};

}  // namespace dpmodule::autobatch
