#include "types.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <pthread.h>
#include <structmember.h>

#include "errors.hpp"

namespace dpmodule {

PyTypeObject *thread_pool_type = nullptr;

namespace {

constexpr int most_threads = 4096;
constexpr double between_signals = 0.05;  // seconds between checks for Ctrl-C while waiting for the pool

ThreadPoolObject *as_pool(PyObject *self) { return reinterpret_cast<ThreadPoolObject *>(self); }

PyObject *pool_make(PyTypeObject *type, PyObject *, PyObject *) {
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    new (&as_pool(self)->pool) std::unique_ptr<ThreadPool>();
    new (&as_pool(self)->name) std::string();
    as_pool(self)->closed = true;
    return self;
}

int pool_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    int threads;
    const char *name;
    static const char *names[] = {"threads", "name", nullptr};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "is:ThreadPool", const_cast<char **>(names), &threads,
                                     &name)) {
        return -1;
    }
    ThreadPoolObject *made = as_pool(self);
    if (made->threads) return set_error(Kind::state, "ThreadPool.__init__() may be called only once"), -1;
    if (threads < 1 || threads > most_threads) {
        return set_error_format(Kind::argument, "ThreadPool: threads=%d, expected 1 to %d", threads, most_threads), -1;
    }
    try {
        made->name = name;
        made->pool = std::make_unique<ThreadPool>(threads, made->name);
    } catch (...) {
        return set_current_exception(), -1;
    }
    made->threads = threads;
    made->generation = fork_generation();
    made->closed = false;
    return 0;
}

// Drop the parent's pool in a forked child, which has none of its threads; its mutex may be locked forever, so it leaks.
void refresh(ThreadPoolObject *self) noexcept {
    if (self->generation == fork_generation()) return;
    (void)self->pool.release();
    self->generation = fork_generation();
}

void pool_dealloc(PyObject *self) {
    refresh(as_pool(self));
    as_pool(self)->pool.~unique_ptr();
    as_pool(self)->name.~basic_string();
    free_object(self);
}

bool usable(ThreadPoolObject *self) noexcept {
    refresh(self);
    if (self->closed) {
        set_named_error("dpmodule.native.errors", "PoolClosedError", "the pool is closed; send jobs before close()");
        return false;
    }
    if (self->pool) return true;
    try {
        self->pool = std::make_unique<ThreadPool>(self->threads, self->name);
    } catch (...) {
        return set_current_exception(), false;
    }
    return true;
}

PyObject *py_submit(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 || !PyObject_TypeCheck(arguments[1], signal_bus_type)) {
        return PyErr_SetString(PyExc_TypeError, "submit() takes a functor and a SignalBus"), nullptr;
    }
    return submit(as_pool(self), arguments[0], reinterpret_cast<SignalBusObject *>(arguments[1]));
}

