// Methods of AutobatchEngine for properties, values and gradients of nodes.
#include <algorithm>

#include "engine_object.hpp"

namespace dpmodule::autobatch {
namespace {

PyObject *bytes_of(const float *at, int count) {
    return PyByteArray_FromStringAndSize(reinterpret_cast<const char *>(at),
                                         static_cast<Py_ssize_t>(sizeof(float)) * count);
}

int forward(Machine &machine, PyObject *number) { return machine.engine.forward(checked_node(machine, number)); }

PyObject *value(Machine &machine, PyObject *number) {
    const int node = machine.engine.forward(checked_node(machine, number));
    const Graph &graph = machine.engine.graph;
    return bytes_of(graph.value[node], graph.signature(node).width);
}

// Values of more than one dimension are not in the users' column-major order.
PyObject *numbers(Machine &machine, PyObject *number) {
    const int node = machine.engine.forward(checked_node(machine, number));
    const Graph &graph = machine.engine.graph;
    if (graph.shape(node).dims.size() > 1) return Py_NewRef(Py_None);
    return list_of(static_cast<std::size_t>(graph.signature(node).width),
                   [&](std::size_t i) { return PyFloat_FromDouble(graph.value[node][i]); });
}

void backward(Machine &machine, PyObject *args) {
    PyObject *number;
    int full = 0;
    check(PyArg_ParseTuple(args, "O|p", &number, &full));
    machine.engine.backward(checked_node(machine, number), full);
}

PyObject *gradient(Machine &machine, PyObject *number) {
    const int node = checked_node(machine, number);
    std::vector<float> sum(machine.engine.graph.signature(node).width);
    if (!machine.engine.add_gradient(node, sum.data())) return Py_NewRef(Py_None);
    return bytes_of(sum.data(), static_cast<int>(sum.size()));
}

bool is_fused(Machine &machine, PyObject *number) {
    return machine.engine.graph.is_fused(checked_node(machine, number));
}

void skip(Machine &machine, PyObject *) { machine.engine.skip(); }

bool is_skipped(Machine &machine, PyObject *number) {
    return machine.engine.graph.is_skipped(checked_node(machine, number));
}

int again(Machine &machine, PyObject *number) {
    const int node = checked_node(machine, number);
    return machine.engine.graph.is_fused(node) ? machine.engine.graph.again(node) : node;
}

// Adds fused nodes that expressions still refer to again, under new numbers.
int ask_again(Machine &machine, PyObject *) {
    Graph &graph = machine.engine.graph;
    int last = -1;
    if (current.engine == &machine.engine) {
        const int size = graph.size();
        for (const NodeObject *each : handles.all()) {
            if (each->version == current.version && each->node >= 0 && each->node < size &&
                graph.is_fused(each->node) && !graph.is_skipped(each->node)) {
                last = std::max(last, graph.again(each->node));
            }
        }
    }
    return last;
}

// False if the gradient was fused away, is part of another node's, or is shared with equal nodes.
bool keeps_gradient(Machine &machine, PyObject *number) {
    const int node = checked_node(machine, number);
    const Graph &graph = machine.engine.graph;
    const Op op = graph.signature(node).op;
    return !graph.is_fused(node) && (op != Op::View || graph.is_memory(node)) && op != Op::Lookup &&
           !machine.engine.is_shared(node);
}

PyObject *dim(Machine &machine, PyObject *number) {
    const Graph &graph = machine.engine.graph;
    const Shape &found = graph.signatures.shape(graph.signature(checked_node(machine, number)).shape);
    return Py_BuildValue("(Ni)", tuple_of(found.dims), found.batch);
}

PyObject *operands(Machine &machine, PyObject *number) {
    const int node = checked_node(machine, number);
    const Graph &graph = machine.engine.graph;
    return tuple_of(std::vector<int>(graph.begin(node), graph.begin(node) + graph.nodes[node].count));
}

int signature_of(Machine &machine, PyObject *number) {
    return machine.engine.graph.nodes[checked_node(machine, number)].sig;
}

int shape_of(Machine &machine, PyObject *number) {
    return machine.engine.graph.signature(checked_node(machine, number)).shape;
}

PyObject *are_alike(Machine &machine, PyObject *numbers) {
    if (!PyList_Check(numbers)) refuse(PyExc_TypeError, "expected a list of nodes");
    const Graph &graph = machine.engine.graph;
    int first = -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(numbers); i++) {
        const Signature &s = graph.signature(checked_node(machine, PyList_GET_ITEM(numbers, i)));
        if (s.op == Op::Param || (i && s.shape != first)) return Py_NewRef(Py_False);
        first = s.shape;
    }
    return Py_NewRef(Py_True);
}

// The parameter number of a node, or -1.
int parameter_of(Machine &machine, PyObject *number) {
    const Signature &s = machine.engine.graph.signature(checked_node(machine, number));
    return s.op == Op::Param ? s.params[0] : -1;
}

}  // namespace

const PyMethodDef value_methods[] = {
    {"forward", call<forward>, METH_O, "forward(node) -> the node that holds its value"},
    {"value", call<value>, METH_O, "value(node) -> a copy of its float32 numbers"},
    {"numbers", call<numbers>, METH_O,
     "numbers(node) -> a list of them for vectors and minibatches of vectors, None for others"},
    {"backward", call<backward>, METH_VARARGS, "backward(node, full=False)"},
    {"gradient", call<gradient>, METH_O, "gradient(node) -> a copy of its float32 numbers, None: not kept"},
    {"is_fused", call<is_fused>, METH_O, "is_fused(node) -> True if its value was not kept"},
    {"skip", call<skip>, METH_NOARGS, "skip(): skip the first node that has not been computed, which failed"},
    {"is_skipped", call<is_skipped>, METH_O, "is_skipped(node) -> True if it failed"},
    {"again", call<again>, METH_O,
     "again(node) -> the number of its recomputation if its value was not kept, else its own"},
    {"ask_again", call<ask_again>, METH_NOARGS,
     "ask_again() -> the last node to compute for values of existing expressions, -1: none"},
    {"keeps_gradient", call<keeps_gradient>, METH_O,
     "keeps_gradient(node) -> False: fused away, part of another node's, or shared with equal nodes"},
    {"dim", call<dim>, METH_O, "dim(node) -> (dims, batch)"},
    {"operands", call<operands>, METH_O, "operands(node) -> the nodes it takes, -1 for zeros"},
    {"signature_of", call<signature_of>, METH_O, "signature_of(node) -> its number"},
    {"shape_of", call<shape_of>, METH_O, "shape_of(node) -> number of its shape"},
    {"are_alike", call<are_alike>, METH_O,
     "are_alike(list of nodes) -> True if they have one shape and none is a parameter"},
    {"parameter_of", call<parameter_of>, METH_O, "parameter_of(node) -> number of the parameter it is, or -1"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dpmodule::autobatch
