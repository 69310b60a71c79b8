#include "recorder.hpp"

#include <chrono>

namespace dpmodule::hogwild {

void Recorder::add(const Net &net, const Batch &batch, const std::atomic<bool> &stopped) {
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

Recorder::Record Recorder::take() {
    Record found;
    found.values.resize(watched_.size());
    std::lock_guard<std::mutex> lock(mutex_);
    std::swap(found, record_);
    numbers_ = 0;
    taken_.notify_one();
    return found;
}

}  // namespace dpmodule::hogwild
