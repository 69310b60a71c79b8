#include "signal_bus_type.hpp"

#include <cstddef>
#include <new>
#include <structmember.h>

#include "errors.hpp"

namespace dpmodule {

PyTypeObject *signal_bus_type = nullptr;

namespace {

PyObject *name_done, *name_set_result, *name_set_exception, *name_exception;

SignalBusObject *cast(PyObject *self) { return reinterpret_cast<SignalBusObject *>(self); }

PyObject *make(PyTypeObject *type, PyObject *, PyObject *) {
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    new (&cast(self)->bus) std::shared_ptr<SignalBus>();
    new (&cast(self)->link) std::shared_ptr<BusLink>();
    return self;
}

int init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    PyObject *loop, *create_future;
    int pipe = 0;
    static const char *names[] = {"loop", "create_future", "pipe", nullptr};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|p:SignalBus", const_cast<char **>(names), &loop,
                                     &create_future, &pipe)) {
        return -1;
    }
    SignalBusObject *made = cast(self);
    if (made->bus) return set_error(Kind::state, "a SignalBus is initialized once"), -1;
    try {
        made->link = std::make_shared<BusLink>();
        made->bus = std::make_shared<SignalBus>(pipe ? SignalBus::Descriptor::pipe : SignalBus::Descriptor::best);
    } catch (const std::system_error &error) {
        return set_system_error(error), -1;
    } catch (...) {
        return set_current_exception(), -1;
    }
    made->link->self = made;
    made->loop = Py_NewRef(loop);
    made->create_future = Py_NewRef(create_future);
    return 0;
}

int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(cast(self)->loop);
    Py_VISIT(cast(self)->create_future);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

int clear(PyObject *self) {
    SignalBusObject *bus = cast(self);
    if (bus->link) bus->link->self = nullptr;
    if (bus->bus) delete_jobs(bus->bus->close());
    Py_CLEAR(bus->loop);
    Py_CLEAR(bus->create_future);
    return 0;
}

void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (cast(self)->weak_references) PyObject_ClearWeakRefs(self);
    clear(self);
    cast(self)->bus.~shared_ptr();
    cast(self)->link.~shared_ptr();
    type->tp_free(self);
    Py_DECREF(type);
}

// The exception that is set, normalized, with its traceback; it is set no longer.
PyObject *take_exception() {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

PyObject *result_of(Job *job) {
    switch (job->end) {
    case Job::End::done:
        try {
            PyObject *result = job->functor->result();
            if (!result && !PyErr_Occurred()) set_error(Kind::functor, "the functor's result() gave neither a value nor an exception");
            return result;
        } catch (...) {
            return set_current_exception();
        }
    case Job::End::failed:
        return set_error(job->kind, job->text.c_str());
    case Job::End::refused:
        break;
    }
    return set_named_error("dpmodule.native.errors", "PoolClosedError", "the pool was closed before this job began");
}

bool call(PyObject *future, PyObject *method, PyObject *argument) {
    PyObject *none = PyObject_CallMethodOneArg(future, method, argument);
    Py_XDECREF(none);
    return none != nullptr;
}

// Give a future the exception that is set. A future refuses some, such as StopIteration: it then gets the refusal.
void fail(PyObject *future) {
    for (int attempt = 0; attempt < 2 && PyErr_Occurred(); ++attempt) {
        PyObject *exception = take_exception();
        bool given = exception && call(future, name_set_exception, exception);
        Py_XDECREF(exception);
        if (given) return;
    }
    PyErr_WriteUnraisable(future);
}

// Whoever closes a pool knows that jobs are refused: if nobody awaits them, asyncio need not report it.
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

PyObject *drain(PyObject *self, PyObject *) {
    SignalBusObject *object = cast(self);
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

PyObject *close(PyObject *self, PyObject *) {
    clear(self);
    Py_RETURN_NONE;
}

PyObject *fileno(PyObject *self, PyObject *) {
    return PyLong_FromLong(cast(self)->bus ? cast(self)->bus->descriptor() : -1);
}
PyObject *get_loop(PyObject *self, void *) { return Py_NewRef(cast(self)->loop ? cast(self)->loop : Py_None); }
PyObject *closed(PyObject *self, void *) { return PyBool_FromLong(!cast(self)->bus || cast(self)->bus->closed()); }
PyObject *usable(PyObject *self, void *) { return PyBool_FromLong(cast(self)->usable()); }
PyObject *in_flight(PyObject *self, void *) { return PyLong_FromSsize_t(cast(self)->in_flight); }

PyMethodDef methods[] = {
    {"drain", drain, METH_NOARGS, "Resolve the futures of all jobs that have ended."},
    {"close", close, METH_NOARGS, "Close the descriptor; jobs that end later are dropped."},
    {"fileno", fileno, METH_NOARGS, "Return the descriptor that becomes readable, -1 once closed."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"loop", get_loop, nullptr, "The event loop, None once closed.", nullptr},
    {"closed", closed, nullptr, "Whether the bus has been closed.", nullptr},
    {"usable", usable, nullptr, "Whether jobs may be sent: neither closed nor made before a fork.", nullptr},
    {"in_flight", in_flight, nullptr, "Number of jobs that were sent and have not come back.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(SignalBusObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(make)},
    {Py_tp_init, reinterpret_cast<void *>(init)},
    {Py_tp_dealloc, reinterpret_cast<void *>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(clear)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char *>("SignalBus(loop, create_future, pipe=False): from workers to one event loop.")},
    {0, nullptr},
};
PyType_Spec spec = {"dpmodule._native.SignalBus", sizeof(SignalBusObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

int add_signal_bus(PyObject *module) {
    name_done = PyUnicode_InternFromString("done");
    name_set_result = PyUnicode_InternFromString("set_result");
    name_set_exception = PyUnicode_InternFromString("set_exception");
    name_exception = PyUnicode_InternFromString("exception");
    PyObject *type = PyType_FromSpec(&spec);
    if (!name_done || !name_set_result || !name_set_exception || !name_exception || !type) return -1;
    signal_bus_type = reinterpret_cast<PyTypeObject *>(Py_NewRef(type));
    if (PyModule_AddObject(module, "SignalBus", type) == 0) return 0;
    Py_DECREF(type);
    return -1;
}

}  // namespace dpmodule
