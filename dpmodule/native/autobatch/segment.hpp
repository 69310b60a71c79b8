// A plan and what its computation leaves for the backward pass.
#pragma once

#include <memory>
#include <vector>

#include "affine.hpp"
#include "plan.hpp"

namespace dpmodule::autobatch {

struct Segment {
    Segment(Plan made, Arena::Mark start) : plan(std::move(made)), start(start), affine(plan.runs.size()) {}
    Plan plan;
    Arena::Mark start;  // of its memory
    // per run and step, made at the first bucket; only for products
    std::vector<std::vector<std::unique_ptr<Affine>>> affine;
};

}  // namespace dpmodule::autobatch
