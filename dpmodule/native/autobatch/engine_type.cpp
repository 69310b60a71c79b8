// The Python type AutobatchEngine: a graph and its computation, for dpmodule.autobatch.
#include <algorithm>
#include <memory>

#include "python_builder.hpp"
#include "python_caller.hpp"

namespace dpmodule::autobatch {

Builder *builder_of_current = nullptr;

namespace {

// All that one engine owns; the object in Python holds it.
struct Machine {
    Machine() : engine(&caller), builder(engine.graph) {
        static int serials = 0;
        serial = ++serials;
    }
    PythonCaller caller;
    Engine engine;
    Builder builder;
    int serial;
};

struct EngineObject {
    PyObject_HEAD
    Machine *machine;
};

Machine &machine_of(PyObject *self) { return *reinterpret_cast<EngineObject *>(self)->machine; }
Graph &graph_of(PyObject *self) { return machine_of(self).engine.graph; }

[[noreturn]] void refuse(PyObject *kind, const char *text) {
    PyErr_SetString(kind, text);
    throw PythonError();
}

void check(int ok) {
    if (!ok) throw PythonError();
}

int checked_node(PyObject *self, PyObject *number) {
    const long node = PyLong_AsLong(number);
    if (node == -1 && PyErr_Occurred()) throw PythonError();
    if (node < 0 || node >= graph_of(self).size()) refuse(PyExc_IndexError, "no such node in the graph under construction");
    return static_cast<int>(node);
}

std::vector<int> integers(PyObject *sequence) {
    PyObject *fast = PySequence_Fast(sequence, "a sequence of integers is needed");
    if (!fast) throw PythonError();
    std::vector<int> found;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) found.push_back(static_cast<int>(PyLong_AsLong(PySequence_Fast_GET_ITEM(fast, i))));
    Py_DECREF(fast);
    if (PyErr_Occurred()) throw PythonError();
    return found;
}

PyObject *tuple_of(const std::vector<int> &numbers) {
    PyObject *made = PyTuple_New(static_cast<Py_ssize_t>(numbers.size()));
    for (std::size_t i = 0; made && i < numbers.size(); i++) {
        PyObject *number = PyLong_FromLong(numbers[i]);
        if (!number) Py_CLEAR(made);
        else PyTuple_SET_ITEM(made, static_cast<Py_ssize_t>(i), number);
    }
    return made;
}

float *pointer(unsigned long long address) { return reinterpret_cast<float *>(static_cast<std::uintptr_t>(address)); }

// ---- parameters and tables ----

PyObject *add_parameter(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *dims;
        check(PyArg_ParseTuple(args, "O", &dims));
        Graph &graph = graph_of(self);
        const std::vector<int> d = integers(dims);
        Param p;
        p.rows = d.empty() ? 1 : d[0];
        p.cols = 1;
        for (std::size_t i = 1; i < d.size(); i++) p.cols *= d[i];
        Signature s;
        s.op = Op::Param;
        s.shape = graph.signatures.add_shape(d);
        s.params = {static_cast<int>(graph.params.size())};
        p.sig = graph.signatures.add(s);
        graph.params.push_back(p);
        return PyLong_FromSize_t(graph.params.size() - 1);
    });
}

PyObject *set_parameter(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int index;
        unsigned long long value, grad;
        check(PyArg_ParseTuple(args, "iKK", &index, &value, &grad));
        Graph &graph = graph_of(self);
        if (index < 0 || index >= static_cast<int>(graph.params.size())) refuse(PyExc_IndexError, "no such parameter");
        Param &p = graph.params[index];
        if (p.value != pointer(value)) machine_of(self).engine.parameters_changed();
        p.value = pointer(value);
        p.grad = pointer(grad);
        if (p.round == graph.round && p.node >= 0 && p.node < static_cast<int>(graph.grad.size())) graph.grad[p.node] = p.grad;
        return Py_NewRef(Py_None);
    });
}

PyObject *add_table(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int rows;
        PyObject *dims;
        check(PyArg_ParseTuple(args, "iO", &rows, &dims));
        Graph &graph = graph_of(self);
        Signature s;
        s.op = Op::Lookup;
        s.shape = graph.signatures.add_shape(integers(dims));
        s.params = {static_cast<int>(graph.tables.size())};
        const int sig = graph.signatures.add(s);
        graph.tables.push_back(std::make_unique<Table>(nullptr, rows, graph.signatures[sig].width));
        graph.tables.back()->sig = sig;
        return PyLong_FromSize_t(graph.tables.size() - 1);
    });
}

