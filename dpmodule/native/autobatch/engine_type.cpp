// The Python type AutobatchEngine: a graph and its computation, for dpmodule.autobatch.
#include <tuple>

#include "engine_object.hpp"

namespace dpmodule::autobatch {

Builder *builder_of_current = nullptr;

namespace {

void renew(Machine &machine, PyObject *number) {
    const long version = PyLong_AsLong(number);
    if (version == -1 && PyErr_Occurred()) throw PythonError();
    machine.engine.renew();
    machine.parameters.renew();
    if (current.engine == &machine.engine) current.version = static_cast<int>(version);
}

void revert(Machine &machine, PyObject *args) {
    int size, computed;
    check(PyArg_ParseTuple(args, "ii", &size, &computed));
    machine.engine.revert(size, computed);
}

// activate(version): this thread adds to this engine's graph; deactivate(): another engine is active
PyObject *activate(PyObject *self, PyObject *number) {
    const long version = PyLong_AsLong(number);
    if (version == -1 && PyErr_Occurred()) return nullptr;
    Machine &machine = machine_of(self);
    current.open(machine.engine);
    current.serial = machine.serial;
    current.version = static_cast<int>(version);
    builder_of_current = &machine.builder;
    recipes_of_current = &machine.recipes;
    parameters_of_current = &machine.parameters;
    Py_RETURN_NONE;
}

void leave(const Machine &machine) {
    if (current.engine != &machine.engine) return;
    current.close();
    builder_of_current = nullptr;
    recipes_of_current = nullptr;
    parameters_of_current = nullptr;
}

PyObject *deactivate(PyObject *self, PyObject *) {
    leave(machine_of(self));
    Py_RETURN_NONE;
}

PyObject *set_caller(PyObject *self, PyObject *args) {
    PyObject *forward, *backward, *draw, *numbers;
    if (!PyArg_ParseTuple(args, "OOOO!", &forward, &backward, &draw, &PyList_Type, &numbers)) return nullptr;
    machine_of(self).caller.set(forward, backward, draw);
    machine_of(self).recipes.set_numbers(numbers);
    Py_RETURN_NONE;
}

void keep_drawn(Machine &machine, PyObject *) { machine.engine.keep_drawn(); }

PyObject *forget_drawn(PyObject *self, PyObject *) {
    graph_of(self).drawn.clear();
    Py_RETURN_NONE;
}

// (operations of the group from leaves to root, rows, repeated nodes, segment, operands of the first row)
PyObject *described(const Engine &engine, const Plan &plan, const Bucket &bucket, int forward) {
    const Run &run = plan.runs[bucket.run];
    std::vector<int> sigs;
    const Signatures &signatures = engine.graph.signatures;
    const Signature &root = signatures[engine.groups[run.group].sig];
    if (root.op == Op::Compound) {
        for (const Compound::Part &part : signatures.compounds[root.kind].parts) sigs.push_back(part.sig);
    } else {
        for (const Step &step : engine.groups[run.group].steps) {
            if (sigs.empty() || sigs.back() != step.sig) sigs.push_back(step.sig);
        }
    }
    int repeats = 0;
    for (int row = bucket.first; row < bucket.first + bucket.count; row++)
        repeats += plan.instances[run.order[row]].repeats;
    const Instance &instance = plan.instances[run.order[bucket.first]];
    const auto first = plan.outside.begin() + instance.first;
    return Py_BuildValue("(NiiiN)", tuple_of(sigs), bucket.count, repeats, forward,
                         tuple_of(std::vector<int>(first, first + instance.count)));
}

// The executed batches, in order, for explain.
PyObject *batches(Machine &machine, PyObject *) {
    const Engine &engine = machine.engine;
    std::vector<std::tuple<const Plan *, const Bucket *, int>> all;
    int forward = 0;
    for (const Segment &segment : engine.segments()) {
        for (const Bucket &bucket : segment.plan.buckets) all.emplace_back(&segment.plan, &bucket, forward);
        forward++;
    }
    return list_of(all.size(), [&](std::size_t i) {
        const auto &[plan, bucket, number] = all[i];
        return described(engine, *plan, *bucket, number);
    });
}

PyObject *describe(Machine &machine, PyObject *number) {
    const long sig = PyLong_AsLong(number);
    Graph &graph = machine.engine.graph;
    if (sig < 0 || sig >= graph.signatures.size()) refuse(PyExc_IndexError, "no such signature");
    const Signature &s = graph.signatures[static_cast<int>(sig)];
    const Shape &found = graph.signatures.shape(s.shape);
    return Py_BuildValue("(iiNiN)", static_cast<int>(s.op), s.kind, tuple_of(found.dims), found.batch,
                         tuple_of(s.params));
}

PyObject *times(PyObject *self, PyObject *) {
    const Engine::Times &t = machine_of(self).engine.times();
    return Py_BuildValue("(ddd)", t.schedule, t.forward, t.backward);
}

PyObject *engine_new(PyTypeObject *type, PyObject *, PyObject *) {
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    try {
        reinterpret_cast<EngineObject *>(self)->machine = new Machine();
    } catch (const std::bad_alloc &) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return self;
}

int engine_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Machine *machine = reinterpret_cast<EngineObject *>(self)->machine;
    if (!machine) return 0;
    if (const int stopped = machine->caller.traverse(visit, arg)) return stopped;
    if (const int stopped = machine->recipes.traverse(visit, arg)) return stopped;
    return machine->parameters.traverse(visit, arg);
}

int engine_clear(PyObject *self) {
    Machine *machine = reinterpret_cast<EngineObject *>(self)->machine;
    if (machine) {
        machine->caller.clear();
        machine->recipes.clear();
        machine->parameters.clear();
    }
    return 0;
}

void engine_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    if (Machine *machine = reinterpret_cast<EngineObject *>(self)->machine) {
        leave(*machine);
        machine->caller.clear();
        machine->recipes.clear();
        machine->parameters.clear();
        delete machine;
    }
    free_object(self);
}

