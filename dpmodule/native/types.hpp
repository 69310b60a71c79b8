// Python types of functors, pools and buses, and handles over bytes.
#pragma once

#include <memory>
#include <string>

#include "python.hpp"
#include "signal_bus.hpp"
#include "thread_pool.hpp"
#include <dpmodule/functor.h>

namespace dpmodule {

// dpmodule._native.Functor: a functor as a Python object, which saves a capsule for every call.
struct FunctorObject {
    PyObject_HEAD std::shared_ptr<Functor> functor;
};

// Base type of functors; its subclasses only differ in how they make one.
extern PyTypeObject *functor_type;

// Make an object of `type`, functor_type or a subclass, around a functor. A new reference, or nullptr with an exception.
PyObject *make_functor(PyTypeObject *type, std::shared_ptr<Functor> functor) noexcept;

// Return the functor of a worker's argument; empty, with an ArgumentError set, if it is not a functor.
std::shared_ptr<Functor> functor_of(PyObject *object) noexcept;

// dpmodule._native.SignalBus: the bus of one event loop, with the loop's futures.
struct SignalBusObject;

// Weak reference to a bus: `self` is nullptr once the bus is gone. Only read and written with the GIL.
struct BusLink {
    SignalBusObject *self = nullptr;
};

struct SignalBusObject {
    PyObject_HEAD std::shared_ptr<SignalBus> bus;
    std::shared_ptr<BusLink> link;
    PyObject *loop, *create_future;
    PyObject *weak_references;
    Py_ssize_t in_flight;

    // True if jobs may be sent through it.
    bool usable() const noexcept { return create_future && bus && !bus->closed() && !bus->from_before_fork(); }
};

extern PyTypeObject *signal_bus_type;

// dpmodule._native.ThreadPool: the pool as a Python object, which survives a fork.
struct ThreadPoolObject {
    PyObject_HEAD std::unique_ptr<ThreadPool> pool;  // empty in a forked child until first used
    std::string name;
    int threads;
    unsigned generation;
    bool closed;
};

extern PyTypeObject *thread_pool_type;

// Send a functor to the pool, which reports its end to the bus. Returns a new reference to the future, or nullptr with
// an exception.
PyObject *submit(ThreadPoolObject *self, PyObject *functor, SignalBusObject *bus) noexcept;

// Make a Python StringHandle over bytes: a new reference, or nullptr with an exception. Needs the GIL.
PyObject *make_handle(Bytes bytes) noexcept;

// Get the bytes of anything StringHandle takes, tensors included; false with an exception. Needs the GIL.
bool bytes_of_any(PyObject *object, Bytes &out) noexcept;

}  // namespace dpmodule
