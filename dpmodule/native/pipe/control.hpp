// Control block shared by both ends of a pipe (streams/pipe/control.py describes its layout). Each side wakes the other
// through a descriptor, but only if the other has marked itself as sleeping.
#pragma once

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "kernels/parallel.hpp"

#ifdef __linux__
#include <sched.h>
#endif

namespace dpmodule::pipe {

enum Side { writer = 0, reader = 1 };
enum Kind : uint64_t { data = 1 };
enum WaitEvent { ready = 1, news = 2, ended = 4 };

constexpr int ring_size = 256, most_slots = 64;

constexpr size_t control_size = 8 * (64 + ring_size + 8 * most_slots);

inline void *map(int fd, size_t size) {
    void *found = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found == MAP_FAILED)
        throw std::system_error(errno, std::generic_category(), "cannot map the shared memory of a pipe");
    return found;
}

// Return true if a wait may spin for a few microseconds first: there are several cores.
inline bool may_spin() {
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed) > 1;
#endif
    return std::thread::hardware_concurrency() > 1;
}

// Wait for descriptors, ignoring those of -1, for at most `seconds` (below 0: forever).
// Returns a sum of `WaitEvent`, or -1 if a signal came first. Empties the first descriptor if it is readable.
inline int poll_all(int wake, int socket, int process, double seconds) {
    pollfd watched[3];
    int marks[3], count = 0;
    const int fds[3] = {wake, socket, process};
    for (int i = 0; i < 3; i++) {
        if (fds[i] < 0) continue;
        watched[count] = {fds[i], POLLIN, 0};
        marks[count++] = 1 << i;
    }
    int limit_ms = seconds < 0 ? -1 : static_cast<int>(std::ceil(std::fmin(seconds, 1e6) * 1e3));
    int answer = ::poll(watched, static_cast<nfds_t>(count), limit_ms);
    if (answer < 0) return errno == EINTR ? -1 : 0;
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (watched[i].revents) found |= marks[i];
    }
    if (found & ready) {
        char drained[4096];
        ssize_t got = ::read(wake, drained, sizeof drained);
        (void)got;  // an empty descriptor is fine
    }
    return found;
}

class Control {
  public:
    // Map the block and duplicate the descriptor that wakes the other side. Throws std::system_error.
    Control(int fd, int wake_fd, Side side) : wake_fd_(fcntl(wake_fd, F_DUPFD_CLOEXEC, 0)), side_(side) {
        if (wake_fd_ < 0)
            throw std::system_error(errno, std::generic_category(), "cannot duplicate a descriptor of a pipe");
        try {
            words_ = static_cast<Word *>(map(fd, control_size));
        } catch (...) {
            ::close(wake_fd_);
            throw;
        }
    }
    ~Control() {
        munmap(static_cast<void *>(words_), control_size);
        ::close(wake_fd_);
    }
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
    void wake_other() {
        // the other side sets its flag and then checks for work; this side wrote the work and now checks the flag
        std::atomic_thread_fence(std::memory_order_seq_cst);
        Word &flag = sleeps(1 - side_);
        if (!flag.load(std::memory_order_relaxed) || !flag.exchange(0)) return;
        const uint64_t one = 1;
        ssize_t written = ::write(wake_fd_, &one, sizeof one);
        (void)written;  // fails only if the descriptor is readable already
    }
    // Mark this side as sleeping; the caller must check for work again afterwards.
    void mark_sleeping() {
        sleeps(side_).store(1, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    void mark_awake() { sleeps(side_).store(0, std::memory_order_relaxed); }

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
    Memory(int fd, size_t size) : base_(static_cast<char *>(map(fd, size))), size_(size) {}
    ~Memory() { munmap(base_, size_); }
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

}  // namespace dpmodule::pipe
