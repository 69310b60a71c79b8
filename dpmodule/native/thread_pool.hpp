// Named threads that run functors. They never touch Python: no GIL, no reference counts.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "job.hpp"

namespace dpmodule {

class ThreadPool {
  public:
    using Seconds = std::chrono::duration<double>;

    // Start `size` threads called "<name>-<index>". Throws std::system_error when the system refuses one.
    ThreadPool(int size, const std::string &name);

    // Closes without waiting: queued jobs are still done, then the threads end.
    ~ThreadPool();
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    // Queue a job; false, and the job stays the caller's, once the pool is closed.
    bool push(Job *job);

    // Take no more jobs. Those not begun are done if `finish`, else handed back as refused.
    void close(bool finish);

    // Wait until all threads have ended; false if they have not after that time. Only after close().
    bool wait(Seconds timeout);

    int size() const noexcept { return size_; }
    // Threads that have not ended, and jobs that have not begun.
    int alive() const;
    int queued() const noexcept;

  private:
    struct State;

    int size_;
    std::shared_ptr<State> state_;  // also held by every thread, so that threads may outlive the pool
    std::mutex joining_;            // two callers of wait()
    std::vector<std::thread> threads_;
};

}  // namespace dpmodule
