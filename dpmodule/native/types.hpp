// The Python types of functors, pools and buses as their files see each other, and handles over bytes.
#pragma once

#include <memory>
#include <string>

#include "python.hpp"
#include "signal_bus.hpp"
#include "thread_pool.hpp"
#include <dpmodule/functor.h>

namespace dpmodule {

// dpmodule._native.Functor: a functor as a Python object. It saves making a capsule for every call.
struct FunctorObject {
    PyObject_HEAD std::shared_ptr<Functor> functor;
};

// The type; subclasses of it only say how a functor is made.
extern PyTypeObject *functor_type;

// Make an object of `type`, functor_type or a subclass, around a functor. A new reference, or nullptr with an exception.
PyObject *make_functor(PyTypeObject *type, std::shared_ptr<Functor> functor) noexcept;

// The functor of whatever a worker is called with; empty with an ArgumentError set if it is none.
std::shared_ptr<Functor> functor_of(PyObject *object) noexcept;

// dpmodule._native.SignalBus: the bus of one event loop, with the loop's futures.
struct SignalBusObject;

// A way to a bus that does not keep it alive: `self` is nullptr once it is gone. Only read and written with the GIL.
struct BusLink {
    SignalBusObject *self = nullptr;
};

struct SignalBusObject {
    PyObject_HEAD std::shared_ptr<SignalBus> bus;
    std::shared_ptr<BusLink> link;
    PyObject *loop, *create_future;
    PyObject *weak_references;
    Py_ssize_t in_flight;

    // Whether jobs may be sent by it.
    bool usable() const noexcept { return create_future && bus && !bus->closed() && !bus->foreign(); }
};

extern PyTypeObject *signal_bus_type;

// dpmodule._native.ThreadPool: the pool as a Python object, which survives a fork.
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

// Make a Python StringHandle over bytes: a new reference, or nullptr with an exception set. Needs the GIL.
PyObject *make_handle(Bytes bytes) noexcept;

// Make bytes over anything StringHandle takes, tensors included; false with an exception set. Needs the GIL.
bool bytes_of_any(PyObject *object, Bytes &out) noexcept;

}  // namespace dpmodule
