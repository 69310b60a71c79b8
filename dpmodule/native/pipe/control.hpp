// Control block shared by both ends of a pipe (streams/pipe/control.py describes its layout). Each side wakes the other
// through a descriptor, but only if the other has marked itself as sleeping.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/parallel.hpp"

namespace dpmodule::pipe {

enum Side { writer = 0, reader = 1 };
enum Kind : uint64_t { data = 1 };
enum WaitEvent { ready = 1, news = 2, ended = 4 };

constexpr int ring_size = 256, most_slots = 64;

class Control {
  public:
    // Map the block and duplicate the descriptor that wakes the other side. Throws std::system_error.
    Control(int fd, int wake_fd, Side side);
    ~Control();
    Control(const Control &) = delete;
    Control &operator=(const Control &) = delete;

    using Word = std::atomic<uint64_t>;
    Word &head() { return words_[24]; }
    Word &tail() { return words_[32]; }
    Word &ring(uint64_t number) { return words_[64 + number % ring_size]; }
    Word &slot(int number) { return words_[64 + ring_size + 8 * number]; }
    Word &state(Side side) { return words_[8 + 8 * side + 2]; }
    // True if the other side has closed or dropped its end.
    bool other_closed() { return state(side_ == writer ? reader : writer).load(std::memory_order_acquire) != 0; }
    int slots() { return static_cast<int>(words_[2].load(std::memory_order_relaxed)); }

    // Wake the other side if it sleeps; call this after publishing.
    void wake_other();
    // Mark this side as sleeping; the caller must check for work again afterwards.
    void mark_sleeping();
    void mark_awake();

  private:
    Word &sleeps(int side) { return words_[8 + 8 * side + 3]; }

    Word *words_;
    int wake_fd_;
    Side side_;
};

// Shared memory of several tensors, mapped as long as one of them lives.
class Memory {
  public:
    // Throws std::system_error.
    Memory(int fd, size_t size);
    ~Memory();
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    char *at(int64_t offset) const { return base_ + offset; }
    int64_t *words() const { return reinterpret_cast<int64_t *>(base_); }
    size_t size() const { return size_; }
    bool contains(const void *start, size_t bytes) const {
        auto first = static_cast<const char *>(start);
        return first >= base_ && first + bytes <= base_ + size_;
    }

  private:
    char *base_;
    size_t size_;
};

// Return true if a wait may spin for a few microseconds first: there are several cores.
bool may_spin();

// Wait for descriptors, ignoring those of -1, for at most `seconds` (below 0: forever).
// Returns a sum of `WaitEvent`, or -1 if a signal came first. Empties the first descriptor if it is readable.
int poll_all(int wake, int socket, int process, double seconds);

}  // namespace dpmodule::pipe
