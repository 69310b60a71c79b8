// A sum that one thread counts and others may read meanwhile, and a watch that adds seconds to it.
#pragma once

#include <atomic>
#include <chrono>

namespace dpmodule::hogwild {

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
