// Synchronization of workers between batches: for pauses, and for a limited number of batches.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace dpmodule::hogwild {

class Gate {
  public:
    explicit Gate(std::int64_t allowed) : allowed_(allowed) {}

    // Called by a worker, by std::lock_guard: wait until the gate is open, then enter; leave.
    void lock() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return closed_ == 0 && allowed_ != 0; });
        if (allowed_ > 0) --allowed_;
        ++inside_;
    }
    void unlock() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        --inside_;
        changed_.notify_all();
    }

    // Close the gate, and wait until all workers have left; needs as many calls of open().
    void close() {
        std::unique_lock<std::mutex> lock(mutex_);
        ++closed_;
        changed_.wait(lock, [&] { return inside_ == 0; });
    }
    void open() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        --closed_;
        changed_.notify_all();
    }

    // Allow a number of further batches; no limit if negative.
    void allow(std::int64_t batches) noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!over_) allowed_ = batches;
        changed_.notify_all();
    }
    // Remove the limit permanently.
    void allow_all() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        over_ = true;
        allowed_ = -1;
        changed_.notify_all();
    }
    // Return true if all allowed batches have ended.
    bool is_spent() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        return allowed_ == 0 && inside_ == 0;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int closed_ = 0, inside_ = 0;
    std::int64_t allowed_;
    bool over_ = false;
};

// A sum that one thread updates and others may read.
class SharedSum {
  public:
    double value() const noexcept { return value_.load(std::memory_order_relaxed); }

    void add(double more) noexcept { value_.store(value() + more, std::memory_order_relaxed); }

  private:
    std::atomic<double> value_{0};
};

// Adds the seconds of its lifetime to a sum.
class ScopedTimer {
  public:
    explicit ScopedTimer(SharedSum &seconds) : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
    ~ScopedTimer() { seconds_.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count()); }

  private:
    SharedSum &seconds_;
    const std::chrono::steady_clock::time_point begin_;
};

}  // namespace dpmodule::hogwild
