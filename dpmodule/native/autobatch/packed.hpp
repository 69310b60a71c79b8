// Weights packed for the product kernel: once per parameter and direction, until the parameters change.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.hpp"

namespace dpmodule::autobatch {

class PackedWeights {
  public:
    explicit PackedWeights(const Graph &graph) : graph_(graph) {}
    // For Z = X W^T (`forward`) or X = Z W, with W the parameter.
    const float *get(int param, bool forward);
    bool has(int param, bool forward) const;
    void invalidate() { epoch_++; }

  private:
    struct Entry {
        std::vector<float> data;
        std::uint64_t epoch = 0;
    };
    const Graph &graph_;
    std::vector<Entry> entries_;
    std::uint64_t epoch_ = 1;
};

}  // namespace dpmodule::autobatch
