// Named threads that run functors. They never touch Python: no GIL, no reference counts.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cxxabi.h>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "job.hpp"
#include "kernels/parallel.hpp"
#include "signal_bus.hpp"

namespace dpmodule {

using Clock = std::chrono::steady_clock;

// Time that an idle worker spins for new jobs before it sleeps: waking a thread costs the caller and the job several
// microseconds, more than many jobs take. One worker spins at a time, and none on a single core.
constexpr auto spin_time = std::chrono::microseconds(50);

inline void name_thread(const std::string &name) noexcept {
#ifdef __linux__
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());  // longer names are refused
#elif defined(__APPLE__)
    pthread_setname_np(name.c_str());
#else
    (void)name;
#endif
}

// Threads inherit the signal mask of their creator. Workers take no signals: Ctrl-C is for Python's main thread.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

inline void run_job(Job *job) {
    try {
        (*job->flight.functor)();
#ifdef __GLIBCXX__
    } catch (abi::__forced_unwind &) {  // a functor asked for the GIL while Python ends, which ends its thread
        throw;
#endif
    } catch (...) {
        job->end = Job::End::failed;
        job->kind = describe_current_exception(job->text);
    }
}

inline void complete_job(Job *job) noexcept {
    std::shared_ptr<SignalBus> bus = std::move(job->bus);  // the job may be deleted before complete() returns
    bus->complete(job);
}

class ThreadPool {
  public:
    using Seconds = std::chrono::duration<double>;

    // Start `size` threads called "<name>-<index>". Throws std::system_error when the system refuses one.
    ThreadPool(int size, const std::string &name) : state_(std::make_shared<State>()) {
        threads_.reserve(static_cast<std::size_t>(size));
        SignalsBlocked blocked;
        try {
            for (int i = 0; i < size; ++i) {
                {
                    std::lock_guard<std::mutex> lock(state_->mutex);
                    ++state_->alive;
                }
                threads_.emplace_back([state = state_, title = name + "-" + std::to_string(i)] {
                    name_thread(title);
                    state->work_until_closed();
                });
            }
        } catch (...) {
            {
                std::lock_guard<std::mutex> lock(state_->mutex);
                --state_->alive;  // the thread that did not start
            }
            close(false);
            for (std::thread &thread : threads_) thread.join();
            throw;
        }
    }

    // Close without waiting: the threads finish the queued jobs and end.
    ~ThreadPool() {
        close(true);
        for (std::thread &thread : threads_) {
            if (thread.joinable()) thread.detach();
        }
    }
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    // Queue a job. Returns false if the pool is closed; the caller then keeps the job.
    bool push(Job *job) {
        bool wake;
        {
            std::lock_guard<std::mutex> lock(state_->mutex);
            if (state_->closed) return false;
            state_->append(job);
            wake = state_->needs_sleeper();
        }
        if (wake) state_->work.notify_one();
        return true;
    }

    // Refuse new jobs. Queued ones run if `finish`, else they end as refused.
    void close(bool finish) {
        Job *left = nullptr;
        {
            std::lock_guard<std::mutex> lock(state_->mutex);
            state_->closed = true;
            if (!finish) {
                left = std::exchange(state_->first, nullptr);
                state_->queued = 0;
            }
        }
        state_->work.notify_all();
        while (left) {
            Job *job = std::exchange(left, left->next);
            job->end = Job::End::refused;
            complete_job(job);
        }
    }

    // Wait until all threads have ended; false on a timeout. Call close() first.
    bool wait(Seconds timeout) {
        {
            std::unique_lock<std::mutex> lock(state_->mutex);
            if (!state_->ended.wait_for(lock, timeout, [this] { return state_->alive == 0; })) return false;
        }
        std::lock_guard<std::mutex> lock(joining_);
        for (std::thread &thread : threads_) {
            if (thread.joinable()) thread.join();  // about to return
        }
        return true;
    }

    // Number of threads that have not ended, and of queued jobs.
    int alive() const {
        std::lock_guard<std::mutex> lock(state_->mutex);
        return state_->alive;
    }
    int queued() const noexcept { return state_->queued.load(std::memory_order_relaxed); }

  private:
    // Job queue and worker states. Sleepers are woken one at a time, and only if no worker is spinning.
    struct State {
        std::mutex mutex;
        std::condition_variable work, ended;
        Job *first = nullptr, *last = nullptr;
        std::atomic<int> queued{0};  // written under the mutex; read without it by the worker that spins
        int sleeping = 0, spinning = 0, alive = 0;
        std::atomic<bool> closed{false};
        const bool may_spin = std::thread::hardware_concurrency() > 1;

        void append(Job *job) noexcept {
            job->next = nullptr;
            (first ? last->next : first) = job;
            last = job;
            queued.store(queued.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        }

        Job *pop() noexcept {
            Job *job = first;
            if (!job) return nullptr;
            first = job->next;
            queued.store(queued.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
            return job;
        }

        // Return true if a sleeper must be woken for a queued job, and count it as awake.
        bool needs_sleeper() noexcept {
            if (!first || spinning > 0 || sleeping == 0) return false;
            --sleeping;
            return true;
        }

        // Poll for a job for a while, without the mutex.
        void spin() const noexcept {
            const auto end = Clock::now() + spin_time;
            do {
                for (int i = 0; i < 32; ++i) {
                    if (queued.load(std::memory_order_relaxed) > 0 || closed.load(std::memory_order_relaxed)) return;
                    relax();
                }
                sched_yield();  // threads with work come first on a shared core
            } while (Clock::now() < end);
        }

        // Wait for a job; nullptr if the pool is closed and the queue is empty.
        Job *next() {
            std::unique_lock<std::mutex> lock(mutex);
            bool has_spun = false;
            while (!first && !closed) {
                if (may_spin && !has_spun && spinning == 0) {
                    spinning = 1;
                    lock.unlock();
                    spin();
                    lock.lock();
                    spinning = 0;
                    has_spun = true;
                } else {
                    ++sleeping;  // the waking thread counts us as awake; a spurious wake-up leaves the count too high, which
                    work.wait(lock);  // costs one needless wake-up
                    has_spun = false;
                }
            }
            Job *job = pop();
            const bool wake = needs_sleeper();
            lock.unlock();
            if (wake) work.notify_one();
            return job;
        }

        void work_until_closed() {
            while (Job *job = next()) {
                run_job(job);
                complete_job(job);
            }
            std::lock_guard<std::mutex> lock(mutex);
            --alive;
            ended.notify_all();
        }
    };

    std::shared_ptr<State> state_;  // also held by every thread, so that threads may outlive the pool
    std::mutex joining_;            // held while wait() joins
    std::vector<std::thread> threads_;
};

}  // namespace dpmodule
