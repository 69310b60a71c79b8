// Worker threads that train from files: each takes parts, parses them, and updates shared parameters without locks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "gate.hpp"
#include "reader.hpp"
#include "net.hpp"

namespace dpmodule::hogwild {

struct RunOptions {
    int workers = 1;
    bool train = true, skip_bad_lines = false;
    std::uint64_t seed = 0, updates = 0;  // updates: made before this run
    double rate = 0;
    std::function<double(std::uint64_t)> schedule;  // learning rate by update number, from 1; empty: `rate`
    std::int64_t *marks = nullptr;                  // lines trained on, by part number; -1: all
    std::int64_t allowed = -1;                      // batches before the workers pause; -1: no limit
};

// Values of each batch that are recorded for others, such as metrics in Python, until they are taken.
class Recorder {
  public:
    // Number of lines of each batch, and all rows of each watched value.
    struct Record {
        std::vector<int> lines;
        std::vector<std::vector<float>> values;
    };

    explicit Recorder(const std::vector<int> &watched) : watched_(watched) { record_.values.resize(watched.size()); }

    // Add a batch. Waits while the record is full, until it is taken or `stopped`.
    void add(const Net &net, const Batch &batch, const std::atomic<bool> &stopped);

    // Return everything added since the last call.
    Record take();

  private:
    static constexpr std::size_t max_numbers = std::size_t{1} << 22;

    const std::vector<int> &watched_;
    std::mutex mutex_;
    std::condition_variable taken_;
    Record record_;
    std::size_t numbers_ = 0;  // of the record
};

// Progress of a worker, which other threads may read.
struct WorkerProgress {
    explicit WorkerProgress(const Plan &plan) : sums(plan.fetches.size()), recorder(plan.watched) {}

    std::atomic<std::uint64_t> examples{0}, batches{0};
    ReaderProgress reader;
    SharedSum forward, backward, update;  // in seconds
    std::vector<SharedSum> sums;          // sums of the means of each batch
    Recorder recorder;
};

// NaN or infinity in a batch, which has changed no parameters.
struct NonFinite : std::runtime_error {
    NonFinite(const std::string &text, std::string in, std::uint64_t number)
        : std::runtime_error(text), file(std::move(in)), batch(number) {}

    const std::string file;
    const std::uint64_t batch;
};

class Run {
  public:
    Run(Plan plan, std::vector<Part> parts, RunOptions options);
    ~Run();  // stops and joins
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    // Ask the workers to end after their current batch.
    void stop() noexcept {
        stopped_.store(true, std::memory_order_relaxed);
        gate_.allow_all();
    }

    // Wait until all workers or all allowed batches have ended, up to a time limit; return true if the workers have
    // ended.
    bool wait(double seconds);
    bool is_spent() noexcept { return gate_.is_spent(); }
    void allow(std::int64_t batches) noexcept { gate_.allow(batches); }

    // Between pause() and resume() no worker processes a batch.
    void pause() { gate_.close(); }
    void resume() noexcept { gate_.open(); }

    std::exception_ptr failure() const { return failure_; }  // the first one, after the end
    std::uint64_t updates() const { return updates_.load(); }
    WorkerProgress &worker(int i) const { return *progress_[static_cast<std::size_t>(i)]; }
    const std::vector<Part> &parts() const { return queue_.parts; }
    const Plan &plan() const { return plan_; }
    const RunOptions &options() const { return options_; }

  private:
    void work(int worker) noexcept;
    void train(int worker);
    void prepare_tables(int worker) const noexcept;
    void fail(std::exception_ptr failure) noexcept;

    const Plan plan_;
    const RunOptions options_;
    PartQueue queue_;
    Gate gate_;
    std::atomic<bool> stopped_{false};
    std::atomic<std::uint64_t> updates_;
    std::vector<std::unique_ptr<WorkerProgress>> progress_;
    std::mutex mutex_;
    std::condition_variable ended_;
    int alive_ = 0;
    std::exception_ptr failure_;
    std::vector<std::thread> threads_;
};

}  // namespace dpmodule::hogwild
