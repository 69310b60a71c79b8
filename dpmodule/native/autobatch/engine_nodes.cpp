// Methods of AutobatchEngine that add nodes.
#include <algorithm>

#include "engine_object.hpp"

namespace dpmodule::autobatch {
namespace {

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
        if (nargs >= 0 ? static_cast<std::size_t>(nargs) != s.widths.size() : s.widths.size() != 1)
            refuse(PyExc_ValueError, "nargs and widths differ");
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

// Copies an array of floats or doubles.  False: it has another number of elements.
bool copy_numbers(PyObject *array, int count, float *to) {
    Py_buffer data;
    check(PyObject_GetBuffer(array, &data, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0);
    const auto size = static_cast<std::size_t>(data.len);
    const bool doubles = data.itemsize == sizeof(double),
               fits = size == static_cast<std::size_t>(count) * (doubles ? sizeof(double) : sizeof(float));
    if (fits && doubles)
        std::transform(static_cast<const double *>(data.buf), static_cast<const double *>(data.buf) + count, to,
                       [](double x) { return static_cast<float>(x); });
    else if (fits) std::copy_n(static_cast<const float *>(data.buf), count, to);
    PyBuffer_Release(&data);
    return fits;
}

PyObject *input(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int sig;
        PyObject *array;
        check(PyArg_ParseTuple(args, "iO", &sig, &array));
        Graph &graph = graph_of(self);
        const int width = graph.signatures[sig].width;
        float *at = graph.inputs.take(width);
        if (!copy_numbers(array, width, at)) refuse(PyExc_ValueError, "the data and the shape differ in size");
        return PyLong_FromLong(graph.add_input(sig, at));
    });
}

PyObject *set_input(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *number, *array;
        check(PyArg_ParseTuple(args, "OO", &number, &array));
        const int node = checked_node(self, number);
        const Graph &graph = graph_of(self);
        const Signature &s = graph.signature(node);
        if (s.op != Op::Input || !copy_numbers(array, s.width, graph.value[node]))
            refuse(PyExc_ValueError, "no input of this size");
        return Py_NewRef(Py_None);
    });
}

PyObject *lookup(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int table, row;
        check(PyArg_ParseTuple(args, "ii", &table, &row));
        if (table < 0 || table >= static_cast<int>(graph_of(self).tables.size()))
            refuse(PyExc_IndexError, "no such table");
        const int node = machine_of(self).builder.lookup(table, row);
        if (node < 0) refuse(PyExc_IndexError, "no such row in the table");
        machine_of(self).parameters.hold_table(table);
        return PyLong_FromLong(node);
    });
}

PyObject *random(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int kind, found;
        double first, second;
        check(PyArg_ParseTuple(args, "iidd", &kind, &found, &first, &second));
        return PyLong_FromLong(machine_of(self).builder.random(static_cast<Draw>(kind), found, first, second));
    });
}

PyObject *slide(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int op, is_valid;
        Builder::Window window;
        PyObject *nodes;
        check(PyArg_ParseTuple(args, "iOiiiip", &op, &nodes, &window.tall, &window.wide, &window.down, &window.right,
                               &is_valid));
        window.is_valid = is_valid;
        const std::vector<int> ids = integers(nodes);
        const bool convolves = static_cast<Op>(op) == Op::Convolve;
        if (convolves ? ids.size() < 2 || ids.size() > 3 : ids.size() != 1)
            refuse(PyExc_ValueError, "the wrong number of operands");
        if (std::min({window.tall, window.wide, window.down, window.right}) < 1)
            refuse(PyExc_ValueError, "sizes and steps of windows are positive");
        for (int id : ids) {
            if (id < 0 || id >= graph_of(self).size())
                refuse(PyExc_IndexError, "no such node in the graph under construction");
        }
        return PyLong_FromLong(machine_of(self).builder.slide(convolves ? Op::Convolve : Op::Pool, ids.data(),
                                                              static_cast<int>(ids.size()), window));
    });
}

