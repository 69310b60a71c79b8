// dpmodule._native.Worker: calling it sends a functor to a pool, for the event loop that is running.
#include "types.hpp"

#include <cstddef>
#include <new>
#include <structmember.h>

#include "errors.hpp"

namespace dpmodule {
namespace {

PyObject
    *get_running_loop;  // of asyncio, which is imported with the first worker: other users of the extension do without

struct WorkerObject {
    PyObject_HEAD vectorcallfunc call;
    PyObject *pool, *bus_of;
    std::shared_ptr<BusLink> link;  // the bus of the last call; looking it up again costs more than the call
};

WorkerObject *as_worker(PyObject *self) { return reinterpret_cast<WorkerObject *>(self); }

// The bus of the loop that is running: a new reference, or nullptr with an exception.
SignalBusObject *current_bus(WorkerObject *self) {
    PyObject *loop = PyObject_CallNoArgs(get_running_loop);
    if (!loop) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return nullptr;
        PyErr_Clear();
        set_error(Kind::state, "a worker was called where no event loop is running; call it in a coroutine");
        return nullptr;
    }
    SignalBusObject *bus = self->link ? self->link->self : nullptr;
    if (bus && bus->loop == loop && bus->usable()) {
        Py_DECREF(loop);
        Py_INCREF(bus);
        return bus;
    }
    PyObject *found = PyObject_CallOneArg(self->bus_of, loop);
    Py_DECREF(loop);
    if (found && !PyObject_TypeCheck(found, signal_bus_type)) {
        Py_DECREF(found);
        return PyErr_SetString(PyExc_TypeError, "bus_of() must return a SignalBus"), nullptr;
    }
    bus = reinterpret_cast<SignalBusObject *>(found);
    if (bus) self->link = bus->link;
    return bus;
}

PyObject *worker_call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *keywords) {
    if (PyVectorcall_NARGS(flags) != 1 || (keywords && PyTuple_GET_SIZE(keywords))) {
        return PyErr_SetString(PyExc_TypeError, "a worker is called with one functor"), nullptr;
    }
    SignalBusObject *bus = current_bus(as_worker(self));
    if (!bus) return nullptr;
    PyObject *future = submit(reinterpret_cast<ThreadPoolObject *>(as_worker(self)->pool), arguments[0], bus);
    Py_DECREF(bus);
    return future;
}

bool find_asyncio() {
    if (get_running_loop) return true;
    PyObject *asyncio = PyImport_ImportModule("asyncio");
    if (!asyncio) return false;
    get_running_loop = PyObject_GetAttrString(asyncio, "get_running_loop");
    Py_DECREF(asyncio);
    return get_running_loop != nullptr;
}

PyObject *worker_make(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PyObject *pool, *bus_of;
    static const char *names[] = {"pool", "bus_of", nullptr};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O:Worker", const_cast<char **>(names), thread_pool_type,
                                     &pool, &bus_of)) {
        return nullptr;
    }
    if (!find_asyncio()) return nullptr;
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    as_worker(self)->call = worker_call;
    as_worker(self)->pool = Py_NewRef(pool);
    as_worker(self)->bus_of = Py_NewRef(bus_of);
    new (&as_worker(self)->link) std::shared_ptr<BusLink>();
    return self;
}

int worker_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(as_worker(self)->pool);
    Py_VISIT(as_worker(self)->bus_of);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

void worker_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    Py_CLEAR(as_worker(self)->pool);
    Py_CLEAR(as_worker(self)->bus_of);
    as_worker(self)->link.~shared_ptr();
    free_object(self);
}

PyMemberDef worker_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(WorkerObject, call), READONLY, nullptr},
    {"pool", T_OBJECT_EX, offsetof(WorkerObject, pool), READONLY, "The pool that runs the functors."},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot worker_slots[] = {
    {Py_tp_new, slot(worker_make)},
    {Py_tp_dealloc, slot(worker_dealloc)},
    {Py_tp_traverse, slot(worker_traverse)},
    {Py_tp_call, slot(PyVectorcall_Call)},
    {Py_tp_members, worker_members},
    {Py_tp_doc, const_cast<char *>("Worker(pool, bus_of): calling it sends a functor and returns its future.")},
    {0, nullptr},
};
PyType_Spec worker_spec = {"dpmodule._native.Worker", sizeof(WorkerObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, worker_slots};

}  // namespace

int add_worker(PyObject *module) { return add_type(module, worker_spec) ? 0 : -1; }

}  // namespace dpmodule