PyObject *set_table(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int index;
        unsigned long long value, grad;
        check(PyArg_ParseTuple(args, "iKK", &index, &value, &grad));
        Graph &graph = graph_of(self);
        if (index < 0 || index >= static_cast<int>(graph.tables.size())) refuse(PyExc_IndexError, "no such table");
        graph.tables[index]->value = pointer(value);
        graph.tables[index]->grads = pointer(grad);
        return Py_NewRef(Py_None);
    });
}

PyObject *touched(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const long index = PyLong_AsLong(number);
        Graph &graph = graph_of(self);
        if (index < 0 || index >= static_cast<long>(graph.tables.size())) refuse(PyExc_IndexError, "no such table");
        const std::vector<int> rows = graph.tables[index]->take_touched();
        std::vector<std::int64_t> wide(rows.begin(), rows.end());
        return PyByteArray_FromStringAndSize(reinterpret_cast<const char *>(wide.data()), static_cast<Py_ssize_t>(wide.size() * 8));
    });
}

PyObject *used(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * {
        const Graph &graph = graph_of(self);
        std::vector<int> params, tables;
        for (std::size_t i = 0; i < graph.params.size(); i++) {
            if (graph.params[i].round == graph.round) params.push_back(static_cast<int>(i));
        }
        for (std::size_t i = 0; i < graph.tables.size(); i++) {
            if (graph.tables[i]->used) tables.push_back(static_cast<int>(i));
        }
        PyObject *a = tuple_of(params), *b = a ? tuple_of(tables) : nullptr;
        if (!b) {
            Py_XDECREF(a);
            return nullptr;
        }
        return Py_BuildValue("(NN)", a, b);
    });
}

PyObject *parameters_changed(PyObject *self, PyObject *) {
    machine_of(self).engine.parameters_changed();
    Py_RETURN_NONE;
}

// ---- nodes ----

PyObject *shape(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *dims;
        int batch = 1;
        check(PyArg_ParseTuple(args, "O|i", &dims, &batch));
        return PyLong_FromLong(graph_of(self).signatures.add_shape(integers(dims), batch));
    });
}

PyObject *input_signature(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int found;
        check(PyArg_ParseTuple(args, "i", &found));
        Signature s;
        s.op = Op::Input;
        s.shape = found;
        return PyLong_FromLong(graph_of(self).signatures.add(s));
    });
}

// `key`: numbers that keep batches apart; `nargs` -1: any number of operands of the one width given.
PyObject *call_signature(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int kind, found, further, nargs, constant;
        PyObject *widths, *key;
        check(PyArg_ParseTuple(args, "iiOiiOp", &kind, &found, &widths, &further, &nargs, &key, &constant));
        Signature s;
        s.op = Op::Call;
        s.kind = kind;
        s.shape = found;
        s.widths = integers(widths);
        s.params = integers(key);
        s.nargs = nargs;
        s.further = further;
        s.attr = constant ? 1.0f : 0.0f;
        if (nargs >= 0 ? static_cast<std::size_t>(nargs) != s.widths.size() : s.widths.size() != 1) refuse(PyExc_ValueError, "nargs and widths differ");
        return PyLong_FromLong(graph_of(self).signatures.add(s));
    });
}

PyObject *view_signature(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int found, width;
        check(PyArg_ParseTuple(args, "ii", &found, &width));
        Signature s;
        s.op = Op::View;
        s.shape = found;
        s.nargs = 1;
        s.widths = {width};
        return PyLong_FromLong(graph_of(self).signatures.add(s));
    });
}

PyObject *append(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int sig, aux = 0;
        PyObject *nodes;
        check(PyArg_ParseTuple(args, "iO|i", &sig, &nodes, &aux));
        Graph &graph = graph_of(self);
        const std::vector<int> ids = integers(nodes);
        if (sig < 0 || sig >= graph.signatures.size()) refuse(PyExc_IndexError, "no such signature");
        for (int id : ids) {
            if (id < 0 || id >= graph.size()) refuse(PyExc_IndexError, "no such node in the graph under construction");
        }
        return PyLong_FromLong(graph.add(sig, ids.data(), static_cast<int>(ids.size()), aux));
    });
}

