// Methods of AutobatchEngine about parameters and tables of rows.
#include "engine_object.hpp"

namespace dpmodule::autobatch {
namespace {

PyObject *add_parameter(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *dims;
        check(PyArg_ParseTuple(args, "O", &dims));
        Graph &graph = graph_of(self);
        const std::vector<int> d = integers(dims);
        const int shape = graph.signatures.add_shape(d);   // refuses what is too large
        Param p;
        p.rows = d.empty() ? 1 : d[0];
        p.cols = 1;
        for (std::size_t i = 1; i < d.size(); i++) p.cols *= d[i];
        Signature s;
        s.op = Op::Param;
        s.shape = shape;
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

}  // namespace

const PyMethodDef parameter_methods[] = {
    {"add_parameter", add_parameter, METH_VARARGS, "add_parameter(dims) -> its number"},
    {"set_parameter", set_parameter, METH_VARARGS, "set_parameter(number, value address, gradient address or 0)"},
    {"add_table", add_table, METH_VARARGS, "add_table(rows, dims of one row) -> its number"},
    {"set_table", set_table, METH_VARARGS, "set_table(number, value address, gradient address or 0)"},
    {"touched", touched, METH_O, "touched(table) -> the rows (int64) that have had gradients since the last call"},
    {"used", used, METH_NOARGS, "used() -> numbers of the parameters and of the tables in this graph"},
    {"parameters_changed", parameters_changed, METH_NOARGS, "parameters_changed(): their values are not those of before"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dpmodule::autobatch
