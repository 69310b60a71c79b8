// How long a worker has been at something, readable while it works.
#pragma once

#include <atomic>
#include <chrono>

namespace dpmodule::hogwild {

class Seconds {
public:
    double value() const noexcept { return value_.load(std::memory_order_relaxed); }

    // For the one thread that counts.
    void add(double more) noexcept { value_.store(value() + more, std::memory_order_relaxed); }

private:
    std::atomic<double> value_{0};
};

// Adds the time from its construction on.
class Watch {
public:
    explicit Watch(Seconds &seconds) : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
    ~Watch() { seconds_.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count()); }

private:
    Seconds &seconds_;
    const std::chrono::steady_clock::time_point begin_;
};

}  // namespace dpmodule::hogwild