PyObject *input(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int sig;
        Py_buffer data;
        check(PyArg_ParseTuple(args, "iy*", &sig, &data));
        Graph &graph = graph_of(self);
        const std::size_t bytes = sizeof(float) * graph.signatures[sig].width;
        const bool fits = static_cast<std::size_t>(data.len) == bytes;
        float *at = fits ? graph.inputs.take(graph.signatures[sig].width) : nullptr;
        if (fits) std::copy_n(static_cast<const float *>(data.buf), graph.signatures[sig].width, at);
        PyBuffer_Release(&data);
        if (!fits) refuse(PyExc_ValueError, "the data and the shape differ in size");
        const int node = graph.add(sig, nullptr, 0);
        graph.value.resize(node + 1, nullptr);
        graph.grad.resize(node + 1, nullptr);
        graph.value[node] = at;
        return PyLong_FromLong(node);
    });
}

PyObject *set_input(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *number;
        Py_buffer data;
        check(PyArg_ParseTuple(args, "Oy*", &number, &data));
        int node = -1;
        try {
            node = checked_node(self, number);
        } catch (const PythonError &) {
            PyBuffer_Release(&data);
            throw;
        }
        const Graph &graph = graph_of(self);
        const Signature &s = graph.signature(node);
        const bool fits = s.op == Op::Input && static_cast<std::size_t>(data.len) == sizeof(float) * s.width;
        if (fits) std::copy_n(static_cast<const float *>(data.buf), s.width, graph.value[node]);
        PyBuffer_Release(&data);
        if (!fits) refuse(PyExc_ValueError, "no input of this size");
        return Py_NewRef(Py_None);
    });
}

PyObject *parameter(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const long index = PyLong_AsLong(number);
        Graph &graph = graph_of(self);
        if (index < 0 || index >= static_cast<long>(graph.params.size())) refuse(PyExc_IndexError, "no such parameter");
        return PyLong_FromLong(graph.param_node(static_cast<int>(index)));
    });
}

PyObject *lookup(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int table, row;
        check(PyArg_ParseTuple(args, "ii", &table, &row));
        if (table < 0 || table >= static_cast<int>(graph_of(self).tables.size())) refuse(PyExc_IndexError, "no such table");
        const int node = machine_of(self).builder.lookup(table, row);
        if (node < 0) refuse(PyExc_IndexError, "no such row in the table");
        return PyLong_FromLong(node);
    });
}

// kernel(name, nodes, number=0.0, integer=0) -> node or -1: an operation by name, for the way in Python
PyObject *kernel(PyObject *self, PyObject *args);

// ---- values and gradients ----

PyObject *bytes_of(const float *at, int count) {
    return PyByteArray_FromStringAndSize(reinterpret_cast<const char *>(at), static_cast<Py_ssize_t>(sizeof(float)) * count);
}

PyObject *forward(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * { return PyLong_FromLong(machine_of(self).engine.forward(checked_node(self, number))); });
}

PyObject *value(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = machine_of(self).engine.forward(checked_node(self, number));
        const Graph &graph = graph_of(self);
        return bytes_of(graph.value[node], graph.signature(node).width);
    });
}

PyObject *backward(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *number;
        int full = 0;
        check(PyArg_ParseTuple(args, "O|p", &number, &full));
        machine_of(self).engine.backward(checked_node(self, number), full);
        return Py_NewRef(Py_None);
    });
}

PyObject *gradient(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = checked_node(self, number);
        const Graph &graph = graph_of(self);
        if (graph.is_fused(node) || node >= static_cast<int>(graph.grad.size()) || !graph.grad[node]) return Py_NewRef(Py_None);
        return bytes_of(graph.grad[node], graph.signature(node).width);
    });
}

// False: fused away, or part of another node's.
PyObject *keeps_gradient(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = checked_node(self, number);
        const Graph &graph = graph_of(self);
        return PyBool_FromLong(!graph.is_fused(node) && graph.signature(node).op != Op::View);
    });
}

PyObject *lookup_of(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = checked_node(self, number);
        const Signature &s = graph_of(self).signature(node);
        if (s.op != Op::Lookup) return Py_NewRef(Py_None);
        return Py_BuildValue("(ii)", s.params[0], graph_of(self).nodes[node].aux);
    });
}

