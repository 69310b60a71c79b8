// One call of a functor on its way from the loop's thread to a worker and back.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <dpmodule/functor.h>

namespace dpmodule {

class SignalBus;

inline std::atomic<unsigned> forks{0};

// How often this process has been forked off since the first of its ancestors loaded the extension.
inline unsigned fork_generation() noexcept { return forks.load(std::memory_order_relaxed); }

// One functor's way through a pool, from the call of a worker until its result has been asked for or dropped: there is
// one at a time, unless the functor is reentrant. What was on its way when the process forked is on its way in the parent
// only. Needs the GIL.
class Flight {
  public:
    // Throws Error, a StateError, if the functor is on its way already.
    explicit Flight(std::shared_ptr<Functor> given) : functor(std::move(given)) {
        if (functor->flight_ == number_ && !functor->reentrant()) {
            throw Error(
                Kind::state,
                "this functor has been sent before and has not ended; await its future first, or make a functor "
                "for each call");
        }
        functor->flight_ = number_;
    }
    ~Flight() {
        if (functor->flight_ == number_) functor->flight_ = 0;
    }
    Flight(const Flight &) = delete;
    Flight &operator=(const Flight &) = delete;

    const std::shared_ptr<Functor> functor;

  private:
    const unsigned number_ = fork_generation() + 1;
};

// Made and deleted by threads that hold the GIL; a worker only runs the functor and fills in how it ended. The job is its
// own link in every list, so nothing is allocated on the way, and a worker cannot fail for want of memory.
struct Job {
    Job(std::shared_ptr<Functor> functor, std::shared_ptr<SignalBus> bus, PyObject *future)
        : flight(std::move(functor)), bus(std::move(bus)), future(Py_NewRef(future)) {}
    ~Job() { Py_DECREF(future); }
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    enum class End { done, failed, refused };  // refused: its pool was closed before it began

    Flight flight;
    std::shared_ptr<SignalBus> bus;
    PyObject *future;
    End end = End::done;
    Kind kind = Kind::functor;  // of the failure
    std::string text;
    Job *next = nullptr;
};

// A list to which any thread adds and which one thread takes as a whole. Every operation is sequentially consistent.
class JobStack {
  public:
    // Add a job; false when the list is closed.
    bool push(Job *job) noexcept {
        Job *head = head_.load();
        do {
            if (head == closed_mark()) return false;
            job->next = head;
        } while (!head_.compare_exchange_weak(head, job));
        return true;
    }

    // Take all jobs, the oldest first; nullptr where there is none.
    Job *take() noexcept {
        Job *head = head_.load();
        do {
            if (!head || head == closed_mark()) return nullptr;
        } while (!head_.compare_exchange_weak(head, nullptr));
        return reversed(head);
    }

    // Refuse further jobs and take those that are there.
    Job *close() noexcept {
        Job *head = head_.exchange(closed_mark());
        return head == closed_mark() ? nullptr : reversed(head);
    }

    bool closed() const noexcept { return head_.load() == closed_mark(); }
    bool empty() const noexcept {
        Job *head = head_.load();
        return !head || head == closed_mark();
    }

  private:
    Job *closed_mark() const noexcept { return reinterpret_cast<Job *>(const_cast<std::atomic<Job *> *>(&head_)); }

    static Job *reversed(Job *job) noexcept {
        Job *result = nullptr;
        while (job) {
            Job *next = job->next;
            job->next = result;
            result = job;
            job = next;
        }
        return result;
    }

    std::atomic<Job *> head_{nullptr};
};

// Jobs that ended after their event loop: kept until a thread that holds the GIL deletes them. Never destroyed: a worker may
// still be running when the process destroys its static objects.
inline JobStack &orphans() noexcept {
    static JobStack *const stack = new JobStack;
    return *stack;
}

// Delete a list of jobs; needs the GIL, for functors and futures may be Python's.
inline void delete_jobs(Job *jobs) noexcept {
    while (jobs) {
        Job *next = jobs->next;
        delete jobs;
        jobs = next;
    }
}

}  // namespace dpmodule
