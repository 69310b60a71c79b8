// The Python type HogwildRun: workers at work. The GIL is free while somebody waits for them.
#include <algorithm>
#include <system_error>

#include "errors.hpp"
#include "python_plan.hpp"

namespace dpmodule::hogwild {
namespace {

struct RunObject {
    PyObject_HEAD std::unique_ptr<Run> run;
};

Run &run_of(PyObject *self) { return *reinterpret_cast<RunObject *>(self)->run; }

// A function of Python that gives the rate of each update. It lives as long as the run, which is destroyed without the GIL.
class Schedule {
  public:
    explicit Schedule(PyObject *function) : function_(Py_NewRef(function), release) {}

    double operator()(std::uint64_t count) const {
        const PyGILState_STATE state = PyGILState_Ensure();
        PyObject *rate = PyObject_CallFunction(function_.get(), "K", static_cast<unsigned long long>(count));
        const double found = rate ? PyFloat_AsDouble(rate) : 0.0;
        Py_XDECREF(rate);
        const bool failed = PyErr_Occurred() != nullptr;
        if (failed) PyErr_WriteUnraisable(function_.get());
        PyGILState_Release(state);
        if (failed)
            throw Error(Kind::functor, "lr_scheduler: it raised an exception, or returned no number; see stderr");
        return found;
    }

  private:
    static void release(PyObject *function) {
        const PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(function);
        PyGILState_Release(state);
    }