PyObject *dim(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const Graph &graph = graph_of(self);
        const Shape &found = graph.signatures.shape(graph.signature(checked_node(self, number)).shape);
        PyObject *dims = tuple_of(found.dims);
        return dims ? Py_BuildValue("(Ni)", dims, found.batch) : nullptr;
    });
}

PyObject *shape_of(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * { return PyLong_FromLong(graph_of(self).signature(checked_node(self, number)).shape); });
}

// The number of the parameter that a node is, or -1.
PyObject *parameter_of(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const Signature &s = graph_of(self).signature(checked_node(self, number));
        return PyLong_FromLong(s.op == Op::Param ? s.params[0] : -1);
    });
}

PyObject *renew(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const long version = PyLong_AsLong(number);
        if (version == -1 && PyErr_Occurred()) throw PythonError();
        Machine &machine = machine_of(self);
        machine.engine.renew();
        if (current.engine == &machine.engine) current.version = static_cast<int>(version);
        return Py_NewRef(Py_None);
    });
}

PyObject *revert(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int size, computed;
        check(PyArg_ParseTuple(args, "ii", &size, &computed));
        machine_of(self).engine.revert(size, computed);
        return Py_NewRef(Py_None);
    });
}

// activate(version): the graph under construction is this engine's; deactivate(): it is none of ours
PyObject *activate(PyObject *self, PyObject *number) {
    const long version = PyLong_AsLong(number);
    if (version == -1 && PyErr_Occurred()) return nullptr;
    Machine &machine = machine_of(self);
    current.engine = &machine.engine;
    current.serial = machine.serial;
    current.version = static_cast<int>(version);
    builder_of_current = &machine.builder;
    Py_RETURN_NONE;
}

void leave(const Machine &machine) {
    if (current.engine != &machine.engine) return;
    current.engine = nullptr;
    builder_of_current = nullptr;
}

PyObject *deactivate(PyObject *self, PyObject *) {
    leave(machine_of(self));
    Py_RETURN_NONE;
}

PyObject *set_caller(PyObject *self, PyObject *args) {
    PyObject *forward, *backward;
    if (!PyArg_ParseTuple(args, "OO", &forward, &backward)) return nullptr;
    machine_of(self).caller.set(forward, backward);
    Py_RETURN_NONE;
}

// What was run: a list of (operations of the group's root to leaves, rows) in order, for explain.
PyObject *batches(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * {
        Engine &engine = machine_of(self).engine;
        PyObject *list = PyList_New(0);
        if (!list) return nullptr;
        for (const Segment &segment : engine.segments()) {
            for (const Bucket &bucket : segment.plan.buckets) {
                const Group &group = engine.groups[segment.plan.runs[bucket.run].group];
                std::vector<int> sigs;
                for (const Step &step : group.steps) {
                    if (sigs.empty() || sigs.back() != step.sig) sigs.push_back(step.sig);
                }
                PyObject *steps = tuple_of(sigs);
                PyObject *item = steps ? Py_BuildValue("(Niii)", steps, bucket.count, bucket.level, bucket.run) : nullptr;
                if (!item || PyList_Append(list, item) < 0) {
                    Py_XDECREF(item);
                    Py_DECREF(list);
                    return nullptr;
                }
                Py_DECREF(item);
            }
        }
        return list;
    });
}

PyObject *describe(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const long sig = PyLong_AsLong(number);
        Graph &graph = graph_of(self);
        if (sig < 0 || sig >= graph.signatures.size()) refuse(PyExc_IndexError, "no such signature");
        const Signature &s = graph.signatures[static_cast<int>(sig)];
        const Shape &found = graph.signatures.shape(s.shape);
        PyObject *dims = tuple_of(found.dims), *params = dims ? tuple_of(s.params) : nullptr;
        if (!params) return nullptr;
        return Py_BuildValue("(iiNiN)", static_cast<int>(s.op), s.kind, dims, found.batch, params);
    });
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
    return machine ? machine->caller.traverse(visit, arg) : 0;
}

int engine_clear(PyObject *self) {
    Machine *machine = reinterpret_cast<EngineObject *>(self)->machine;
    if (machine) machine->caller.clear();
    return 0;
}

