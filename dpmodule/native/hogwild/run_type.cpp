// The Python type HogwildRun: running workers, and plans from Python (NativePlan in hogwild/native_engine.py). The GIL
// is released while waiting for the workers.
#include <algorithm>
#include <cstring>

#include "errors.hpp"
#include "kernels/update_python.hpp"
#include "run.hpp"

namespace dpmodule::hogwild {
namespace {

// Read each item of a sequence with read(item, record).
template <class Record, class Read>
bool read_each(PyObject *given, std::vector<Record> &records, Read read) {
    PyObject *items = PySequence_Fast(given, "expected a sequence");
    if (!items) return false;
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < PySequence_Fast_GET_SIZE(items); ++i) {
        records.emplace_back();
        fine = read(PySequence_Fast_GET_ITEM(items, i), records.back());
    }
    Py_DECREF(items);
    return fine;
}

bool read_int(PyObject *given, int &number) {
    number = static_cast<int>(PyLong_AsLong(given));
    return number != -1 || !PyErr_Occurred();
}

bool read_float(PyObject *given, float &number) {
    number = static_cast<float>(PyFloat_AsDouble(given));
    return !PyErr_Occurred();
}

bool read_address(PyObject *given, float *&at) {
    at = static_cast<float *>(PyLong_AsVoidPtr(given));
    return at || !PyErr_Occurred();
}

bool read_slot(PyObject *given, SlotInput &input) {
    const char *name, *table;
    int is_float, is_dense, is_used, as_ids, as_numbers;
    unsigned long long width, rows;
    if (!PyArg_ParseTuple(given, "spppppKKs", &name, &is_float, &is_dense, &is_used, &as_ids, &as_numbers, &width,
                          &rows, &table)) {
        return false;
    }
    input.slot = {name, is_float != 0, is_dense != 0, is_used != 0, width};
    input.as_ids = as_ids;
    input.as_numbers = as_numbers;
    input.rows = rows;
    input.table = table;
    return true;
}

bool read_parameter(PyObject *given, Parameter &parameter) {
    const char *name;
    long long rows, width;
    PyObject *weight, *states, *rule;
    int learns, all_rows;
    if (!PyArg_ParseTuple(given, "sLLOOOdpp", &name, &rows, &width, &weight, &states, &rule, &parameter.lr_mult,
                          &learns, &all_rows)) {
        return false;
    }
    parameter.name = name;
    parameter.rows = rows;
    parameter.width = width;
    parameter.learns = learns;
    parameter.all_rows = all_rows;
    std::vector<float *> found;
    if (!read_address(weight, parameter.weight) || !vector::read_rule(rule, &parameter.rule)) return false;
    if (!read_each(states, found, [](PyObject *one, float *&at) { return read_address(one, at); })) return false;
    if (found.size() < static_cast<std::size_t>(learns ? vector::state_count(parameter.rule.kind) : 0) ||
        found.size() > 3) {
        PyErr_Format(PyExc_ValueError, "parameter %s has %zu states", name, found.size());
        return false;
    }
    std::copy(found.begin(), found.end(), parameter.states);
    return true;
}

bool read_value(PyObject *given, ValueShape &value) {
    int single;
    if (!PyArg_ParseTuple(given, "ip", &value.width, &single)) return false;
    value.single = single;
    return true;
}

// The index of a name in a list; returns false with a Python error set.
template <std::size_t count>
bool read_name(const char *name, const char *const (&names)[count], int &number) {
    for (number = 0; number < static_cast<int>(count); ++number) {
        if (std::strcmp(name, names[number]) == 0) return true;
    }
    PyErr_Format(PyExc_ValueError, "the engine does not support %s", name);
    return false;
}

bool read_step(PyObject *given, Step &step) {
    const char *name, *function;
    int kind;
    PyObject *in, *ints, *floats;
    if (!PyArg_ParseTuple(given, "ssiOOO", &name, &function, &step.out, &in, &ints, &floats) ||
        !read_name(name, names_of_StepKind, kind)) {
        return false;
    }
    step.kind = static_cast<StepKind>(kind);
    const bool known = step.kind == StepKind::Pool     ? read_name(function, names_of_Pool, step.function)
                       : step.kind == StepKind::Unary  ? read_name(function, vector::names_of_Unary, step.function)
                       : step.kind == StepKind::Binary ? read_name(function, vector::names_of_Binary, step.function)
                                                       : true;
    return known && read_each(in, step.in, read_int) && read_each(ints, step.ints, read_int) &&
           read_each(floats, step.floats, read_float);
}

bool read_fetch(PyObject *given, Fetch &fetch) { return PyArg_ParseTuple(given, "ii", &fetch.value, &fetch.slot); }

bool read_part(PyObject *given, Part &part) {
    const char *path;
    long long begin, end;
    unsigned long long skip;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(given, "yLLKn", &path, &begin, &end, &skip, &number)) return false;
    part = {path, begin, end, skip, static_cast<std::size_t>(number)};
    return true;
}

