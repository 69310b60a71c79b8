// Methods of AutobatchEngine that add nodes.
#include <algorithm>

#include "engine_object.hpp"

namespace dpmodule::autobatch {
namespace {

int shape(Machine &machine, PyObject *args) {
    PyObject *dims;
    int batch = 1;
    check(PyArg_ParseTuple(args, "O|i", &dims, &batch));
    return machine.engine.graph.signatures.add_shape(integers(dims), batch);
}

int input_signature(Machine &machine, PyObject *args) {
    int found;
    check(PyArg_ParseTuple(args, "i", &found));
    return machine.engine.graph.signatures.add(Signature(Op::Input, 0, found, {}));
}

// `key`: numbers that separate batches; `nargs` -1: any number of operands of one width.
int call_signature(Machine &machine, PyObject *args) {
    int kind, found, further, nargs, constant;
    PyObject *widths, *key;
    check(PyArg_ParseTuple(args, "iiOiiOp", &kind, &found, &widths, &further, &nargs, &key, &constant));
    Signature s(Op::Call, kind, found, integers(widths), integers(key), constant ? 1.0f : 0.0f);
    s.nargs = nargs;
    s.further = further;
    if (nargs >= 0 ? static_cast<std::size_t>(nargs) != s.widths.size() : s.widths.size() != 1)
        refuse(PyExc_ValueError, "nargs and widths differ");
    return machine.engine.graph.signatures.add(s);
}

int view_signature(Machine &machine, PyObject *args) {
    int found, width;
    check(PyArg_ParseTuple(args, "ii", &found, &width));
    return machine.engine.graph.signatures.add(Signature(Op::View, 0, found, {width}));
}

int append(Machine &machine, PyObject *args) {
    int sig, aux = 0;
    PyObject *nodes;
    check(PyArg_ParseTuple(args, "iO|i", &sig, &nodes, &aux));
    Graph &graph = machine.engine.graph;
    const std::vector<int> ids = integers(nodes);
    if (sig < 0 || sig >= graph.signatures.size()) refuse(PyExc_IndexError, "no such signature");
    for (int id : ids) {
        if (id < 0 || id >= graph.size()) refuse(PyExc_IndexError, "no such node in the graph under construction");
    }
    return graph.add(sig, ids.data(), static_cast<int>(ids.size()), aux);
}

// Copies an array of floats or doubles. False: the size is wrong.
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

int input(Machine &machine, PyObject *args) {
    int sig;
    PyObject *array;
    check(PyArg_ParseTuple(args, "iO", &sig, &array));
    Graph &graph = machine.engine.graph;
    const int width = graph.signatures[sig].width;
    float *at = graph.inputs.take(width);
    if (!copy_numbers(array, width, at)) refuse(PyExc_ValueError, "the data and the shape differ in size");
    return graph.add_input(sig, at);
}

void set_input(Machine &machine, PyObject *args) {
    PyObject *number, *array;
    check(PyArg_ParseTuple(args, "OO", &number, &array));
    const int node = checked_node(machine, number);
    const Graph &graph = machine.engine.graph;
    const Signature &s = graph.signature(node);
    if (s.op != Op::Input || !copy_numbers(array, s.width, graph.value[node]))
        refuse(PyExc_ValueError, "an input of this size does not exist");
}

int lookup(Machine &machine, PyObject *args) {
    int table, row;
    check(PyArg_ParseTuple(args, "ii", &table, &row));
    if (table < 0 || table >= static_cast<int>(machine.engine.graph.tables.size()))
        refuse(PyExc_IndexError, "no such table");
    const int node = machine.builder.lookup(table, row);
    if (node < 0) refuse(PyExc_IndexError, "no such row in the table");
    machine.parameters.hold_table(table);
    return node;
}

int random(Machine &machine, PyObject *args) {
    int kind, found;
    double first, second;
    check(PyArg_ParseTuple(args, "iidd", &kind, &found, &first, &second));
    return machine.builder.random(static_cast<Draw>(kind), found, first, second);
}

int slide(Machine &machine, PyObject *args) {
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
        refuse(PyExc_ValueError, "sizes and steps of windows must be positive");
    for (int id : ids) {
        if (id < 0 || id >= machine.engine.graph.size())
            refuse(PyExc_IndexError, "no such node in the graph under construction");
    }
    return machine.builder.slide(convolves ? Op::Convolve : Op::Pool, ids.data(), static_cast<int>(ids.size()), window);
}

int select(Machine &machine, PyObject *args) {
    PyObject *node, *rows, *columns;
    check(PyArg_ParseTuple(args, "OOO", &node, &rows, &columns));
    const int x = checked_node(machine, node);
    return machine.builder.select(x, integers(rows), integers(columns));
}

int strided(Machine &machine, PyObject *args) {
    PyObject *node, *given[3];
    check(PyArg_ParseTuple(args, "OOOO", &node, &given[0], &given[1], &given[2]));
    const int x = checked_node(machine, node);
    return machine.builder.strided(x, integers(given[0]), integers(given[1]), integers(given[2]));
}

int arrange(Machine &machine, PyObject *args) {
    int kind, first, shape;
    PyObject *node, *given_sizes, *given_steps;
    check(PyArg_ParseTuple(args, "iOiOOi", &kind, &node, &first, &given_sizes, &given_steps, &shape));
    const int x = checked_node(machine, node);
    const std::vector<int> sizes = integers(given_sizes), steps = integers(given_steps);
    if (sizes.size() != steps.size() || (!sizes.empty() && *std::min_element(sizes.begin(), sizes.end()) < 1))
        refuse(PyExc_ValueError, "loops need positive sizes and as many steps");
    std::vector<Builder::Loop> loops;
    for (std::size_t i = 0; i < sizes.size(); i++) loops.push_back({sizes[i], steps[i]});
    return machine.builder.arranged(static_cast<Arrangement>(kind), x, first, loops, shape);
}

PyObject *kernel_with_labels(Machine &machine, PyObject *args) {
    int op, axis = -1;
    double number;
    PyObject *node, *given;
    check(PyArg_ParseTuple(args, "iOdO|i", &op, &node, &number, &given, &axis));
    const int x = checked_node(machine, node);
    const std::vector<int> labels = integers(given);
    if (labels.empty()) refuse(PyExc_ValueError, "labels must not be empty");
    Builder &build = machine.builder;
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
}

int kernel(Machine &machine, PyObject *args) {
    int op, kind, integer = 0;
    double number = 0;
    PyObject *nodes;
    check(PyArg_ParseTuple(args, "iiO|di", &op, &kind, &nodes, &number, &integer));
    Builder &build = machine.builder;
    const std::vector<int> ids = integers(nodes);
    for (int id : ids) {
        if (id >= machine.engine.graph.size() ||
            (id < 0 && static_cast<Op>(op) != Op::Lstm && static_cast<Op>(op) != Op::Affine))
            refuse(PyExc_IndexError, "no such node in the graph under construction");
    }
    const int count = static_cast<int>(ids.size());
    const auto what = static_cast<Op>(op);
    const bool two = what == Op::Binary || what == Op::Multiply || what == Op::AddColumn || what == Op::Convolve ||
                     what == Op::Constrained || what == Op::Dot;
    if (what == Op::Lstm ? count != 6 : two ? count != 2 : count < 1)
        refuse(PyExc_ValueError, "the wrong number of operands");
    const int x = ids[0], y = two ? ids[1] : -1, axis = static_cast<int>(number);
    const auto attr = static_cast<float>(number);
    const auto reduction = static_cast<Reduction>(kind);
    switch (what) {
        case Op::Unary: return build.unary(static_cast<Unary>(kind), attr, x);
        case Op::Binary: return build.binary(static_cast<Binary>(kind), x, y);
        case Op::Affine: return count % 2 ? build.transform(x, ids.data() + 1, count / 2) : -1;
        case Op::Multiply: return build.multiply(x, y);
        case Op::AddColumn: return build.add_to_columns(x, y);
        case Op::Concat:
            return kind < 0 ? build.to_batch(ids.data(), count, kind) : build.concat(ids.data(), count, kind);
        case Op::Arrange: return kind < 0 ? build.transpose(x) : build.reshape(x, kind);
        case Op::Sum: return kind ? build.across(reduction, ids.data(), count) : build.sum(ids.data(), count);
        case Op::Convolve: return build.filter(x, y);
        case Op::Greatest: return build.greatest(x, kind, integer);
        case Op::Sums: return build.sums(x, kind);
        case Op::Lstm: return build.lstm(x, ids[1], ids[2], ids[3], ids[4], ids[5], attr);
        case Op::PickNegLogSoftmax:
        case Op::Hinge: return build.loss(what, attr, x, {integer}, false);
        case Op::Drawn: return build.drawn(static_cast<Draw>(kind), number, x, integer);
        case Op::Reduce:
            return kind < 0 ? build.fold(x, integer) : build.along(reduction, x, static_cast<unsigned>(integer), axis);
        case Op::Inverse: return build.inverse(x);
        case Op::Softmax:
        case Op::LogSoftmax: return build.softmax(what, x, kind);
        case Op::Sparsemax: return build.sparsemax(x);
        case Op::Constrained: return build.constrained(x, y);
        case Op::Argmax: return build.argmax(x, kind);
        case Op::SumElems:
        case Op::SquaredNorm:
        case Op::Dot: return build.reduce(what, x, y);
        case Op::View: return kind ? build.range(x, integer, integer + kind, axis) : build.pick(x, integer, axis);
        default: refuse(PyExc_ValueError, "no such kernel");
    }
}

}  // namespace

const PyMethodDef node_methods[] = {
    {"shape", call<shape>, METH_VARARGS, "shape(dims, batch=1) -> its number"},
    {"input_signature", call<input_signature>, METH_VARARGS, "input_signature(shape) -> its number"},
    {"call_signature", call<call_signature>, METH_VARARGS,
     "call_signature(kind, shape, widths, further, nargs, key, constant) -> its number"},
    {"view_signature", call<view_signature>, METH_VARARGS, "view_signature(shape, width of the operand) -> its number"},
    {"append", call<append>, METH_VARARGS, "append(signature, nodes, aux=0) -> node"},
    {"input", call<input>, METH_VARARGS, "input(signature, array of floats or doubles) -> node"},
    {"set_input", call<set_input>, METH_VARARGS,
     "set_input(node, array of floats or doubles): replace the value; revert what was computed"},
    {"lookup", call<lookup>, METH_VARARGS, "lookup(table, row) -> node"},
    {"random", call<random>, METH_VARARGS, "random(kind, shape, first number, second number) -> node"},
    {"slide", call<slide>, METH_VARARGS,
     "slide(op, nodes, height and width of the window, vertical and horizontal step, is_valid) -> node, -1: no kernel "
     "takes "
     "these"},
    {"select", call<select>, METH_VARARGS, "select(node, rows, columns) -> node, -1: no kernel takes these"},
    {"strided", call<strided>, METH_VARARGS, "strided(node, steps, first places, end places) -> node, -1: no kernel"},
    {"arrange", call<arrange>, METH_VARARGS,
     "arrange(name, node, first number, sizes and steps of loops, shape) -> node, -1: the loops reach beyond it"},
    {"kernel_with_labels", call<kernel_with_labels>, METH_VARARGS,
     "kernel_with_labels(op, node, number, labels, axis=-1) -> node, -1: no kernel takes these"},
    {"kernel", call<kernel>, METH_VARARGS,
     "kernel(op, kind, nodes, number=0.0, integer=0) -> node, -1: no kernel takes these"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dpmodule::autobatch