    std::shared_ptr<PyObject> function_;
};

// HogwildRun(plan, parts, workers, train, skip_bad_lines, seed, updates, rate, schedule, marks, allowed)
PyObject *new_run(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *given_plan, *given_parts, *schedule;
    Plan plan{};
    std::vector<Part> parts;
    RunOptions options;
    int train, skip;
    unsigned long long seed, updates, marks;
    long long allowed;
    if (!PyArg_ParseTuple(args, "OOippKKdOKL", &given_plan, &given_parts, &options.workers, &train, &skip, &seed,
                          &updates, &options.rate, &schedule, &marks, &allowed)) {
        return nullptr;
    }
    options.train = train;
    if (schedule != Py_None) options.schedule = Schedule(schedule);
    options.skip_bad_lines = skip;
    options.seed = seed;
    options.updates = updates;
    options.marks = reinterpret_cast<std::int64_t *>(static_cast<std::uintptr_t>(marks));
    options.allowed = allowed;
    try {
        if (!read_plan(given_plan, plan) || !read_parts(given_parts, parts)) return nullptr;
        PyObject *self = type->tp_alloc(type, 0);
        if (!self) return nullptr;
        auto &run = reinterpret_cast<RunObject *>(self)->run;
        new (&run) std::unique_ptr<Run>();
        try {
            run = std::make_unique<Run>(std::move(plan), std::move(parts), std::move(options));
        } catch (...) {
            Py_DECREF(self);
            throw;
        }
        return self;
    } catch (...) {
        return set_current_exception();
    }
}

void run_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    auto &run = reinterpret_cast<RunObject *>(self)->run;
    Py_BEGIN_ALLOW_THREADS
    run.reset();
    Py_END_ALLOW_THREADS
    run.~unique_ptr();
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *run_wait(PyObject *self, PyObject *seconds) {
    const double limit = std::min(PyFloat_AsDouble(seconds), 1e6);  // a clock's range is not endless
    if (PyErr_Occurred()) return nullptr;
    bool done;
    Py_BEGIN_ALLOW_THREADS
    done = run_of(self).wait(limit);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(done);
}

PyObject *run_stop(PyObject *self, PyObject *) {
    run_of(self).stop();
    Py_RETURN_NONE;
}

PyObject *run_pause(PyObject *self, PyObject *) {
    Py_BEGIN_ALLOW_THREADS
    run_of(self).pause();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyObject *run_resume(PyObject *self, PyObject *) {
    run_of(self).resume();
    Py_RETURN_NONE;
}

PyObject *run_is_spent(PyObject *self, PyObject *) { return PyBool_FromLong(run_of(self).is_spent()); }

PyObject *run_allow(PyObject *self, PyObject *batches) {
    const long long count = PyLong_AsLongLong(batches);
    if (PyErr_Occurred()) return nullptr;
    run_of(self).allow(count);
    Py_RETURN_NONE;
}

PyObject *run_raise_failure(PyObject *self, PyObject *) {
    const Failure &failure = run_of(self).failure();
    if (!failure.is_set) Py_RETURN_NONE;
    if (failure.is_non_finite) return set_named_error("dpmodule.base", "NonFiniteError", failure.text.c_str());
    if (failure.is_system)
        return set_system_error(std::system_error(failure.code, std::generic_category(), failure.text));
    return set_error(failure.kind, failure.text.c_str());
}

PyObject *run_failed_at(PyObject *self, PyObject *) {
    const Failure &failure = run_of(self).failure();
    return Py_BuildValue("(yK)", failure.file.c_str(), static_cast<unsigned long long>(failure.batch));
}

PyObject *run_updates(PyObject *self, PyObject *) { return PyLong_FromUnsignedLongLong(run_of(self).updates()); }

PyObject *floats_of(const std::vector<Tally> &sums) {
    PyObject *made = PyTuple_New(static_cast<Py_ssize_t>(sums.size()));
    for (std::size_t i = 0; made && i < sums.size(); ++i) {
        PyObject *one = PyFloat_FromDouble(sums[i].value());
        if (one) PyTuple_SET_ITEM(made, static_cast<Py_ssize_t>(i), one);
        else Py_CLEAR(made);
    }
    return made;
}

// (examples, batches, skipped, part, (read, parse, forward, backward, update), sums)
PyObject *stats_of(const WorkerProgress &worker) {
    PyObject *sums = floats_of(worker.sums);
    if (!sums) return nullptr;
    return Py_BuildValue("KKKn(ddddd)N", static_cast<unsigned long long>(worker.examples.load()),
                         static_cast<unsigned long long>(worker.batches.load()),
                         static_cast<unsigned long long>(worker.reader.skipped.load()),
                         static_cast<Py_ssize_t>(worker.reader.part.load()) - 1, worker.reader.reading.value(),
                         worker.reader.parsing.value(), worker.forward.value(), worker.backward.value(),
                         worker.update.value(), sums);
}

PyObject *run_stats(PyObject *self, PyObject *) {
    const Run &run = run_of(self);
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < run.options().workers; ++i) {
        PyObject *one = stats_of(run.worker(i));
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

PyObject *bytes_of(const void *at, std::size_t size) {
    return PyBytes_FromStringAndSize(static_cast<const char *>(at), static_cast<Py_ssize_t>(size));
}

// [lines of each batch as int32, numbers of a value as float32, ...], as bytes
PyObject *run_take(PyObject *self, PyObject *number) {
    const long worker = PyLong_AsLong(number);
    if (worker < 0 || worker >= run_of(self).options().workers) {
        return PyErr_Occurred() ? nullptr : set_error(Kind::bounds, "there is no such worker");
    }
    const Recorder::Record record = run_of(self).worker(static_cast<int>(worker)).recorder.take();
    PyObject *list = PyList_New(0);
    const auto append = [&](PyObject *bytes) {
        if (!bytes || PyList_Append(list, bytes) < 0) Py_CLEAR(list);
        Py_XDECREF(bytes);
    };
    if (list) append(bytes_of(record.lines.data(), record.lines.size() * sizeof(int)));
    for (std::size_t i = 0; list && i < record.values.size(); ++i) {
        append(bytes_of(record.values[i].data(), record.values[i].size() * sizeof(float)));
    }
    return list;
}

PyMethodDef run_methods[] = {
    {"take", run_take, METH_O,
     "take(worker): what the worker has recorded since the last call, as bytes: int32 lines of each batch, float32 "
     "numbers "
     "of each watched value."},
    {"wait", run_wait, METH_O,
     "wait(seconds): whether all workers have ended by then; returns early when they wait for more batches."},
    {"stop", run_stop, METH_NOARGS, "Ask the workers to end after their batch."},
    {"pause", run_pause, METH_NOARGS, "Wait until no worker is within a batch; then none begins one until resume()."},
    {"resume", run_resume, METH_NOARGS, "Let the workers go on."},
    {"is_spent", run_is_spent, METH_NOARGS,
     "Whether all batches that were allowed have ended, and the workers wait for more."},
    {"allow", run_allow, METH_O,
     "allow(batches): let the workers train on so many more; any number if it is negative."},
    {"raise_failure", run_raise_failure, METH_NOARGS, "Raise what went wrong first, if anything; after the end."},
    {"failed_at", run_failed_at, METH_NOARGS,
     "File, and number of the worker's batch from 0, of numbers that are not finite."},
    {"updates", run_updates, METH_NOARGS, "Updates that the parameters have had, with those before."},
    {"stats", run_stats, METH_NOARGS,
     "A tuple for each worker: examples, batches, skipped lines, part (-1: none), seconds of reading, parsing, "
     "forward, "
     "backward and update, sums of fetches."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot run_slots[] = {
    {Py_tp_dealloc, slot(run_dealloc)},
    {Py_tp_new, slot(new_run)},
    {Py_tp_methods, run_methods},
    {Py_tp_doc, const_cast<char *>("HogwildRun(plan, parts, workers, train, skip_bad_lines, seed, updates, rate, "
                                   "schedule, marks, allowed): threads that "
                                   "train; see dpmodule.hogwild.native_engine.")},
    {0, nullptr},
};
PyType_Spec run_spec = {"dpmodule._native.HogwildRun", sizeof(RunObject), 0, Py_TPFLAGS_DEFAULT, run_slots};

}  // namespace
}  // namespace dpmodule::hogwild

int dpmodule::add_hogwild_run(PyObject *module) {
    PyObject *type = PyType_FromSpec(&hogwild::run_spec);
    if (!type) return -1;
    if (PyModule_AddObject(module, "HogwildRun", type) == 0) return 0;  // takes the reference
    Py_DECREF(type);
    return -1;
}
