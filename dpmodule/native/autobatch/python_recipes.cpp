#include "python_recipes.hpp"

namespace dpmodule::autobatch {

PythonRecipes *recipes_of_current = nullptr;

int PythonRecipes::number(const Applied &applied, const Nodes &operands) {
    const bool plain =
        !applied.attributes || (PyTuple_CheckExact(applied.attributes) && PyTuple_GET_SIZE(applied.attributes) == 0);
    const int attributes = plain ? 0 : number_of(applied.attributes);
    if (attributes < 0) return -1;
    // an operation is one thing with a number of its own and another without
    const int operation = 2 * number_of(applied.operation, applied.many) + (applied.own != nullptr);
    return recipes_.number(operation, attributes, operands.at, operands.count, applied.own != nullptr);
}

int PythonRecipes::number_of(PyObject *operation, bool many) {
    const auto [at, fresh] = operations_.try_emplace(operation, static_cast<int>(operations_.size()));
    if (fresh) Py_INCREF(operation);
    return 2 * at->second + many;
}

// From 1 on; -1 for what has no hash.
int PythonRecipes::number_of(PyObject *attributes) {
    if (!attributes_ && !(attributes_ = PyDict_New())) throw PythonError();
    if (PyObject *known = PyDict_GetItemWithError(attributes_, attributes))
        return static_cast<int>(PyLong_AsLong(known));
    const int number = static_cast<int>(PyDict_GET_SIZE(attributes_)) + 1;
    PyObject *boxed = PyErr_Occurred() ? nullptr : PyLong_FromLong(number);
    const bool kept = boxed && PyDict_SetItem(attributes_, attributes, boxed) == 0;
    Py_XDECREF(boxed);
    if (kept) return number;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();
    return -1;
}

int PythonRecipes::keep(PyObject *own) {
    if (!own) return 0;
    if (PyList_Append(numbers_, own) < 0) throw PythonError();
    return static_cast<int>(PyList_GET_SIZE(numbers_)) - 1;
}

void PythonRecipes::set_numbers(PyObject *list) {
    Py_INCREF(list);
    Py_XSETREF(numbers_, list);
}

int PythonRecipes::traverse(visitproc visit, void *arg) {
    for (const auto &each : operations_) Py_VISIT(each.first);
    Py_VISIT(attributes_);
    Py_VISIT(numbers_);
    return 0;
}

void PythonRecipes::clear() {
    for (const auto &each : std::exchange(operations_, {})) Py_DECREF(each.first);
    Py_CLEAR(attributes_);
    Py_CLEAR(numbers_);
}

}  // namespace dpmodule::autobatch