PyObject *get_size(PyObject *self, void *) { return PyLong_FromLong(graph_of(self).size()); }
PyObject *get_serial(PyObject *self, void *) { return PyLong_FromLong(machine_of(self).serial); }
PyObject *get_computed(PyObject *self, void *) { return PyLong_FromLong(machine_of(self).engine.computed()); }
PyObject *get_skips(PyObject *self, void *) { return PyBool_FromLong(graph_of(self).has_skipped()); }
PyObject *get_busy(PyObject *self, void *) { return PyBool_FromLong(machine_of(self).engine.busy()); }
PyObject *get_signatures(PyObject *self, void *) { return PyLong_FromLong(graph_of(self).signatures.size()); }
PyObject *get_bytes(PyObject *self, void *) { return PyLong_FromSize_t(machine_of(self).engine.bytes()); }
PyObject *get_batched(PyObject *self, void *) { return PyBool_FromLong(machine_of(self).engine.batched); }
PyObject *get_fuses(PyObject *self, void *) { return PyBool_FromLong(machine_of(self).engine.fuses); }
template <bool Engine::*flag>
int set_flag(PyObject *self, PyObject *value, void *) {
    const int truth = value ? PyObject_IsTrue(value) : -1;
    if (truth < 0) return -1;
    machine_of(self).engine.*flag = truth;
    return 0;
}

