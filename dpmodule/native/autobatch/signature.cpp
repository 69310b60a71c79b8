#include "signature.hpp"

#include <algorithm>
#include <cstring>

namespace dpmodule::autobatch {

std::pair<int, bool> Interner::number(const std::vector<int> &key) {
    std::uint64_t h = 0x9e3779b97f4a7c15ull;
    for (int x : key) h = (h ^ static_cast<std::uint32_t>(x)) * 0xff51afd7ed558ccdull, h ^= h >> 32;
    const auto hash = static_cast<std::uint32_t>(h);
    if (2 * ends_.size() >= slots_.size()) grow();
    std::size_t slot = hash & (slots_.size() - 1);
    for (int known; (known = slots_[slot]) >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
        const std::size_t begin = known ? ends_[known - 1] : 0;
        if (hashes_[known] == hash &&
            std::equal(key.begin(), key.end(), keys_.begin() + begin, keys_.begin() + ends_[known]))
            return {known, false};
    }
    const int fresh = static_cast<int>(ends_.size());
    keys_.insert(keys_.end(), key.begin(), key.end());
    hashes_.push_back(hash);
    ends_.push_back(keys_.size());
    slots_[slot] = fresh;
    return {fresh, true};
}

void Interner::grow() {
    slots_.assign(std::max<std::size_t>(16, 2 * slots_.size()), -1);
    for (std::size_t number = 0; number < ends_.size(); number++) {
        std::size_t slot = hashes_[number] & (slots_.size() - 1);
        while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
        slots_[slot] = static_cast<int>(number);
    }
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
        size *= d;  // both fit into 32 bits
        if (size > INT32_MAX) throw TooLarge();
    }
    std::vector<int> key;
    key.reserve(dims.size() + 1);
    key.assign(dims.begin(), dims.end());
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
