// The way from workers to one event loop: a list of finished jobs and a descriptor that the loop watches.
#pragma once

#include <atomic>

#include "job.hpp"

namespace dpmodule {

// `complete` may be called by any thread and needs no GIL; everything else belongs to threads that hold it.
class SignalBus {
  public:
    enum class Descriptor { best, pipe };  // best: eventfd where there is one

    // Throws std::system_error when there are no descriptors left.
    explicit SignalBus(Descriptor which = Descriptor::best);
    ~SignalBus();
    SignalBus(const SignalBus &) = delete;
    SignalBus &operator=(const SignalBus &) = delete;

    // The end that becomes readable; -1 once closed.
    int descriptor() const noexcept { return read_end_; }
    bool closed() const noexcept { return finished_.closed(); }
    // Whether a fork lies between the bus and this process; its descriptor then belongs to the parent's loop.
    bool foreign() const noexcept { return generation_ != fork_generation(); }

    // Hand a job back. The descriptor is written only if the loop has not been told yet that there is something.
    void complete(Job *job) noexcept;

    // Make the descriptor unreadable again, then take finished jobs until `take` returns nullptr.
    void clear() noexcept;
    Job *take() noexcept;

    // Close the descriptor and return the jobs that no one has taken; later ones become orphans.
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