PyGetSetDef engine_attributes[] = {
    {"size", get_size, nullptr, "the number of nodes", nullptr},
    {"serial", get_serial, nullptr, "number of the engine", nullptr},
    {"computed", get_computed, nullptr, "the number of computed nodes", nullptr},
    {"skips", get_skips, nullptr, "True if nodes have failed", nullptr},
    {"busy", get_busy, nullptr, "True while the engine is computing", nullptr},
    {"signatures", get_signatures, nullptr, "the number of known signatures", nullptr},
    {"bytes", get_bytes, nullptr, "memory held for values and gradients", nullptr},
    {"batched", get_batched, set_flag<&Engine::batched>, "True if nodes are batched", nullptr},
    {"fuses", get_fuses, set_flag<&Engine::fuses>, "True if operations are fused", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

const PyMethodDef graph_methods[] = {
    {"renew", call<renew>, METH_O, "renew(version): discard all nodes"},
    {"revert", call<revert>, METH_VARARGS, "revert(size, computed): remove later nodes"},
    {"activate", activate, METH_O, "activate(version): fast functions add to this graph, in this thread"},
    {"deactivate", deactivate, METH_NOARGS, "deactivate(): fast functions no longer add to it"},
    {"set_caller", set_caller, METH_VARARGS,
     "set_caller(forward, backward, draw, numbers): functions for operations without a kernel and for random numbers, "
     "and the "
     "list of node arguments"},
    {"keep_drawn", call<keep_drawn>, METH_NOARGS, "keep_drawn(): recomputed nodes reuse their random numbers"},
    {"forget_drawn", forget_drawn, METH_NOARGS, "forget_drawn(): recomputed nodes draw new random numbers"},
    {"batches", call<batches>, METH_NOARGS,
     "batches() -> [(signatures, rows, repeats, segment, operands of the first row)] in order of computation"},
    {"describe", call<describe>, METH_O, "describe(signature) -> (op, kind, dims, batch, params)"},
    {"times", times, METH_NOARGS, "times() -> seconds of scheduling, forward, backward since renew"},
    {nullptr, nullptr, 0, nullptr}};

// All method tables as one, which lives as long as the type.
PyMethodDef *all_methods() {
    static std::vector<PyMethodDef> all;
    if (all.empty()) {
        for (const PyMethodDef *table : {graph_methods, parameter_methods, node_methods, value_methods}) {
            for (; table->ml_name; table++) all.push_back(*table);
        }
        all.push_back({nullptr, nullptr, 0, nullptr});
    }
    return all.data();
}

PyType_Slot engine_slots[] = {
    {Py_tp_doc, const_cast<char *>("A graph of small operations and its batched computation.")},
    {Py_tp_new, slot(engine_new)},
    {Py_tp_dealloc, slot(engine_dealloc)},
    {Py_tp_traverse, slot(engine_traverse)},
    {Py_tp_clear, slot(engine_clear)},
    {Py_tp_methods, all_methods()},
    {Py_tp_getset, engine_attributes},
    {0, nullptr}};

PyType_Spec engine_spec = {"dpmodule._native.AutobatchEngine", sizeof(EngineObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, engine_slots};

// False: a Python error is set.
template <std::size_t count>
bool add_numbers(PyObject *all, const char *what, const char *const (&names)[count]) {
    PyObject *found = PyDict_New();
    bool fits = found;
    for (std::size_t i = 0; fits && i < count; i++) {
        PyObject *number = PyLong_FromSize_t(i);
        fits = number && PyDict_SetItemString(found, names[i], number) == 0;
        Py_XDECREF(number);
    }
    fits = fits && PyDict_SetItemString(all, what, found) == 0;
    Py_XDECREF(found);
    return fits;
}

// AUTOBATCH_NUMBERS of the module: names and numbers of operations and kernels.
int add_all_numbers(PyObject *module) {
    PyObject *all = PyDict_New();
    const bool fits = all && add_numbers(all, "operation", names_of_Op) && add_numbers(all, "unary", names_of_Unary) &&
                      add_numbers(all, "binary", names_of_Binary) &&
                      add_numbers(all, "reduction", names_of_Reduction) &&
                      add_numbers(all, "arrangement", names_of_Arrangement) &&
                      add_numbers(all, "draw", names_of_Draw) && add_numbers(all, "convolution", names_of_Convolution);
    const int done = fits ? PyModule_AddObjectRef(module, "AUTOBATCH_NUMBERS", all) : -1;
    Py_XDECREF(all);
    return done;
}

}  // namespace
}  // namespace dpmodule::autobatch

int dpmodule::add_autobatch_engine(PyObject *module) {
    return add_type(module, autobatch::engine_spec) ? autobatch::add_all_numbers(module) : -1;
}
