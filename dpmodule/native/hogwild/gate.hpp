// Where workers wait between two batches: while somebody looks at the parameters, and when they have done what they may.
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

    // A worker's: wait until the gate is open, then work.
    void enter() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return closed_ == 0 && allowed_ != 0; });
        if (allowed_ > 0) --allowed_;
        ++inside_;
    }
    void leave() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        --inside_;
        changed_.notify_all();
    }

    // Close it, and wait until nobody works; it opens when open() was called as often.
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

    // Let so many batches through from now on; any number if it is negative.
    void allow(std::int64_t batches) noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!over_) allowed_ = batches;
        changed_.notify_all();
    }
    // Let any number through from now on, whatever is allowed later.
    void allow_all() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        over_ = true;
        allowed_ = -1;
        changed_.notify_all();
    }
    // Whether all batches that were allowed have ended.
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

// A batch's time inside.
class Pass {
  public:
    explicit Pass(Gate &gate) : gate_(gate) { gate_.enter(); }
    ~Pass() { gate_.leave(); }
    Pass(const Pass &) = delete;
    Pass &operator=(const Pass &) = delete;

  private:
    Gate &gate_;
};

// A sum that one thread counts and others may read meanwhile, and a watch that adds seconds to it.
class Tally {
  public:
    double value() const noexcept { return value_.load(std::memory_order_relaxed); }

    void add(double more) noexcept { value_.store(value() + more, std::memory_order_relaxed); }

  private:
    std::atomic<double> value_{0};
};

// Adds the time from its construction on.
class Watch {
  public:
    explicit Watch(Tally &seconds) : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
    ~Watch() { seconds_.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count()); }

  private:
    Tally &seconds_;
    const std::chrono::steady_clock::time_point begin_;
};

}  // namespace dpmodule::hogwild
