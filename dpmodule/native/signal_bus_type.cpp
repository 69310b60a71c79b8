#include "types.hpp"

#include <cstddef>
#include <new>
#include <structmember.h>

#include "errors.hpp"

namespace dpmodule {

PyTypeObject *signal_bus_type = nullptr;

namespace {

PyObject *name_done, *name_set_result, *name_set_exception, *name_exception;

SignalBusObject *as_bus(PyObject *self) { return reinterpret_cast<SignalBusObject *>(self); }

PyObject *bus_make(PyTypeObject *type, PyObject *, PyObject *) {
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    new (&as_bus(self)->bus) std::shared_ptr<SignalBus>();
    new (&as_bus(self)->link) std::shared_ptr<BusLink>();
    return self;
}

int bus_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    PyObject *loop, *create_future;
    int pipe = 0;
    static const char *names[] = {"loop", "create_future", "pipe", nullptr};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|p:SignalBus", const_cast<char **>(names), &loop,
                                     &create_future, &pipe)) {
        return -1;
    }
    SignalBusObject *made = as_bus(self);
    if (made->bus) return set_error(Kind::state, "SignalBus.__init__() may be called only once"), -1;
    try {
        made->link = std::make_shared<BusLink>();
        made->bus = std::make_shared<SignalBus>(pipe ? SignalBus::Descriptor::pipe : SignalBus::Descriptor::best);
    } catch (...) {
        return set_current_exception(), -1;
    }
    made->link->self = made;
    made->loop = Py_NewRef(loop);
    made->create_future = Py_NewRef(create_future);
    return 0;
}

int bus_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(as_bus(self)->loop);
    Py_VISIT(as_bus(self)->create_future);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

int bus_clear(PyObject *self) {
    SignalBusObject *bus = as_bus(self);
    if (bus->link) bus->link->self = nullptr;
    if (bus->bus) delete_jobs(bus->bus->close());
    Py_CLEAR(bus->loop);
    Py_CLEAR(bus->create_future);
    return 0;
}

void bus_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    if (as_bus(self)->weak_references) PyObject_ClearWeakRefs(self);
    bus_clear(self);
    as_bus(self)->bus.~shared_ptr();
    as_bus(self)->link.~shared_ptr();
    free_object(self);
}

PyObject *result_of(Job *job) {
    switch (job->end) {
        case Job::End::done:
            try {
                PyObject *result = job->flight.functor->result();
                if (!result && !PyErr_Occurred())
                    set_error(Kind::functor, "the functor's result() returned nullptr without setting an exception");
                return result;
            } catch (...) {
                return set_current_exception();
            }
        case Job::End::failed: return set_error(job->kind, job->text.c_str());
        case Job::End::refused: break;
    }
    return set_named_error("dpmodule.native.errors", "PoolClosedError", "the pool was closed before this job began");
}

bool call(PyObject *future, PyObject *method, PyObject *argument) {
    PyObject *none = PyObject_CallMethodOneArg(future, method, argument);
    Py_XDECREF(none);
    return none != nullptr;
}

// Set the current exception on a future. Futures refuse some, such as StopIteration, and then get the refusal instead.
void fail(PyObject *future) {
    for (int attempt = 0; attempt < 2 && PyErr_Occurred(); ++attempt) {
        PyObject *exception = take_exception();
        bool given = exception && call(future, name_set_exception, exception);
        Py_XDECREF(exception);
        if (given) return;
    }
    PyErr_WriteUnraisable(future);
}

// Closing a pool refuses jobs on purpose, so asyncio need not report futures that are never awaited.
void keep_quiet(PyObject *future) {
    PyObject *exception = PyObject_CallMethodNoArgs(future, name_exception);
    if (!exception) PyErr_Clear();
    Py_XDECREF(exception);
}

void resolve(Job *job) {
    PyObject *done = PyObject_CallMethodNoArgs(job->future, name_done);
    if (!done) return PyErr_WriteUnraisable(job->future);
    Py_DECREF(done);
    if (done == Py_True) return;  // cancelled meanwhile
    PyObject *result = result_of(job);
    if (!result || !call(job->future, name_set_result, result)) fail(job->future);
    Py_XDECREF(result);
    if (job->end == Job::End::refused) keep_quiet(job->future);
}

PyObject *bus_drain(PyObject *self, PyObject *) {
    SignalBusObject *object = as_bus(self);
    std::shared_ptr<SignalBus> bus = object->bus;  // a result's code might close the bus
    if (!bus) Py_RETURN_NONE;
    bus->clear();
    while (Job *jobs = bus->take()) {
        while (jobs) {
            Job *job = std::exchange(jobs, jobs->next);
            --object->in_flight;
            resolve(job);
            delete job;
        }
    }
    delete_jobs(orphans().take());
    Py_RETURN_NONE;
}

PyObject *bus_close(PyObject *self, PyObject *) {
    bus_clear(self);
    Py_RETURN_NONE;
}

PyObject *bus_fileno(PyObject *self, PyObject *) {
    return PyLong_FromLong(as_bus(self)->bus ? as_bus(self)->bus->descriptor() : -1);
}
PyObject *bus_closed(PyObject *self, void *) {
    return PyBool_FromLong(!as_bus(self)->bus || as_bus(self)->bus->closed());
}
PyObject *bus_usable(PyObject *self, void *) { return PyBool_FromLong(as_bus(self)->usable()); }

PyMethodDef bus_methods[] = {
    {"drain", bus_drain, METH_NOARGS, "Resolve the futures of all jobs that have ended."},
    {"close", bus_close, METH_NOARGS, "Close the descriptor; jobs that end later are dropped."},
    {"fileno", bus_fileno, METH_NOARGS, "Return the descriptor that becomes readable, -1 once closed."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef bus_properties[] = {
    {"closed", bus_closed, nullptr, "True if the bus has been closed.", nullptr},
    {"usable", bus_usable, nullptr, "True if jobs may be sent: neither closed nor made before a fork.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef bus_members[] = {
    {"loop", T_OBJECT, offsetof(SignalBusObject, loop), READONLY, "The event loop, None once closed."},
    {"in_flight", T_PYSSIZET, offsetof(SignalBusObject, in_flight), READONLY,
     "Number of jobs that were sent and are not resolved yet."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(SignalBusObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot bus_slots[] = {
    {Py_tp_new, slot(bus_make)},
    {Py_tp_init, slot(bus_init)},
    {Py_tp_dealloc, slot(bus_dealloc)},
    {Py_tp_traverse, slot(bus_traverse)},
    {Py_tp_clear, slot(bus_clear)},
    {Py_tp_methods, bus_methods},
    {Py_tp_getset, bus_properties},
    {Py_tp_members, bus_members},
    {Py_tp_doc,
     const_cast<char *>("SignalBus(loop, create_future, pipe=False): a channel from workers to one event loop.")},
    {0, nullptr},
};
PyType_Spec bus_spec = {"dpmodule._native.SignalBus", sizeof(SignalBusObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, bus_slots};

}  // namespace

int add_signal_bus(PyObject *module) {
    name_done = PyUnicode_InternFromString("done");
    name_set_result = PyUnicode_InternFromString("set_result");
    name_set_exception = PyUnicode_InternFromString("set_exception");
    name_exception = PyUnicode_InternFromString("exception");
    signal_bus_type = add_type(module, bus_spec);
    return name_done && name_set_result && name_set_exception && name_exception && signal_bus_type ? 0 : -1;
}

}  // namespace dpmodule
