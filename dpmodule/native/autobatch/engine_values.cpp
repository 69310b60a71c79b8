// Methods of AutobatchEngine about what nodes are, their values and gradients.
#include <algorithm>

#include "engine_object.hpp"

namespace dpmodule::autobatch {
namespace {

PyObject *bytes_of(const float *at, int count) {
    return PyByteArray_FromStringAndSize(reinterpret_cast<const char *>(at),
                                         static_cast<Py_ssize_t>(sizeof(float)) * count);
}

PyObject *forward(PyObject *self, PyObject *number) {
    return guarded(
        [&]() -> PyObject * { return PyLong_FromLong(machine_of(self).engine.forward(checked_node(self, number))); });
}

PyObject *value(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = machine_of(self).engine.forward(checked_node(self, number));
        const Graph &graph = graph_of(self);
        return bytes_of(graph.value[node], graph.signature(node).width);
    });
}

// What has more than one dimension lies in another order than users see.
PyObject *numbers(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = machine_of(self).engine.forward(checked_node(self, number));
        const Graph &graph = graph_of(self);
        if (graph.shape(node).dims.size() > 1) return Py_NewRef(Py_None);
        const int width = graph.signature(node).width;
        PyObject *all = PyList_New(width);
        for (int i = 0; all && i < width; i++) {
            PyObject *each = PyFloat_FromDouble(graph.value[node][i]);
            if (each) PyList_SET_ITEM(all, i, each);
            else Py_CLEAR(all);
        }
        return all;
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
        std::vector<float> sum(graph_of(self).signature(node).width);
        if (!machine_of(self).engine.add_gradient(node, sum.data())) return Py_NewRef(Py_None);
        return bytes_of(sum.data(), static_cast<int>(sum.size()));
    });
}

PyObject *is_fused(PyObject *self, PyObject *number) {
    return guarded(
        [&]() -> PyObject * { return PyBool_FromLong(graph_of(self).is_fused(checked_node(self, number))); });
}

PyObject *skip(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * {
        machine_of(self).engine.skip();
        return Py_NewRef(Py_None);
    });
}

PyObject *is_skipped(PyObject *self, PyObject *number) {
    return guarded(
        [&]() -> PyObject * { return PyBool_FromLong(graph_of(self).is_skipped(checked_node(self, number))); });
}

PyObject *again(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = checked_node(self, number);
        return PyLong_FromLong(graph_of(self).is_fused(node) ? graph_of(self).again(node) : node);
    });
}

// The nodes whose values were not kept and that somebody holds, each once more under a number of its own.
PyObject *ask_again(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * {
        Graph &graph = graph_of(self);
        int last = -1;
        if (current.engine == &machine_of(self).engine) {
            const int size = graph.size();
            for (const NodeObject *each : handles.all()) {
                if (each->version == current.version && each->node >= 0 && each->node < size &&
                    graph.is_fused(each->node) && !graph.is_skipped(each->node)) {
                    last = std::max(last, graph.again(each->node));
                }
            }
        }
        return PyLong_FromLong(last);
    });
}

// False: fused away, or part of another node's, or shared with equal nodes.
PyObject *keeps_gradient(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = checked_node(self, number);
        const Graph &graph = graph_of(self);
        const Op op = graph.signature(node).op;
        return PyBool_FromLong(!graph.is_fused(node) && (op != Op::View || graph.is_memory(node)) && op != Op::Lookup &&
                               !machine_of(self).engine.is_repeated(node));
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

PyObject *operands(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const int node = checked_node(self, number);
        const Graph &graph = graph_of(self);
        return tuple_of(std::vector<int>(graph.begin(node), graph.begin(node) + graph.nodes[node].count));
    });
}

PyObject *signature_of(PyObject *self, PyObject *number) {
    return guarded(
        [&]() -> PyObject * { return PyLong_FromLong(graph_of(self).nodes[checked_node(self, number)].sig); });
}

PyObject *shape_of(PyObject *self, PyObject *number) {
    return guarded(
        [&]() -> PyObject * { return PyLong_FromLong(graph_of(self).signature(checked_node(self, number)).shape); });
}

PyObject *are_alike(PyObject *self, PyObject *numbers) {
    return guarded([&]() -> PyObject * {
        if (!PyList_Check(numbers)) refuse(PyExc_TypeError, "a list of nodes is needed");
        const Graph &graph = graph_of(self);
        int first = -1;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(numbers); i++) {
            const Signature &s = graph.signature(checked_node(self, PyList_GET_ITEM(numbers, i)));
            if (s.op == Op::Param || (i && s.shape != first)) return Py_NewRef(Py_False);
            first = s.shape;
        }
        return Py_NewRef(Py_True);
    });
}

// The number of the parameter that a node is, or -1.
PyObject *parameter_of(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        const Signature &s = graph_of(self).signature(checked_node(self, number));
        return PyLong_FromLong(s.op == Op::Param ? s.params[0] : -1);
    });
}

}  // namespace

const PyMethodDef value_methods[] = {
    {"forward", forward, METH_O, "forward(node) -> the node that holds its value"},
    {"value", value, METH_O, "value(node) -> a copy of its float32 numbers"},
    {"numbers", numbers, METH_O,
     "numbers(node) -> a list of them for vectors and minibatches of vectors, None for others"},
    {"backward", backward, METH_VARARGS, "backward(node, full=False)"},
    {"gradient", gradient, METH_O, "gradient(node) -> a copy of its float32 numbers, None: not kept"},
    {"is_fused", is_fused, METH_O, "is_fused(node) -> whether its value was not kept"},
    {"skip", skip, METH_NOARGS, "skip(): go on behind the first node that has not been computed, which cannot be"},
    {"is_skipped", is_skipped, METH_O, "is_skipped(node) -> whether it could not be computed"},
    {"again", again, METH_O,
     "again(node) -> the number under which it is computed once more if its value was not kept, else its own"},
    {"ask_again", ask_again, METH_NOARGS,
     "ask_again() -> the last node to compute for the values that somebody may ask for, -1: none"},
    {"keeps_gradient", keeps_gradient, METH_O,
     "keeps_gradient(node) -> False: fused away, or part of another node's, or shared with equal nodes"},
    {"dim", dim, METH_O, "dim(node) -> (dims, batch)"},
    {"operands", operands, METH_O, "operands(node) -> the nodes it takes, -1 for zeros"},
    {"signature_of", signature_of, METH_O, "signature_of(node) -> its number"},
    {"shape_of", shape_of, METH_O, "shape_of(node) -> number of its shape"},
    {"are_alike", are_alike, METH_O, "are_alike(list of nodes) -> whether they have one shape and none is a parameter"},
    {"parameter_of", parameter_of, METH_O, "parameter_of(node) -> number of the parameter it is, or -1"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dpmodule::autobatch