PyObject *select(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *node, *rows, *columns;
        check(PyArg_ParseTuple(args, "OOO", &node, &rows, &columns));
        const int x = checked_node(self, node);
        return PyLong_FromLong(machine_of(self).builder.select(x, integers(rows), integers(columns)));
    });
}

PyObject *strided(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *node, *given[3];
        check(PyArg_ParseTuple(args, "OOOO", &node, &given[0], &given[1], &given[2]));
        const int x = checked_node(self, node);
        return PyLong_FromLong(
            machine_of(self).builder.strided(x, integers(given[0]), integers(given[1]), integers(given[2])));
    });
}

PyObject *arrange(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int kind, first, shape;
        PyObject *node, *given_sizes, *given_steps;
        check(PyArg_ParseTuple(args, "iOiOOi", &kind, &node, &first, &given_sizes, &given_steps, &shape));
        const int x = checked_node(self, node);
        const std::vector<int> sizes = integers(given_sizes), steps = integers(given_steps);
        if (sizes.size() != steps.size() || (!sizes.empty() && *std::min_element(sizes.begin(), sizes.end()) < 1))
            refuse(PyExc_ValueError, "loops are sizes from 1 on and as many steps");
        std::vector<Builder::Loop> loops;
        for (std::size_t i = 0; i < sizes.size(); i++) loops.push_back({sizes[i], steps[i]});
        return PyLong_FromLong(
            machine_of(self).builder.arranged(static_cast<Arrangement>(kind), x, first, loops, shape));
    });
}

PyObject *kernel_with_labels(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int op, axis = -1;
        double number;
        PyObject *node, *given;
        check(PyArg_ParseTuple(args, "iOdO|i", &op, &node, &number, &given, &axis));
        const int x = checked_node(self, node);
        const std::vector<int> labels = integers(given);
        if (labels.empty()) refuse(PyExc_ValueError, "there are no labels");
        Builder &build = machine_of(self).builder;
        switch (static_cast<Op>(op)) {
            case Op::Hinge:
                if (axis >= 0) return PyLong_FromLong(build.hinge_along(axis, static_cast<float>(number), x, labels));
                [[fallthrough]];
            case Op::PickNegLogSoftmax:
                return PyLong_FromLong(build.loss(static_cast<Op>(op), static_cast<float>(number), x, labels, true));
            case Op::PickEach: return PyLong_FromLong(build.pick_each(x, labels, static_cast<int>(number)));
            case Op::View: return PyLong_FromLong(build.elements(x, labels));
            case Op::LogSoftmax: return PyLong_FromLong(build.restricted(x, labels));
            default: refuse(PyExc_ValueError, "no such kernel");
        }
        return nullptr;
    });
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
            if (id >= graph_of(self).size() ||
                (id < 0 && static_cast<Op>(op) != Op::Lstm && static_cast<Op>(op) != Op::Affine))
                refuse(PyExc_IndexError, "no such node in the graph under construction");
        }
        const int count = static_cast<int>(ids.size());
        const auto need = [&](bool enough) {
            if (!enough) refuse(PyExc_ValueError, "the wrong number of operands");
        };
        need(count > 0);
        int made = -1;
        switch (static_cast<Op>(op)) {
            case Op::Unary: made = build.unary(static_cast<Unary>(kind), static_cast<float>(number), ids[0]); break;
            case Op::Binary:
                need(count == 2);
                made = build.binary(static_cast<Binary>(kind), ids[0], ids[1]);
                break;
            case Op::Affine: made = count % 2 ? build.transform(ids[0], ids.data() + 1, count / 2) : -1; break;
            case Op::Multiply:
                need(count == 2);
                made = build.multiply(ids[0], ids[1]);
                break;
            case Op::AddColumn:
                need(count == 2);
                made = build.add_to_columns(ids[0], ids[1]);
                break;
            case Op::Concat:
                made = kind < 0 ? build.to_batch(ids.data(), count, kind) : build.concat(ids.data(), count, kind);
                break;
            case Op::Arrange: made = kind < 0 ? build.transpose(ids[0]) : build.reshape(ids[0], kind); break;
            case Op::Sum:
                made =
                    kind ? build.across(static_cast<Reduction>(kind), ids.data(), count) : build.sum(ids.data(), count);
                break;
            case Op::Convolve:
                need(count == 2);
                made = build.filter(ids[0], ids[1]);
                break;
            case Op::Greatest: made = build.greatest(ids[0], kind, integer); break;
            case Op::Sums: made = build.sums(ids[0], kind); break;
            case Op::Lstm:
                need(count == 6);
                made = build.lstm(ids[0], ids[1], ids[2], ids[3], ids[4], ids[5], static_cast<float>(number));
                break;
            case Op::PickNegLogSoftmax:
            case Op::Hinge:
                made = build.loss(static_cast<Op>(op), static_cast<float>(number), ids[0], {integer}, false);
                break;
            case Op::Drawn: made = build.drawn(static_cast<Draw>(kind), number, ids[0], integer); break;
            case Op::Reduce:
                made = kind < 0 ? build.fold(ids[0], integer)
                                : build.along(static_cast<Reduction>(kind), ids[0], static_cast<unsigned>(integer),
                                              static_cast<int>(number));
                break;
            case Op::Inverse: made = build.inverse(ids[0]); break;
            case Op::Softmax:
            case Op::LogSoftmax: made = build.softmax(static_cast<Op>(op), ids[0], kind); break;
            case Op::Sparsemax: made = build.sparsemax(ids[0]); break;
            case Op::Constrained:
                need(count == 2);
                made = build.constrained(ids[0], ids[1]);
                break;
            case Op::Argmax: made = build.argmax(ids[0], kind); break;
            case Op::SumElems:
            case Op::SquaredNorm: made = build.reduce(static_cast<Op>(op), ids[0]); break;
            case Op::Dot:
                need(count == 2);
                made = build.reduce(Op::Dot, ids[0], ids[1]);
                break;
            case Op::View: {
                const int axis = static_cast<int>(number);
                made = kind ? build.range(ids[0], integer, integer + kind, axis) : build.pick(ids[0], integer, axis);
                break;
            }
            default: refuse(PyExc_ValueError, "no such kernel");
        }
        return PyLong_FromLong(made);
    });
}

}  // namespace

