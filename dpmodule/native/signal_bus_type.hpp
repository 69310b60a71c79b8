// dpmodule._native.SignalBus: the bus of one event loop, with the loop's futures.
#pragma once

#include <memory>

#include "python.hpp"
#include "signal_bus.hpp"

namespace dpmodule {

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

}  // namespace dpmodule
