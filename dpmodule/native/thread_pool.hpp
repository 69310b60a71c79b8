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

    // Close without waiting: the threads finish the queued jobs and end.
    ~ThreadPool();
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    // Queue a job. Returns false if the pool is closed; the caller then keeps the job.
    bool push(Job *job);

    // Refuse new jobs. Queued ones run if `finish`, else they end as refused.
    void close(bool finish);

    // Wait until all threads have ended; false on a timeout. Call close() first.
    bool wait(Seconds timeout);

    int size() const noexcept { return size_; }
    // Number of threads that have not ended, and of queued jobs.
    int alive() const;
    int queued() const noexcept;

  private:
    struct State;

    int size_;
    std::shared_ptr<State> state_;  // also held by every thread, so that threads may outlive the pool
    std::mutex joining_;            // held while wait() joins
    std::vector<std::thread> threads_;
};

}  // namespace dpmodule