void engine_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (Machine *machine = reinterpret_cast<EngineObject *>(self)->machine) {
        leave(*machine);
        machine->caller.clear();
        delete machine;
    }
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *kernel(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int op, kind, integer = 0;
        double number = 0;
        PyObject *nodes;
        check(PyArg_ParseTuple(args, "iiO|di", &op, &kind, &nodes, &number, &integer));
        Builder &build = machine_of(self).builder;
        const std::vector<int> ids = integers(nodes);
        for (int id : ids) {
            if (id >= graph_of(self).size() || (id < 0 && static_cast<Op>(op) != Op::Lstm && static_cast<Op>(op) != Op::Affine)) refuse(PyExc_IndexError, "no such node in the graph under construction");
        }
        const int count = static_cast<int>(ids.size());
        const auto need = [&](bool enough) {
            if (!enough) refuse(PyExc_ValueError, "the wrong number of operands");
        };
        need(count > 0);
        int made = -1;
        switch (static_cast<Op>(op)) {
            case Op::Unary: made = build.unary(static_cast<Unary>(kind), static_cast<float>(number), ids[0]); break;
            case Op::Binary: need(count == 2); made = build.binary(static_cast<Binary>(kind), ids[0], ids[1]); break;
            case Op::Affine: need(count % 2); made = build.affine(ids[0], ids.data() + 1, count / 2); break;
            case Op::Concat: made = build.concat(ids.data(), count); break;
            case Op::Sum: made = build.sum(ids.data(), count); break;
            case Op::Lstm: need(count == 6); made = build.lstm(ids[0], ids[1], ids[2], ids[3], ids[4], ids[5], static_cast<float>(number)); break;
            case Op::PickNegLogSoftmax: made = build.loss(ids[0], integer); break;
            case Op::Softmax:
            case Op::LogSoftmax: made = build.softmax(static_cast<Op>(op), ids[0]); break;
            case Op::SumElems:
            case Op::SquaredNorm: made = build.reduce(static_cast<Op>(op), ids[0]); break;
            case Op::Dot: need(count == 2); made = build.reduce(Op::Dot, ids[0], ids[1]); break;
            case Op::View: made = build.range(ids[0], integer, integer + kind); break;
            default: refuse(PyExc_ValueError, "no such kernel");
        }
        return PyLong_FromLong(made);
    });
}

PyObject *get_size(PyObject *self, void *) { return PyLong_FromLong(graph_of(self).size()); }
PyObject *get_serial(PyObject *self, void *) { return PyLong_FromLong(machine_of(self).serial); }
PyObject *get_computed(PyObject *self, void *) { return PyLong_FromLong(machine_of(self).engine.computed()); }
PyObject *get_bytes(PyObject *self, void *) { return PyLong_FromSize_t(machine_of(self).engine.bytes()); }
PyObject *get_batched(PyObject *self, void *) { return PyBool_FromLong(machine_of(self).engine.batched); }
PyObject *get_fuses(PyObject *self, void *) { return PyBool_FromLong(machine_of(self).engine.fuses); }
int set_fuses(PyObject *self, PyObject *value, void *) {
    const int truth = value ? PyObject_IsTrue(value) : -1;
    if (truth < 0) return -1;
    machine_of(self).engine.fuses = truth;
    return 0;
}
int set_batched(PyObject *self, PyObject *value, void *) {
    const int truth = value ? PyObject_IsTrue(value) : -1;
    if (truth < 0) return -1;
    machine_of(self).engine.batched = truth;
    return 0;
}

