#include "job.hpp"

#include <pthread.h>

namespace dpmodule {
namespace {

std::atomic<unsigned> generation{0};

}  // namespace

// Never destroyed: a worker may still be running when the process destroys its static objects.
JobStack &orphans() noexcept {
    static JobStack *const stack = new JobStack;
    return *stack;
}

void delete_jobs(Job *jobs) noexcept {
    while (jobs) {
        Job *next = jobs->next;
        delete jobs;
        jobs = next;
    }
}

unsigned fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

void watch_forks() noexcept {
    static const int watching = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
    (void)watching;
}

}  // namespace dpmodule
