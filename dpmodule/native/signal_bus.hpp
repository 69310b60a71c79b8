// Channel from workers to one event loop: a list of finished jobs and a descriptor that the loop watches.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sched.h>
#include <system_error>
#include <unistd.h>

#include "job.hpp"

#ifdef __linux__
#include <sys/eventfd.h>
#endif

namespace dpmodule {

inline void prepare(int descriptor) {
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(descriptor, F_SETFD, FD_CLOEXEC) < 0) {
        throw std::system_error(errno, std::generic_category(), "the event loop's descriptor");
    }
}

// Any thread may call `complete`, without the GIL; all other methods need the GIL.
class SignalBus {
  public:
    enum class Descriptor { best, pipe };  // best: eventfd if available

    // Throws std::system_error when there are no descriptors left.
    explicit SignalBus(Descriptor which = Descriptor::best) {
#ifdef __linux__
        if (which == Descriptor::best) {
            read_end_ = write_end_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
            if (read_end_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
            return;
        }
#endif
        (void)which;
        int ends[2];
        if (::pipe(ends) < 0) throw std::system_error(errno, std::generic_category(), "pipe");
        read_end_ = ends[0];
        write_end_ = ends[1];
        try {
            prepare(read_end_);
            prepare(write_end_);
        } catch (...) {
            close_descriptors();
            throw;
        }
    }
    ~SignalBus() {
        // Jobs keep the bus alive, so none is in flight here.
        close_descriptors();
    }
    SignalBus(const SignalBus &) = delete;
    SignalBus &operator=(const SignalBus &) = delete;

    // Return the descriptor that becomes readable, or -1 once closed.
    int descriptor() const noexcept { return read_end_; }
    bool closed() const noexcept { return finished_.closed(); }
    // True if the process has forked since the bus was made; the descriptor then belongs to the parent's loop.
    bool from_before_fork() const noexcept { return generation_ != fork_generation(); }

    // Append a finished job. Writes to the descriptor only if the loop has not been notified yet.
    void complete(Job *job) noexcept {
        completing_.fetch_add(1);  // close() keeps the descriptor until this is 0 again: its number might be reused
        if (!finished_.push(job)) {
            orphans().push(job);
        } else if (!told_.exchange(true)) {
            wake();
        }
        completing_.fetch_sub(1);
    }

    // Make the descriptor unreadable again, then take finished jobs until `take` returns nullptr.
    void clear() noexcept {
        std::uint64_t count;
        while (read_end_ >= 0 && ::read(read_end_, &count, sizeof count) < 0 && errno == EINTR) {
        }
    }
    // While jobs are being taken the loop counts as notified, so workers do not write. The final check, after that flag is
    // cleared, finds jobs that arrived in between.
    Job *take() noexcept {
        if (Job *jobs = finished_.take()) return jobs;
        told_.store(false);
        if (finished_.empty() || told_.exchange(true)) return nullptr;
        return finished_.take();
    }

    // Close the descriptor and return the jobs not taken yet; later ones become orphans.
    Job *close() noexcept {
        Job *left = finished_.close();
        while (!from_before_fork() && completing_.load() != 0)
            sched_yield();  // a forked child has no workers to wait for
        close_descriptors();
        return left;
    }

  private:
    void wake() noexcept {
        const std::uint64_t one = 1;
        const std::size_t size = read_end_ == write_end_ ? sizeof one : 1;  // a full pipe is readable as well
        while (::write(write_end_, &one, size) < 0 && errno == EINTR) {
        }
    }
    void close_descriptors() noexcept {
        if (write_end_ >= 0 && write_end_ != read_end_) ::close(write_end_);
        if (read_end_ >= 0) ::close(read_end_);
        read_end_ = write_end_ = -1;
    }

    JobStack finished_;
    std::atomic<bool> told_{false};
    std::atomic<int> completing_{0};
    unsigned generation_ = fork_generation();
    int read_end_ = -1, write_end_ = -1;
};

}  // namespace dpmodule
