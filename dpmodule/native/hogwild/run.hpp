// Threads that train from files: each takes parts, parses, and moves the shared parameters without locks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "gate.hpp"
#include "reader.hpp"
#include "net.hpp"

namespace dpmodule::hogwild {

struct RunOptions {
    int workers = 1;
    bool train = true, skip_bad_lines = false;
    std::uint64_t seed = 0, updates = 0;  // that the parameters have had before
    double rate = 0;
    std::function<double(std::uint64_t)> schedule;  // the rate of an update by its number, from 1; empty: `rate`
    std::int64_t *marks = nullptr;  // by the numbers of parts: how many lines have been trained on, -1: all
    std::int64_t allowed = -1;      // batches until the workers wait for more to be allowed; -1: any number
};

// Numbers of each batch that somebody else looks at, as metrics in Python do: kept until they are taken.
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

// What others may look at while a worker works.
struct WorkerProgress {
    explicit WorkerProgress(const Plan &plan) : sums(plan.fetches.size()), recorder(plan.watched) {}

    std::atomic<std::uint64_t> examples{0}, batches{0};
    ReaderProgress reader;
    Tally forward, backward, update;  // seconds
    std::vector<Tally> sums;          // of the means of each batch
    Recorder recorder;
};

// The first thing that went wrong.
struct Failure {
    bool is_set = false, is_system = false, is_non_finite = false;
    Kind kind = Kind::functor;
    int code = 0;
    std::string text, file;  // file and batch: of what is not finite
    std::uint64_t batch = 0;
};

class Run {
  public:
    Run(Plan plan, std::vector<Part> parts, RunOptions options);
    ~Run();  // stops and joins
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    // Ask the workers to end after their batch.
    void stop() noexcept {
        stopped_.store(true, std::memory_order_relaxed);
        gate_.allow_all();
    }

    // Wait for the end of all workers, or of all batches that are allowed, at most some seconds; whether they have ended.
    bool wait(double seconds);
    bool is_spent() noexcept { return gate_.is_spent(); }
    void allow(std::int64_t batches) noexcept { gate_.allow(batches); }

    // Between them no worker is within a batch.
    void pause() { gate_.close(); }
    void resume() noexcept { gate_.open(); }

    const Failure &failure() const { return failure_; }  // after the end
    std::uint64_t updates() const { return updates_.load(); }
    WorkerProgress &worker(int i) const { return *progress_[static_cast<std::size_t>(i)]; }
    const std::vector<Part> &parts() const { return queue_.parts; }
    const Plan &plan() const { return plan_; }
    const RunOptions &options() const { return options_; }

  private:
    void work(int worker) noexcept;
    void train(int worker);
    void prepare_tables(int worker) const noexcept;
    void fail(Failure failure) noexcept;

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
    Failure failure_;
    std::vector<std::thread> threads_;
};

}  // namespace dpmodule::hogwild
