#include "arena.hpp"

#include <new>

namespace dpmodule::autobatch {
namespace {

constexpr std::size_t line = 16;  // floats in a cache line
constexpr std::align_val_t alignment{line * sizeof(float)};
constexpr std::size_t smallest = 1 << 14;      // floats in the first chunk
constexpr std::size_t largest_step = 1 << 22;  // chunks double up to this size

}  // namespace

void Arena::Free::operator()(float *p) const { ::operator delete(p, alignment); }

float *Arena::take(std::size_t count) {
    count = (count + line - 1) / line * line;
    while (current_ < chunks_.size() && chunks_[current_].size - used_ < count) {
        current_++;
        used_ = 0;
    }
    if (current_ == chunks_.size()) grow(count);
    float *at = chunks_[current_].memory.get() + used_;
    used_ += count;
    taken_ += count;
    return at;
}

void Arena::grow(std::size_t count) {
    std::size_t size = chunks_.empty() ? smallest : chunks_.back().size * 2;
    if (size > largest_step) size = largest_step;
    if (size < count) size = count;
    void *memory = ::operator new(size * sizeof(float), alignment);
    chunks_.push_back({std::unique_ptr<float, Free>(static_cast<float *>(memory)), size});
    used_ = 0;
}

void Arena::reset() {
    // keep up to twice of what this round took, so that rounds of alike sizes allocate nothing
    std::size_t kept = 0, n = 0;
    while (n < chunks_.size() && (n == 0 || kept + chunks_[n].size <= 2 * taken_ + 2 * smallest))
        kept += chunks_[n++].size;
    chunks_.resize(n);
    if (n == 1 && chunks_[0].size > 2 * taken_ + 2 * smallest) chunks_.clear();
    rewind();
    taken_ = 0;
}

void Arena::rewind() { current_ = used_ = 0; }

std::size_t Arena::bytes() const {
    std::size_t total = 0;
    for (const Chunk &chunk : chunks_) total += chunk.size * sizeof(float);
    return total;
}

}  // namespace dpmodule::autobatch
