#include "packed.hpp"

namespace dpmodule::autobatch {

bool PackedWeights::has(int param, bool forward) const {
    const std::size_t index = 2 * static_cast<std::size_t>(param) + forward;
    return index < entries_.size() && entries_[index].epoch == epoch_;
}

const float *PackedWeights::get(int param, bool forward) {
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
