// Channel from workers to one event loop: a list of finished jobs and a descriptor that the loop watches.
#pragma once

#include <atomic>

#include "job.hpp"

namespace dpmodule {

// Any thread may call `complete`, without the GIL; all other methods need the GIL.
class SignalBus {
  public:
    enum class Descriptor { best, pipe };  // best: eventfd if available

    // Throws std::system_error when there are no descriptors left.
    explicit SignalBus(Descriptor which = Descriptor::best);
    ~SignalBus();
    SignalBus(const SignalBus &) = delete;
    SignalBus &operator=(const SignalBus &) = delete;

    // Return the descriptor that becomes readable, or -1 once closed.
    int descriptor() const noexcept { return read_end_; }
    bool closed() const noexcept { return finished_.closed(); }
    // True if the process has forked since the bus was made; the descriptor then belongs to the parent's loop.
    bool from_before_fork() const noexcept { return generation_ != fork_generation(); }

    // Append a finished job. Writes to the descriptor only if the loop has not been notified yet.
    void complete(Job *job) noexcept;

    // Make the descriptor unreadable again, then take finished jobs until `take` returns nullptr.
    void clear() noexcept;
    Job *take() noexcept;

    // Close the descriptor and return the jobs not taken yet; later ones become orphans.
    Job *close() noexcept;

  private:
    void wake() noexcept;
    void close_descriptors() noexcept;

    JobStack finished_;
    std::atomic<bool> told_{false};
    std::atomic<int> completing_{0};
    unsigned generation_ = fork_generation();
    int read_end_ = -1, write_end_ = -1;
};

}  // namespace dpmodule