PyObject *pool_close(PyObject *self, PyObject *argument) {
    int finish = PyObject_IsTrue(argument);
    if (finish < 0) return nullptr;
    refresh(as_pool(self));
    as_pool(self)->closed = true;
    if (ThreadPool *pool = as_pool(self)->pool.get()) {
        Py_BEGIN_ALLOW_THREADS  // a worker holds the mutex briefly but may be preempted
        pool->close(finish);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

PyObject *pool_wait(PyObject *self, PyObject *argument) {
    double left = PyFloat_AsDouble(argument);
    if (left == -1.0 && PyErr_Occurred()) return nullptr;
    refresh(as_pool(self));
    ThreadPool *pool = as_pool(self)->pool.get();
    if (!pool) Py_RETURN_TRUE;
    for (;;) {
        bool ended;
        double turn = std::clamp(left, 0.0, between_signals);
        Py_BEGIN_ALLOW_THREADS
        ended = pool->wait(ThreadPool::Seconds(turn));
        Py_END_ALLOW_THREADS
        left -= turn;
        if (PyErr_CheckSignals() < 0) return nullptr;
        if (ended || left <= 0) {
            delete_jobs(orphans().take());
            return PyBool_FromLong(ended);
        }
    }
}

PyObject *pool_threads(PyObject *self, void *) { return PyLong_FromLong(as_pool(self)->threads); }
PyObject *pool_closed(PyObject *self, void *) { return PyBool_FromLong(as_pool(self)->closed); }

// A number that the pool knows; 0 in a forked child that has not used it.
template <auto count>
PyObject *pool_number(PyObject *self, void *) {
    refresh(as_pool(self));
    const ThreadPool *pool = as_pool(self)->pool.get();
    return PyLong_FromLong(pool ? (pool->*count)() : 0);
}

PyMethodDef pool_methods[] = {
    {"submit", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(py_submit)), METH_FASTCALL,
     "Send a functor to the pool and return its future, which the bus resolves."},
    {"stop", pool_close, METH_O, "Refuse new jobs; finish the queued ones if the argument is true."},
    {"wait", pool_wait, METH_O,
     "Wait at most so many seconds for the threads to end after stop(); return True if they have."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef pool_properties[] = {
    {"threads", pool_threads, nullptr, "Number of threads.", nullptr},
    {"closed", pool_closed, nullptr, "True if the pool refuses new jobs.", nullptr},
    {"alive", pool_number<&ThreadPool::alive>, nullptr, "Number of threads that have not ended.", nullptr},
    {"queued", pool_number<&ThreadPool::queued>, nullptr, "Number of queued jobs.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot pool_slots[] = {
    {Py_tp_new, slot(pool_make)},
    {Py_tp_init, slot(pool_init)},
    {Py_tp_dealloc, slot(pool_dealloc)},
    {Py_tp_methods, pool_methods},
    {Py_tp_getset, pool_properties},
    {Py_tp_doc, const_cast<char *>("ThreadPool(threads, name): threads that run functors without the GIL.")},
    {0, nullptr},
};
PyType_Spec pool_spec = {"dpmodule._native.ThreadPool", sizeof(ThreadPoolObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, pool_slots};

}  // namespace

PyObject *submit(ThreadPoolObject *self, PyObject *functor, SignalBusObject *bus) noexcept {
    if (!usable(self)) return nullptr;
    if (!bus->usable()) {
        return set_named_error("dpmodule.native.errors", "LoopClosedError", "the event loop's bus is closed");
    }
    std::shared_ptr<Functor> run = functor_of(functor);
    if (!run) return nullptr;
    delete_jobs(orphans().take());
    PyObject *future = PyObject_CallNoArgs(bus->create_future);
    if (!future) return nullptr;
    try {
        auto job = std::make_unique<Job>(std::move(run), bus->bus, future);
        if (!self->pool->push(job.get())) {
            Py_DECREF(future);
            return set_named_error("dpmodule.native.errors", "PoolClosedError", "the pool is closed");
        }
        (void)job.release();
    } catch (...) {
        Py_DECREF(future);
        return set_current_exception();
    }
    ++bus->in_flight;
    return future;
}

// dpmodule._native.Worker: calling it sends a functor to a pool on behalf of the running event loop.
namespace {

PyObject
    *get_running_loop;  // of asyncio, imported with the first worker since other users of the extension do not need it

struct WorkerObject {
    PyObject_HEAD vectorcallfunc call;
    PyObject *pool, *bus_of;
    std::shared_ptr<BusLink> link;  // bus of the last call; a lookup costs more than the call
};

WorkerObject *as_worker(PyObject *self) { return reinterpret_cast<WorkerObject *>(self); }

// Return the bus of the running loop: a new reference, or nullptr with an exception.
SignalBusObject *current_bus(WorkerObject *self) {
    PyObject *loop = PyObject_CallNoArgs(get_running_loop);
    if (!loop) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return nullptr;
        PyErr_Clear();
        set_error(Kind::state, "a worker was called, but no event loop is running; call it in a coroutine");
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
        return PyErr_SetString(PyExc_TypeError, "a worker takes exactly one functor"), nullptr;
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

int add_thread_pool(PyObject *module) {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
    thread_pool_type = add_type(module, pool_spec);
    return thread_pool_type && add_type(module, worker_spec) ? 0 : -1;
}

}  // namespace dpmodule