const PyMethodDef node_methods[] = {
    {"shape", shape, METH_VARARGS, "shape(dims, batch=1) -> its number"},
    {"input_signature", input_signature, METH_VARARGS, "input_signature(shape) -> its number"},
    {"call_signature", call_signature, METH_VARARGS,
     "call_signature(kind, shape, widths, further, nargs, key, constant) -> its number"},
    {"view_signature", view_signature, METH_VARARGS, "view_signature(shape, width of the operand) -> its number"},
    {"append", append, METH_VARARGS, "append(signature, nodes, aux=0) -> node"},
    {"input", input, METH_VARARGS, "input(signature, array of floats or doubles) -> node"},
    {"set_input", set_input, METH_VARARGS,
     "set_input(node, array of floats or doubles): replace the value; revert what was computed"},
    {"lookup", lookup, METH_VARARGS, "lookup(table, row) -> node"},
    {"random", random, METH_VARARGS, "random(kind, shape, first number, second number) -> node"},
    {"slide", slide, METH_VARARGS,
     "slide(op, nodes, height and width of the window, steps down and right, is_valid) -> node, -1: no kernel takes "
     "these"},
    {"select", select, METH_VARARGS, "select(node, rows, columns) -> node, -1: no kernel takes these"},
    {"strided", strided, METH_VARARGS,
     "strided(node, steps, first places, places behind the last) -> node, -1: no kernel takes these"},
    {"arrange", arrange, METH_VARARGS,
     "arrange(name, node, first number, sizes and steps of loops, shape) -> node, -1: the loops reach beyond it"},
    {"kernel_with_labels", kernel_with_labels, METH_VARARGS,
     "kernel_with_labels(op, node, number, labels, axis=-1) -> node, -1: no kernel takes these"},
    {"kernel", kernel, METH_VARARGS,
     "kernel(op, kind, nodes, number=0.0, integer=0) -> node, -1: no kernel takes these"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dpmodule::autobatch
