// Worker threads that train from files: each takes parts, parses them, and updates shared parameters without locks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "gate.hpp"
#include "net.hpp"
#include "reader.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace dpmodule::hogwild {

struct RunOptions {
    int workers = 1;
    bool train = true, skip_bad_lines = false;
    std::uint64_t seed = 0, updates = 0;  // updates: made before this run
    double rate = 0;
    std::function<double(std::uint64_t)> schedule;  // learning rate by update number, from 1; empty: `rate`
    std::int64_t *marks = nullptr;                  // lines trained on, by part number; -1: all
    std::int64_t allowed = -1;                      // batches before the workers pause; -1: no limit
    bool is_fed = false;                            // batches come from give(), not from the parts
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
    void add(const Net &net, const Batch &batch, const std::atomic<bool> &stopped) {
        if (watched_.empty()) return;
        std::unique_lock<std::mutex> lock(mutex_);
        while (numbers_ >= max_numbers && !stopped.load(std::memory_order_relaxed)) {
            taken_.wait_for(lock, std::chrono::milliseconds(50));  // stop() does not notify
        }
        record_.lines.push_back(batch.lines);
        for (std::size_t i = 0; i < watched_.size(); ++i) {
            const Value &value = net.value(watched_[i]);
            numbers_ += value.count(batch);
            record_.values[i].insert(record_.values[i].end(), value.data, value.data + value.count(batch));
        }
    }

    // Return everything added since the last call.
    Record take() {
        Record found;
        found.values.resize(watched_.size());
        std::lock_guard<std::mutex> lock(mutex_);
        std::swap(found, record_);
        numbers_ = 0;
        taken_.notify_one();
        return found;
    }

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

// Trains on consecutive batches.
class Trainer {
  public:
    Trainer(const Plan &plan, const RunOptions &options, int worker, std::atomic<std::uint64_t> &updates,
            WorkerProgress &progress)
        : plan_(plan), options_(options), updates_(updates), progress_(progress), worker_(worker), net_(plan),
          random_(options.seed, static_cast<std::uint64_t>(worker)) {}

    void step(const Batch &batch) {
        BatchContext context{batch, options_.train, random_};
        {
            ScopedTimer watch(progress_.forward);
            net_.forward(context);
        }
        if (!net_.outputs_are_finite(batch)) fail(batch, "an output");
        if (options_.train) learn(context);
        count(batch);
    }

    void record(const Batch &batch, const std::atomic<bool> &stopped) { progress_.recorder.add(net_, batch, stopped); }

  private:
    void learn(BatchContext &context) {
        {
            ScopedTimer watch(progress_.backward);
            net_.backward(context);
        }
        if (!net_.gradients_are_finite(context.batch)) fail(context.batch, "a gradient");
        ScopedTimer watch(progress_.update);
        const std::uint64_t count = updates_.fetch_add(1, std::memory_order_relaxed) + 1;
        net_.update(context.batch, options_.schedule ? options_.schedule(count) : options_.rate, count);
    }

    void count(const Batch &batch) {
        for (std::size_t i = 0; i < plan_.fetches.size(); ++i) progress_.sums[i].add(mean(plan_.fetches[i], batch));
        progress_.examples.fetch_add(static_cast<std::uint64_t>(batch.lines), std::memory_order_relaxed);
        progress_.batches.fetch_add(1, std::memory_order_relaxed);
    }

    double mean(const Fetch &fetch, const Batch &batch) const {
        if (fetch.value >= 0) {
            const Value &value = net_.value(fetch.value);
            return mean_of(value.data, value.count(batch));
        }
        const SlotBatch &slot = batch.slots[static_cast<std::size_t>(fetch.slot)];
        return slot.numbers.empty() ? mean_of(slot.ids.data(), slot.ids.size())
                                    : mean_of(slot.numbers.data(), slot.numbers.size());
    }

    template <class Number>
    static double mean_of(const Number *at, std::size_t count) {
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(at[i]);
        return count ? sum / static_cast<double>(count) : 0.0;
    }

    [[noreturn]] void fail(const Batch &batch, const char *what) const {
        const std::uint64_t number = progress_.batches.load();
        const std::string &file = batch.part->path, line = std::to_string(line_number(*batch.part, batch.first_line));
        throw NonFinite(
            std::string(what) + " is not finite in batch " + std::to_string(number) + " of worker " +
                std::to_string(worker_) + ", which begins in line " + line + " of " + file +
                "; this batch has changed no parameters. Try a smaller learning rate or clip_gradient, or check the "
                "data",
            file, number);
    }

    const Plan &plan_;
    const RunOptions &options_;
    std::atomic<std::uint64_t> &updates_;
    WorkerProgress &progress_;
    const int worker_;
    Net net_;
    Random random_;
};

// Records the progress of one worker between its batches.
class Marker {
  public:
    explicit Marker(std::int64_t *marks) : marks_(marks) {}

    void note(const Batch &batch) noexcept {
        for (const PartProgress &place : batch.ends) {
            if (part_ && part_ != place.part) end();
            part_ = place.part;
            marks_[part_->number] = static_cast<std::int64_t>(place.lines);
        }
    }
    // The whole part in which the last batch ended.
    void end() noexcept {
        if (part_) marks_[part_->number] = -1;
    }

