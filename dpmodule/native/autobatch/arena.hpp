// Memory for values and gradients: allocated in order, released together, never moved.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <new>
#include <cstddef>
#include <memory>
#include <vector>

namespace dpmodule::autobatch {

class Arena {
  public:
    // The first chunk has `first` floats.
    explicit Arena(std::size_t first = smallest) : first_(first) {}
    // `count` floats, aligned to a cache line; their contents are undefined.
    float *take(std::size_t count);
    // Release all allocations. Memory that this round did not need is returned to the system.
    void reset();
    // Position of the next allocation; and: release all later allocations.
    struct Mark {
        std::size_t chunk = 0, used = 0;
    };
    Mark mark() const { return {current_, used_}; }
    void rewind(Mark mark) { current_ = mark.chunk, used_ = mark.used; }
    // As reset, but without returning memory to the system, for scratch space within a run.
    void rewind();
    std::size_t bytes() const;

  private:
    static constexpr std::size_t line = 16;                                      // floats in a cache line
    static constexpr std::size_t page = 4096, huge_page = std::size_t{1} << 21;  // bytes
    static constexpr std::size_t smallest = 1 << 14;                             // floats in the first chunk
    static constexpr std::size_t largest_step = 1 << 22;                         // chunks double up to this size

    struct Free {
        std::align_val_t alignment;
        void operator()(float *p) const { ::operator delete(p, alignment); }
    };
    struct Chunk {
        std::unique_ptr<float, Free> memory;
        std::size_t size = 0;
    };
    void grow(std::size_t count);

    std::size_t first_;
    std::vector<Chunk> chunks_;
    std::size_t current_ = 0, used_ = 0, taken_ = 0;
};

inline float *Arena::take(std::size_t count) {
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

inline void Arena::grow(std::size_t count) {
    std::size_t size = chunks_.empty() ? first_ : chunks_.back().size * 2;
    if (size > largest_step) size = largest_step;
    if (size < count) size = count;
    const bool huge = size * sizeof(float) >= huge_page;
    const std::align_val_t alignment{huge ? huge_page : page};
    void *memory = ::operator new(size * sizeof(float), alignment);
#ifdef MADV_HUGEPAGE
    // so that fewer addresses are translated; without effect if it fails
    if (huge) madvise(memory, size * sizeof(float), MADV_HUGEPAGE);
#endif
    chunks_.push_back({std::unique_ptr<float, Free>(static_cast<float *>(memory), Free{alignment}), size});
    used_ = 0;
}

inline void Arena::reset() {
    // keep up to three times the memory of this round, so that similar rounds allocate nothing: chunks double
    std::size_t kept = 0, n = 0;
    while (n < chunks_.size() && (n == 0 || kept + chunks_[n].size <= 3 * taken_ + 2 * smallest))
        kept += chunks_[n++].size;
    chunks_.resize(n);
    if (n == 1 && chunks_[0].size > 3 * taken_ + 2 * smallest) chunks_.clear();
    rewind();
    taken_ = 0;
}

inline void Arena::rewind() { current_ = used_ = 0; }

inline std::size_t Arena::bytes() const {
    std::size_t total = 0;
    for (const Chunk &chunk : chunks_) total += chunk.size * sizeof(float);
    return total;
}

}  // namespace dpmodule::autobatch
