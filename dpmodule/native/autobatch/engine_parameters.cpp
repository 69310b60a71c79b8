// Methods of AutobatchEngine about parameters and tables of rows.
#include "engine_object.hpp"

namespace dpmodule::autobatch {
namespace {

int add_parameter(Machine &machine, PyObject *args) {
    PyObject *dims, *reference;
    int is_updated;
    check(PyArg_ParseTuple(args, "OOp", &dims, &reference, &is_updated));
    return machine.parameters.add_parameter(integers(dims), reference, is_updated);
}

int add_table(Machine &machine, PyObject *args) {
    PyObject *dims, *reference;
    check(PyArg_ParseTuple(args, "OO", &dims, &reference));
    const std::vector<int> shape = integers(dims);
    if (shape.empty()) refuse(PyExc_ValueError, "a table needs rows");
    return machine.parameters.add_table(shape, reference);
}

int checked_parameter(const Machine &machine, PyObject *number) {
    const long index = PyLong_AsLong(number);
    if (PyErr_Occurred()) throw PythonError();
    if (index < 0 || index >= static_cast<long>(machine.engine.graph.params.size()))
        refuse(PyExc_IndexError, "no such parameter");
    return static_cast<int>(index);
}

int parameter(Machine &machine, PyObject *number) {
    return machine.parameters.parameter(checked_parameter(machine, number));
}

void follow(Machine &machine, PyObject *) { machine.parameters.follow(); }

void begin_pass(Machine &machine, PyObject *) { machine.parameters.begin_pass(); }

void end_pass(Machine &machine, PyObject *) { machine.parameters.close(); }

PyObject *passed(Machine &machine, PyObject *number) {
    return machine.parameters.passed(checked_parameter(machine, number));
}

PyObject *marks(Machine &machine, PyObject *) { return machine.parameters.marks(); }

void set_gradient(Machine &machine, PyObject *args) {
    PyObject *number;
    unsigned long long gradient;
    check(PyArg_ParseTuple(args, "OK", &number, &gradient));
    machine.parameters.set_gradient(checked_parameter(machine, number), pointer(gradient));
}

void set_table_gradient(Machine &machine, PyObject *args) {
    int index;
    unsigned long long gradient;
    check(PyArg_ParseTuple(args, "iK", &index, &gradient));
    Graph &graph = machine.engine.graph;
    if (index < 0 || index >= static_cast<int>(graph.tables.size())) refuse(PyExc_IndexError, "no such table");
    graph.tables[index]->grads = pointer(gradient);
}

PyObject *touched(Machine &machine, PyObject *number) {
    const long index = PyLong_AsLong(number);
    Graph &graph = machine.engine.graph;
    if (index < 0 || index >= static_cast<long>(graph.tables.size())) refuse(PyExc_IndexError, "no such table");
    const std::vector<int> rows = graph.tables[index]->take_touched();
    std::vector<std::int64_t> wide(rows.begin(), rows.end());
    return PyByteArray_FromStringAndSize(reinterpret_cast<const char *>(wide.data()),
                                         static_cast<Py_ssize_t>(wide.size() * 8));
}

PyObject *used_parameters(Machine &machine, PyObject *) { return tuple_of(machine.parameters.used_parameters()); }

PyObject *used_tables(Machine &machine, PyObject *) { return tuple_of(machine.parameters.used_tables()); }

}  // namespace

const PyMethodDef parameter_methods[] = {
    {"add_parameter", call<add_parameter>, METH_VARARGS,
     "add_parameter(dims, weak reference to the storage, is_updated) -> its number"},
    {"add_table", call<add_table>, METH_VARARGS,
     "add_table(dims, the first of which counts rows, weak reference to the storage) -> its number"},
    {"parameter", call<parameter>, METH_O, "parameter(number) -> node, -1: its value is not of float32 on the CPU"},
    {"follow", call<follow>, METH_NOARGS,
     "follow(): update addresses and versions of values; raises if a value was replaced by another shape or type "
     "there"},
    {"begin_pass", call<begin_pass>, METH_NOARGS,
     "begin_pass(): also prepare the gradients of parameters for a backward pass"},
    {"end_pass", call<end_pass>, METH_NOARGS, "end_pass(): detach from the gradients"},
    {"passed", call<passed>, METH_O,
     "passed(parameter) -> (float32 numbers of its gradient before the last pass or None, its version after it), "
     "None: not reached"},
    {"marks", call<marks>, METH_NOARGS, "marks() -> versions of the values in this graph by reference"},
    {"set_gradient", call<set_gradient>, METH_VARARGS, "set_gradient(parameter, address)"},
    {"set_table_gradient", call<set_table_gradient>, METH_VARARGS, "set_table_gradient(table, address or 0)"},
    {"touched", call<touched>, METH_O,
     "touched(table) -> the rows (int64) that have had gradients since the last call"},
    {"used_parameters", call<used_parameters>, METH_NOARGS,
     "used_parameters() -> numbers of the parameters in this graph"},
    {"used_tables", call<used_tables>, METH_NOARGS, "used_tables() -> numbers of the tables in this graph"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dpmodule::autobatch
