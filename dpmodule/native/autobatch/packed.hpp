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

inline bool PackedWeights::has(int param, bool forward) const {
    const std::size_t index = 2 * static_cast<std::size_t>(param) + forward;
    return index < entries_.size() && entries_[index].epoch == epoch_;
}

inline const float *PackedWeights::get(int param, bool forward) {
    const std::size_t index = 2 * static_cast<std::size_t>(param) + forward;
    if (index >= entries_.size()) entries_.resize(index + 2);
    Entry &entry = entries_[index];
    if (entry.epoch != epoch_) {
        const Param &p = graph_.params[param];
        const int k = forward ? p.cols : p.rows, n = forward ? p.rows : p.cols;
        entry.data.resize(packed_size(kernels(), k, n));
        pack(kernels(), k, n, p.value, p.cols, forward, entry.data.data());
        entry.epoch = epoch_;
    }
    return entry.data.data();
}

}  // namespace dpmodule::autobatch
