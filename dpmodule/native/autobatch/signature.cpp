#include "signature.hpp"

#include <cstring>

namespace dpmodule::autobatch {

std::size_t Interner::Hash::operator()(const std::vector<int> &key) const {
    std::uint64_t h = 0x9e3779b97f4a7c15ull;
    for (int x : key) h = (h ^ static_cast<std::uint32_t>(x)) * 0xff51afd7ed558ccdull, h ^= h >> 32;
    return static_cast<std::size_t>(h);
}

std::pair<int, bool> Interner::number(const std::vector<int> &key) {
    const auto [at, fresh] = known_.try_emplace(key, static_cast<int>(known_.size()));
    return {at->second, fresh};
}

int Signatures::add(Signature s) {
    std::vector<int> key = {static_cast<int>(s.op), s.kind, 0, s.shape, s.nargs, static_cast<int>(s.params.size())};
    std::memcpy(&key[2], &s.attr, sizeof s.attr);
    key.insert(key.end(), s.params.begin(), s.params.end());
    key.insert(key.end(), s.widths.begin(), s.widths.end());
    const auto [index, fresh] = numbers_.number(key);
    if (fresh) {
        if (s.shape >= 0) {
            const std::vector<int> &dims = shapes_[s.shape].dims;
            s.width = shapes_[s.shape].size;
            s.is_matrix = dims.size() > 1 && dims[0] > 1 && s.width > dims[0];
        }
        all_.push_back(std::move(s));
    }
    return index;
}

int Signatures::add_shape(const std::vector<int> &dims, int batch) {
    std::int64_t size = batch;
    for (int d : dims) {
        size *= d;   // both fit into 32 bits
        if (size > INT32_MAX) throw TooLarge();
    }
    std::vector<int> key = dims;
    key.push_back(batch);
    const auto [index, fresh] = shape_numbers_.number(key);
    if (fresh) {
        shapes_.push_back({dims, batch, static_cast<int>(size)});
    }
    return index;
}

int &Signatures::cached(int operation, int shape) {
    if (operation >= static_cast<int>(cache_.size())) cache_.resize(operation + 1);
    std::vector<int> &row = cache_[operation];
    if (shape >= static_cast<int>(row.size())) row.resize(shape + 16, -1);
    return row[shape];
}

}  // namespace dpmodule::autobatch
