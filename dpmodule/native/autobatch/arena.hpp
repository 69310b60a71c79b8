// Memory for values and gradients: taken in order, given back all at once, never moved.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace dpmodule::autobatch {

class Arena {
  public:
    // `count` floats, aligned to a cache line; their contents are undefined.
    float *take(std::size_t count);
    // Forget everything taken.  Memory that this round did not need is returned to the system.
    void reset();
    // Where the next piece will lie; and: forget what was taken since.
    struct Mark {
        std::size_t chunk = 0, used = 0;
    };
    Mark mark() const { return {current_, used_}; }
    void rewind(Mark mark) { current_ = mark.chunk, used_ = mark.used; }
    // As reset, but keeps all memory: for scratch space inside one run.
    void rewind();
    std::size_t bytes() const;

  private:
    struct Free {
        void operator()(float *p) const;
    };
    struct Chunk {
        std::unique_ptr<float, Free> memory;
        std::size_t size = 0;
    };
    void grow(std::size_t count);

    std::vector<Chunk> chunks_;
    std::size_t current_ = 0, used_ = 0, taken_ = 0;
};

}  // namespace dpmodule::autobatch
