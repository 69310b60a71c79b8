// Methods of AutobatchEngine about parameters and tables of rows.
#include "engine_object.hpp"

namespace dpmodule::autobatch {
namespace {

PyObject *add_parameter(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *dims, *reference;
        int is_updated;
        check(PyArg_ParseTuple(args, "OOp", &dims, &reference, &is_updated));
        return PyLong_FromLong(machine_of(self).parameters.add_parameter(integers(dims), reference, is_updated));
    });
}

PyObject *add_table(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *dims, *reference;
        check(PyArg_ParseTuple(args, "OO", &dims, &reference));
        const std::vector<int> shape = integers(dims);
        if (shape.empty()) refuse(PyExc_ValueError, "a table has rows");
        return PyLong_FromLong(machine_of(self).parameters.add_table(shape, reference));
    });
}

int checked_parameter(PyObject *self, PyObject *number) {
    const long index = PyLong_AsLong(number);
    if (PyErr_Occurred()) throw PythonError();
    if (index < 0 || index >= static_cast<long>(graph_of(self).params.size()))
        refuse(PyExc_IndexError, "no such parameter");
    return static_cast<int>(index);
}

PyObject *parameter(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * {
        return PyLong_FromLong(machine_of(self).parameters.parameter(checked_parameter(self, number)));
    });
}

PyObject *follow(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * {
        machine_of(self).parameters.follow();
        return Py_NewRef(Py_None);
    });
}

PyObject *begin_pass(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * {
        machine_of(self).parameters.begin_pass();
        return Py_NewRef(Py_None);
    });
}

PyObject *end_pass(PyObject *self, PyObject *) {
    machine_of(self).parameters.close();
    Py_RETURN_NONE;
}

PyObject *passed(PyObject *self, PyObject *number) {
    return guarded([&]() -> PyObject * { return machine_of(self).parameters.passed(checked_parameter(self, number)); });
}

PyObject *marks(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * { return machine_of(self).parameters.marks(); });
}

PyObject *set_gradient(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        PyObject *number;
        unsigned long long gradient;
        check(PyArg_ParseTuple(args, "OK", &number, &gradient));
        machine_of(self).parameters.set_gradient(checked_parameter(self, number), pointer(gradient));
        return Py_NewRef(Py_None);
    });
}

PyObject *set_table_gradient(PyObject *self, PyObject *args) {
    return guarded([&]() -> PyObject * {
        int index;
        unsigned long long gradient;
        check(PyArg_ParseTuple(args, "iK", &index, &gradient));
        Graph &graph = graph_of(self);
        if (index < 0 || index >= static_cast<int>(graph.tables.size())) refuse(PyExc_IndexError, "no such table");
        graph.tables[index]->grads = pointer(gradient);
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
        return PyByteArray_FromStringAndSize(reinterpret_cast<const char *>(wide.data()),
                                             static_cast<Py_ssize_t>(wide.size() * 8));
    });
}

PyObject *used_parameters(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * { return tuple_of(machine_of(self).parameters.used_parameters()); });
}

PyObject *used_tables(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * { return tuple_of(machine_of(self).parameters.used_tables()); });
}

}  // namespace

const PyMethodDef parameter_methods[] = {
    {"add_parameter", add_parameter, METH_VARARGS,
     "add_parameter(dims, weak reference to the storage, is_updated) -> its number"},
    {"add_table", add_table, METH_VARARGS,
     "add_table(dims, the first of which counts rows, weak reference to the storage) -> its number"},
    {"parameter", parameter, METH_O, "parameter(number) -> node, -1: its value is not of float32 on the CPU"},
    {"follow", follow, METH_NOARGS,
     "follow(): look where values lie, and whether they have changed; raises if another shape or type has been put "
     "there"},
    {"begin_pass", begin_pass, METH_NOARGS,
     "begin_pass(): likewise, and let a backward pass add to the gradients of parameters"},
    {"end_pass", end_pass, METH_NOARGS, "end_pass(): nothing adds to gradients any more"},
    {"passed", passed, METH_O,
     "passed(parameter) -> (float32 numbers of its gradient before the last pass or None, the mark that it left), "
     "None: not reached"},
    {"marks", marks, METH_NOARGS, "marks() -> marks of the values in this graph by reference"},
    {"set_gradient", set_gradient, METH_VARARGS, "set_gradient(parameter, address)"},
    {"set_table_gradient", set_table_gradient, METH_VARARGS, "set_table_gradient(table, address or 0)"},
    {"touched", touched, METH_O, "touched(table) -> the rows (int64) that have had gradients since the last call"},
    {"used_parameters", used_parameters, METH_NOARGS, "used_parameters() -> numbers of the parameters in this graph"},
    {"used_tables", used_tables, METH_NOARGS, "used_tables() -> numbers of the tables in this graph"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dpmodule::autobatch