bool read_plan(PyObject *given, Plan &plan) {
    PyObject *slots, *parameters, *values, *steps, *outputs, *fetches, *watched;
    if (!PyArg_ParseTuple(given, "iOOOOOOO", &plan.batch_size, &slots, &parameters, &values, &steps, &outputs, &fetches,
                          &watched))
        return false;
    return read_each(slots, plan.slots, read_slot) && read_each(parameters, plan.parameters, read_parameter) &&
           read_each(values, plan.values, read_value) && read_each(steps, plan.steps, read_step) &&
           read_each(outputs, plan.outputs, read_int) && read_each(fetches, plan.fetches, read_fetch) &&
           read_each(watched, plan.watched, read_int);
}

struct RunObject {
    PyObject_HEAD std::unique_ptr<Run> run;
};

Run &run_of(PyObject *self) { return *reinterpret_cast<RunObject *>(self)->run; }

// A Python function that returns the rate of each update.
class Schedule {
  public:
    explicit Schedule(PyObject *function) : function_(keep(function)) {}

    double operator()(std::uint64_t count) const {
        const PyGILState_STATE state = PyGILState_Ensure();
        PyObject *rate = PyObject_CallFunction(function_.get(), "K", static_cast<unsigned long long>(count));
        const double found = rate ? PyFloat_AsDouble(rate) : 0.0;
        Py_XDECREF(rate);
        const bool failed = PyErr_Occurred() != nullptr;
        if (failed) PyErr_WriteUnraisable(function_.get());
        PyGILState_Release(state);
        if (failed)
            throw Error(Kind::functor, "lr_scheduler raised an exception, or did not return a number; see stderr");
        return found;
    }

  private:
    std::shared_ptr<PyObject> function_;
};

// HogwildRun(plan, parts, workers, train, skip_bad_lines, seed, updates, rate, schedule, marks, allowed, is_fed)
PyObject *new_run(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *given_plan, *given_parts, *schedule;
    Plan plan{};
    std::vector<Part> parts;
    RunOptions options;
    int train, skip, is_fed;
    unsigned long long seed, updates, marks;
    long long allowed;
    if (!PyArg_ParseTuple(args, "OOippKKdOKLp", &given_plan, &given_parts, &options.workers, &train, &skip, &seed,
                          &updates, &options.rate, &schedule, &marks, &allowed, &is_fed)) {
        return nullptr;
    }
    options.train = train;
    if (schedule != Py_None) options.schedule = Schedule(schedule);
    options.skip_bad_lines = skip;
    options.seed = seed;
    options.updates = updates;
    options.marks = reinterpret_cast<std::int64_t *>(static_cast<std::uintptr_t>(marks));
    options.allowed = allowed;
    options.is_fed = is_fed;
    PyObject *self = nullptr;
    try {
        if (!read_plan(given_plan, plan) || !read_each(given_parts, parts, read_part)) return nullptr;
        self = type->tp_alloc(type, 0);
        if (!self) return nullptr;
        auto &run = reinterpret_cast<RunObject *>(self)->run;
        new (&run) std::unique_ptr<Run>();
        run = std::make_unique<Run>(std::move(plan), std::move(parts), std::move(options));
        return self;
    } catch (...) {
        Py_XDECREF(self);
        return set_current_exception();
    }
}

