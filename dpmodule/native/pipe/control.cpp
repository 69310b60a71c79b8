#include "pipe/control.hpp"

#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#ifdef __linux__
#include <sched.h>
#endif

namespace dpmodule::pipe {
namespace {

constexpr size_t control_size = 8 * (64 + ring_size + 8 * most_slots);

void *map(int fd, size_t size) {
    void *found = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found == MAP_FAILED)
        throw std::system_error(errno, std::generic_category(), "cannot map the shared memory of a pipe");
    return found;
}

}  // namespace

Control::Control(int fd, int wake_fd, Side side) : wake_fd_(fcntl(wake_fd, F_DUPFD_CLOEXEC, 0)), side_(side) {
    if (wake_fd_ < 0)
        throw std::system_error(errno, std::generic_category(), "cannot duplicate a descriptor of a pipe");
    try {
        words_ = static_cast<Word *>(map(fd, control_size));
    } catch (...) {
        ::close(wake_fd_);
        throw;
    }
}

Control::~Control() {
    munmap(static_cast<void *>(words_), control_size);
    ::close(wake_fd_);
}

void Control::wake_other() {
    // the other side sets its flag and then checks for work; this side wrote the work and now checks the flag
    std::atomic_thread_fence(std::memory_order_seq_cst);
    Word &flag = sleeps(1 - side_);
    if (!flag.load(std::memory_order_relaxed) || !flag.exchange(0)) return;
    const uint64_t one = 1;
    ssize_t written = ::write(wake_fd_, &one, sizeof one);
    (void)written;  // fails only if the descriptor is readable already
}

void Control::mark_sleeping() {
    sleeps(side_).store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Control::mark_awake() { sleeps(side_).store(0, std::memory_order_relaxed); }

Memory::Memory(int fd, size_t size) : base_(static_cast<char *>(map(fd, size))), size_(size) {}

Memory::~Memory() { munmap(base_, size_); }

bool may_spin() {
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed) > 1;
#endif
    return std::thread::hardware_concurrency() > 1;
}

int poll_all(int wake, int socket, int process, double seconds) {
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

}  // namespace dpmodule::pipe
