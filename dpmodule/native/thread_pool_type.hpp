// dpmodule._native.ThreadPool: the pool as a Python object, which survives a fork.
#pragma once

#include <memory>
#include <string>

#include "python.hpp"
#include "signal_bus_type.hpp"
#include "thread_pool.hpp"

namespace dpmodule {

struct ThreadPoolObject {
    PyObject_HEAD std::unique_ptr<ThreadPool> pool;  // empty in a forked child until it is needed there
    std::string name;
    int threads;
    unsigned generation;
    bool closed;
};

extern PyTypeObject *thread_pool_type;

// Send a functor to the pool; its end is told to the bus. Returns the future, a new reference, or nullptr with an exception.
PyObject *submit(ThreadPoolObject *self, PyObject *functor, SignalBusObject *bus) noexcept;

}  // namespace dpmodule