  private:
    std::int64_t *const marks_;
    const Part *part_ = nullptr;
};

// Request huge pages for existing memory. Rows of large tables are read in random order, and with 4 KiB pages most
// reads need a page table walk, a fifth of the total time. Systems without support ignore the request.
inline void use_huge_pages(void *memory, std::size_t size) noexcept {
#if defined(__linux__)
    constexpr int collapse = 25;  // MADV_COLLAPSE of Linux 6.1: synchronous, and keeps the contents
    constexpr std::uintptr_t page = std::uintptr_t{1} << 21;
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t begin = (at + page - 1) & ~(page - 1), end = (at + size) & ~(page - 1);
    if (begin < end) (void)madvise(reinterpret_cast<void *>(begin), end - begin, collapse);
#else
    (void)memory, (void)size;
#endif
}

class Run {
  public:
    Run(Plan plan, std::vector<Part> parts, RunOptions options)
        : plan_(std::move(plan)), options_(std::move(options)), gate_(options_.allowed), updates_(options_.updates) {
        queue_.parts = std::move(parts);
        for (int i = 0; i < options_.workers; ++i) progress_.push_back(std::make_unique<WorkerProgress>(plan_));
        try {
            for (int i = 0; i < options_.workers; ++i) {
                std::lock_guard<std::mutex> lock(mutex_);
                threads_.emplace_back([this, i] { work(i); });
                ++alive_;
            }
        } catch (...) {
            stop();
            for (std::thread &thread : threads_) thread.join();
            throw;
        }
    }
    ~Run() {
        stop();
        for (std::thread &thread : threads_) thread.join();
    }
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    // Ask the workers to end after their current batch.
    void stop() noexcept {
        stopped_.store(true, std::memory_order_relaxed);
        gate_.allow_all();
        fed_.end(true);
    }

    // Wait until all workers or all allowed batches have ended, up to a time limit; return true if the workers have
    // ended.
    bool wait(double seconds) {
        std::unique_lock<std::mutex> lock(mutex_);
        ended_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return alive_ == 0 || is_spent(); });
        return alive_ == 0;
    }
    bool is_spent() noexcept { return options_.is_fed ? fed_.is_spent() : gate_.is_spent(); }
    void allow(std::int64_t batches) noexcept { gate_.allow(batches); }

    // Train on batches; none if they were the last ones. Each names its part by its number in the queue.
    void give(std::vector<std::pair<std::size_t, Batch>> batches) {
        if (batches.empty()) return fed_.end(false);
        std::vector<Batch> ready;
        for (auto &[part, batch] : batches) {
            batch.part = &queue_.parts.at(part);
            ready.push_back(std::move(batch));
        }
        fed_.give(std::move(ready));
    }

    // Between pause() and resume() no worker processes a batch.
    void pause() { gate_.close(); }
    void resume() noexcept { gate_.open(); }

    std::exception_ptr failure() const { return failure_; }  // the first one, after the end
    std::uint64_t updates() const { return updates_.load(); }
    WorkerProgress &worker(int i) const { return *progress_[static_cast<std::size_t>(i)]; }
    const RunOptions &options() const { return options_; }

  private:
    void work(int worker) noexcept {
        try {
            train(worker);
        } catch (...) {
            fail(std::current_exception());
        }
        std::lock_guard<std::mutex> lock(mutex_);
        --alive_;
        ended_.notify_all();
    }
    void train(int worker) {
        WorkerProgress &progress = *progress_[static_cast<std::size_t>(worker)];
        prepare_tables(worker);
        Trainer trainer(plan_, options_, worker, updates_, progress);
        BatchReader reader(plan_, queue_, options_.skip_bad_lines, progress.reader);
        Marker marker(options_.marks);
        Batch batch;
        while (!stopped_.load(std::memory_order_relaxed)) {
            if (!(options_.is_fed ? fed_.next(batch) : reader.next(batch))) {
                marker.end();
                break;
            }
            {
                std::lock_guard<Gate> inside(gate_);
                trainer.step(batch);
                marker.note(batch);
            }
            if (options_.is_fed ? fed_.done() : options_.allowed >= 0 && gate_.is_spent()) {
                std::lock_guard<std::mutex> lock(mutex_);
                ended_.notify_all();
            }
            trainer.record(batch, stopped_);
        }
    }
    // Each worker prepares some of them; other workers may already train.
    void prepare_tables(int worker) const noexcept {
        if (options_.is_fed) return;  // most of the memory of tables is not used
        constexpr std::size_t least = std::size_t{4} << 20;
        for (std::size_t i = static_cast<std::size_t>(worker); i < plan_.parameters.size();
             i += static_cast<std::size_t>(options_.workers)) {
            const Parameter &parameter = plan_.parameters[i];
            const std::size_t size = static_cast<std::size_t>(parameter.rows * parameter.width) * sizeof(float);
            if (size < least) continue;
            use_huge_pages(parameter.weight, size);
            for (float *state : parameter.states) {
                if (state) use_huge_pages(state, size);
            }
        }
    }
    void fail(std::exception_ptr failure) noexcept {
        stop();
        std::lock_guard<std::mutex> lock(mutex_);
        if (!failure_) failure_ = std::move(failure);
    }

    const Plan plan_;
    const RunOptions options_;
    PartQueue queue_;
    BatchQueue fed_;
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