PyGetSetDef engine_attributes[] = {
    {"size", get_size, nullptr, "the number of nodes", nullptr},
    {"serial", get_serial, nullptr, "tells engines apart", nullptr},
    {"computed", get_computed, nullptr, "how many of them have been computed", nullptr},
    {"bytes", get_bytes, nullptr, "memory held for values and gradients", nullptr},
    {"batched", get_batched, set_batched, "whether nodes are computed together", nullptr},
    {"fuses", get_fuses, set_fuses, "whether operations that stand together become one", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef engine_methods[] = {
    {"add_parameter", add_parameter, METH_VARARGS, "add_parameter(dims) -> its number"},
    {"set_parameter", set_parameter, METH_VARARGS, "set_parameter(number, value address, gradient address or 0)"},
    {"add_table", add_table, METH_VARARGS, "add_table(rows, dims of one row) -> its number"},
    {"set_table", set_table, METH_VARARGS, "set_table(number, value address, gradient address or 0)"},
    {"touched", touched, METH_O, "touched(table) -> the rows (int64) that have had gradients since the last call"},
    {"used", used, METH_NOARGS, "used() -> numbers of the parameters and of the tables in this graph"},
    {"parameters_changed", parameters_changed, METH_NOARGS, "parameters_changed(): their values are not those of before"},
    {"shape", shape, METH_VARARGS, "shape(dims, batch=1) -> its number"},
    {"input_signature", input_signature, METH_VARARGS, "input_signature(shape) -> its number"},
    {"call_signature", call_signature, METH_VARARGS, "call_signature(kind, shape, widths, further, nargs, key, constant) -> its number"},
    {"view_signature", view_signature, METH_VARARGS, "view_signature(shape, width of the operand) -> its number"},
    {"append", append, METH_VARARGS, "append(signature, nodes, aux=0) -> node"},
    {"input", input, METH_VARARGS, "input(signature, float32 data) -> node"},
    {"set_input", set_input, METH_VARARGS, "set_input(node, float32 data): replace the value; revert what was computed"},
    {"parameter", parameter, METH_O, "parameter(number) -> node"},
    {"lookup", lookup, METH_VARARGS, "lookup(table, row) -> node"},
    {"kernel", kernel, METH_VARARGS, "kernel(op, kind, nodes, number=0.0, integer=0) -> node, -1: no kernel takes these"},
    {"forward", forward, METH_O, "forward(node) -> the node that holds its value"},
    {"value", value, METH_O, "value(node) -> a copy of its float32 numbers"},
    {"backward", backward, METH_VARARGS, "backward(node, full=False)"},
    {"gradient", gradient, METH_O, "gradient(node) -> a copy of its float32 numbers, None: not kept"},
    {"keeps_gradient", keeps_gradient, METH_O, "keeps_gradient(node) -> False: fused away, or part of another node's"},
    {"lookup_of", lookup_of, METH_O, "lookup_of(node) -> (table, row) that it looks up, or None"},
    {"dim", dim, METH_O, "dim(node) -> (dims, batch)"},
    {"shape_of", shape_of, METH_O, "shape_of(node) -> number of its shape"},
    {"parameter_of", parameter_of, METH_O, "parameter_of(node) -> number of the parameter it is, or -1"},
    {"renew", renew, METH_O, "renew(version): throw all nodes away"},
    {"revert", revert, METH_VARARGS, "revert(size, computed): forget later nodes"},
    {"activate", activate, METH_O, "activate(version): fast functions add to this graph"},
    {"deactivate", deactivate, METH_NOARGS, "deactivate(): they no longer do"},
    {"set_caller", set_caller, METH_VARARGS, "set_caller(forward, backward): who runs operations without a kernel"},
    {"batches", batches, METH_NOARGS, "batches() -> [(signatures, rows, level, run)] in order of computation"},
    {"describe", describe, METH_O, "describe(signature) -> (op, kind, dims, batch, params)"},
    {"times", times, METH_NOARGS, "times() -> seconds of scheduling, forward, backward since renew"},
    {nullptr, nullptr, 0, nullptr}};

template <class F> void *slot(F function) { return reinterpret_cast<void *>(function); }

PyType_Slot engine_slots[] = {
    {Py_tp_doc, const_cast<char *>("A graph of small operations and its batched computation.")},
    {Py_tp_new, slot(engine_new)},
    {Py_tp_dealloc, slot(engine_dealloc)},
    {Py_tp_traverse, slot(engine_traverse)},
    {Py_tp_clear, slot(engine_clear)},
    {Py_tp_methods, engine_methods},
    {Py_tp_getset, engine_attributes},
    {0, nullptr}};

PyType_Spec engine_spec = {"dpmodule._native.AutobatchEngine", sizeof(EngineObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, engine_slots};

}  // namespace
}  // namespace dpmodule::autobatch

namespace dpmodule {

int add_autobatch_engine(PyObject *module) {
    PyObject *type = PyType_FromSpec(&autobatch::engine_spec);
    if (!type) return -1;
    const int done = PyModule_AddObjectRef(module, "AutobatchEngine", type);
    Py_DECREF(type);
    return done;
}

}  // namespace dpmodule
