// One call of a functor on its way from the loop's thread to a worker and back.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <dpmodule/functor.h>

namespace dpmodule {

class SignalBus;

inline std::atomic<unsigned> forks{0};

// Number of forks between this process and the ancestor that loaded the extension.
inline unsigned fork_generation() noexcept { return forks.load(std::memory_order_relaxed); }

// Mark on a functor that is in flight: from the call of a worker until its result is taken or dropped. A functor has at
// most one unless it is reentrant. A functor in flight at a fork remains in flight in the parent only. Needs the GIL.
class Flight {
  public:
    // Throws Error, a StateError, if the functor is in flight already.
    explicit Flight(std::shared_ptr<Functor> given) : functor(std::move(given)) {
        if (functor->flight_ == number_ && !functor->reentrant()) {
            throw Error(Kind::state,
                        "this functor is still running from an earlier call; await its future first, or make a functor "
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

// Functor call in a pool. Threads that hold the GIL create and delete jobs; a worker only runs the functor and stores the
// outcome. Jobs are linked through a member of their own, so workers allocate nothing and cannot run out of memory.
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

// List that any thread appends to and one thread takes as a whole. All operations are sequentially consistent.
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

    // Take all jobs, oldest first; nullptr if there are none.
    Job *take() noexcept {
        Job *head = head_.load();
        do {
            if (!head || head == closed_mark()) return nullptr;
        } while (!head_.compare_exchange_weak(head, nullptr));
        return reversed(head);
    }

    // Refuse further jobs and take the remaining ones.
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

// Jobs that ended after their event loop closed, kept until a thread that holds the GIL deletes them. Never destroyed: a
// worker may still be running when the process destroys its static objects.
inline JobStack &orphans() noexcept {
    static JobStack *const stack = new JobStack;
    return *stack;
}

// Delete a list of jobs. Needs the GIL, since functors and futures may be Python objects.
inline void delete_jobs(Job *jobs) noexcept {
    while (jobs) {
        Job *next = jobs->next;
        delete jobs;
        jobs = next;
    }
}

}  // namespace dpmodule
