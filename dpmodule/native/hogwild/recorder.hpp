// Numbers of each batch that somebody else looks at, as metrics in Python do: kept until they are taken.
#pragma once

#include <chrono>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "net.hpp"

namespace dpmodule::hogwild {

class Recorder {
  public:
    // Lines of the batches, one after the other, and for each watched value all its rows.
    struct Record {
        std::vector<int> lines;
        std::vector<std::vector<float>> values;
    };

    explicit Recorder(const std::vector<int> &watched) : watched_(watched) { record_.values.resize(watched.size()); }

    // Add a batch. Waits while there is too much, until it is taken or `stopped`.
    void add(const Net &net, const Batch &batch, const std::atomic<bool> &stopped);

    // What was added since the last call.
    Record take();

  private:
    static constexpr std::size_t most_numbers = std::size_t{1} << 22;

    const std::vector<int> &watched_;
    std::mutex mutex_;
    std::condition_variable taken_;
    Record record_;
    std::size_t numbers_ = 0;  // in the record
};

inline void Recorder::add(const Net &net, const Batch &batch, const std::atomic<bool> &stopped) {
    if (watched_.empty()) return;
    std::unique_lock<std::mutex> lock(mutex_);
    while (numbers_ >= most_numbers && !stopped.load(std::memory_order_relaxed)) {
        taken_.wait_for(lock, std::chrono::milliseconds(50));  // stop() wakes nobody
    }
    record_.lines.push_back(batch.lines);
    for (std::size_t i = 0; i < watched_.size(); ++i) {
        const Value &value = net.value(watched_[i]);
        numbers_ += value.count(batch);
        record_.values[i].insert(record_.values[i].end(), value.data, value.data + value.count(batch));
    }
}

inline Recorder::Record Recorder::take() {
    Record found;
    found.values.resize(watched_.size());
    std::lock_guard<std::mutex> lock(mutex_);
    std::swap(found, record_);
    numbers_ = 0;
    taken_.notify_one();
    return found;
}

}  // namespace dpmodule::hogwild