void run_dealloc(PyObject *self) {
    auto &run = reinterpret_cast<RunObject *>(self)->run;
    Py_BEGIN_ALLOW_THREADS
    run.reset();
    Py_END_ALLOW_THREADS
    run.~unique_ptr();
    free_object(self);
}

PyObject *run_wait(PyObject *self, PyObject *seconds) {
    const double limit = std::min(PyFloat_AsDouble(seconds), 1e6);  // the clock's range is limited
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

// Copy an array of numbers; an empty one for None.
template <class Number>
bool read_numbers(PyObject *given, std::vector<Number> &numbers) {
    if (given == Py_None) return true;
    Py_buffer view;
    if (PyObject_GetBuffer(given, &view, PyBUF_C_CONTIGUOUS) != 0) return false;
    const Number *const at = static_cast<const Number *>(view.buf);
    numbers.assign(at, at + static_cast<std::size_t>(view.len) / sizeof(Number));
    PyBuffer_Release(&view);
    return true;
}

bool read_slot_batch(PyObject *given, SlotBatch &slot) {
    PyObject *ids, *numbers, *offsets;
    return PyArg_ParseTuple(given, "OOO", &ids, &numbers, &offsets) && read_numbers(ids, slot.ids) &&
           read_numbers(numbers, slot.numbers) && read_numbers(offsets, slot.offsets);
}

bool read_batch(PyObject *given, std::pair<std::size_t, Batch> &found) {
    unsigned long long part, first_line;
    PyObject *slots;
    if (!PyArg_ParseTuple(given, "KKiO", &part, &first_line, &found.second.lines, &slots)) return false;
    found.first = static_cast<std::size_t>(part);
    found.second.first_line = first_line;
    return read_each(slots, found.second.slots, read_slot_batch);
}

PyObject *run_give(PyObject *self, PyObject *given) {
    try {
        std::vector<std::pair<std::size_t, Batch>> batches;
        if (!read_each(given, batches, read_batch)) return nullptr;
        run_of(self).give(std::move(batches));
    } catch (...) {
        return set_current_exception();
    }
    Py_RETURN_NONE;
}

PyObject *run_raise_failure(PyObject *self, PyObject *) {
    try {
        if (run_of(self).failure()) std::rethrow_exception(run_of(self).failure());
    } catch (const NonFinite &error) {
        return set_named_error("dpmodule.base", "NonFiniteError", error.what());
    } catch (...) {
        return set_current_exception();
    }
    Py_RETURN_NONE;
}

PyObject *run_failed_at(PyObject *self, PyObject *) {
    try {
        if (run_of(self).failure()) std::rethrow_exception(run_of(self).failure());
    } catch (const NonFinite &error) {
        return Py_BuildValue("(yK)", error.file.c_str(), static_cast<unsigned long long>(error.batch));
    } catch (...) {
    }
    Py_RETURN_NONE;
}

PyObject *run_updates(PyObject *self, PyObject *) { return PyLong_FromUnsignedLongLong(run_of(self).updates()); }

// (examples, batches, skipped, part, (read, parse, forward, backward, update), sums)
PyObject *stats_of(const WorkerProgress &worker) {
    PyObject *sums =
        tuple_of(worker.sums.size(), [&](std::size_t i) { return PyFloat_FromDouble(worker.sums[i].value()); });
    return Py_BuildValue("KKKn(ddddd)N", static_cast<unsigned long long>(worker.examples.load()),
                         static_cast<unsigned long long>(worker.batches.load()),
                         static_cast<unsigned long long>(worker.reader.skipped.load()),
                         static_cast<Py_ssize_t>(worker.reader.part.load()) - 1, worker.reader.reading.value(),
                         worker.reader.parsing.value(), worker.forward.value(), worker.backward.value(),
                         worker.update.value(), sums);
}

PyObject *run_stats(PyObject *self, PyObject *) {
    const Run &run = run_of(self);
    return list_of(static_cast<std::size_t>(run.options().workers),
                   [&](std::size_t i) { return stats_of(run.worker(static_cast<int>(i))); });
}

PyObject *bytes_of(const void *at, std::size_t size) {
    return PyBytes_FromStringAndSize(static_cast<const char *>(at), static_cast<Py_ssize_t>(size));
}

// [lines of each batch as int32, elements of a value as float32, ...], as bytes
PyObject *run_take(PyObject *self, PyObject *number) {
    const long worker = PyLong_AsLong(number);
    if (worker < 0 || worker >= run_of(self).options().workers) {
        return PyErr_Occurred() ? nullptr : set_error(Kind::bounds, "there is no such worker");
    }
    const Recorder::Record record = run_of(self).worker(static_cast<int>(worker)).recorder.take();
    return list_of(1 + record.values.size(), [&](std::size_t i) {
        if (i == 0) return bytes_of(record.lines.data(), record.lines.size() * sizeof(int));
        const std::vector<float> &numbers = record.values[i - 1];
        return bytes_of(numbers.data(), numbers.size() * sizeof(float));
    });
}

PyMethodDef run_methods[] = {
    {"take", run_take, METH_O,
     "take(worker): the worker's records since the last call, as bytes: int32 lines of each batch, float32 "
     "elements of each watched value."},
    {"wait", run_wait, METH_O,
     "wait(seconds): True if all workers have ended by then; returns early when they wait for more batches."},
    {"stop", run_stop, METH_NOARGS, "Ask the workers to end after their current batch."},
    {"pause", run_pause, METH_NOARGS, "Wait until no worker processes a batch, and block new batches until resume()."},
    {"resume", run_resume, METH_NOARGS, "Let the workers continue."},
    {"is_spent", run_is_spent, METH_NOARGS, "True if all allowed batches have ended, and the workers wait for more."},
    {"allow", run_allow, METH_O, "allow(batches): allow a number of further batches; no limit if negative."},
    {"give", run_give, METH_O,
     "give(batches): train on them, if the run is fed; none if they were the last ones. A batch is (part, line from 0 "
     "where it begins, lines, [(ids int32, numbers float32, offsets int32) of each slot])."},
    {"raise_failure", run_raise_failure, METH_NOARGS, "Raise the first failure, if any; call after the end."},
    {"failed_at", run_failed_at, METH_NOARGS, "File and index of the worker's batch, from 0, with non-finite numbers."},
    {"updates", run_updates, METH_NOARGS, "Total number of updates of the parameters, including earlier ones."},
    {"stats", run_stats, METH_NOARGS,
     "A tuple for each worker: examples, batches, skipped lines, part (-1: none), seconds of reading, parsing, "
     "forward, backward and update, sums of fetches."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot run_slots[] = {
    {Py_tp_dealloc, slot(run_dealloc)},
    {Py_tp_new, slot(new_run)},
    {Py_tp_methods, run_methods},
    {Py_tp_doc,
     const_cast<char *>("HogwildRun(plan, parts, workers, train, skip_bad_lines, seed, updates, rate, "
                        "schedule, marks, allowed, is_fed): threads that train; see dpmodule.hogwild.native_engine.")},
    {0, nullptr},
};
PyType_Spec run_spec = {"dpmodule._native.HogwildRun", sizeof(RunObject), 0, Py_TPFLAGS_DEFAULT, run_slots};

}  // namespace
}  // namespace dpmodule::hogwild

int dpmodule::add_hogwild_run(PyObject *module) { return add_type(module, hogwild::run_spec) ? 0 : -1; }
