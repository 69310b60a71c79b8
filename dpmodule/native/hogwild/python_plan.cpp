#include "python_plan.hpp"

#include <cstring>

#include "kernels/update_python.hpp"

namespace dpmodule::hogwild {
namespace {

// Read each item of a sequence with read(item, record).
template <class Record, class Read>
bool read_each(PyObject *given, std::vector<Record> &records, Read read) {
    PyObject *items = PySequence_Fast(given, "expected a sequence");
    if (!items) return false;
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < PySequence_Fast_GET_SIZE(items); ++i) {
        records.emplace_back();
        fine = read(PySequence_Fast_GET_ITEM(items, i), records.back());
    }
    Py_DECREF(items);
    return fine;
}

bool read_int(PyObject *given, int &number) {
    number = static_cast<int>(PyLong_AsLong(given));
    return number != -1 || !PyErr_Occurred();
}

bool read_float(PyObject *given, float &number) {
    number = static_cast<float>(PyFloat_AsDouble(given));
    return !PyErr_Occurred();
}

bool read_address(PyObject *given, float *&at) {
    at = static_cast<float *>(PyLong_AsVoidPtr(given));
    return at || !PyErr_Occurred();
}

bool read_slot(PyObject *given, SlotInput &input) {
    const char *name, *table;
    int is_float, is_dense, is_used, as_ids, as_numbers;
    unsigned long long width, rows;
    if (!PyArg_ParseTuple(given, "spppppKKs", &name, &is_float, &is_dense, &is_used, &as_ids, &as_numbers, &width,
                          &rows, &table)) {
        return false;
    }
    input.slot = {name, is_float != 0, is_dense != 0, is_used != 0, width};
    input.as_ids = as_ids;
    input.as_numbers = as_numbers;
    input.rows = rows;
    input.table = table;
    return true;
}

bool read_parameter(PyObject *given, Parameter &parameter) {
    const char *name;
    long long rows, width;
    PyObject *weight, *states, *rule;
    int learns, all_rows;
    if (!PyArg_ParseTuple(given, "sLLOOOdpp", &name, &rows, &width, &weight, &states, &rule, &parameter.lr_mult,
                          &learns, &all_rows)) {
        return false;
    }
    parameter.name = name;
    parameter.rows = rows;
    parameter.width = width;
    parameter.learns = learns;
    parameter.all_rows = all_rows;
    std::vector<float *> found;
    if (!read_address(weight, parameter.weight) || !vector::read_rule(rule, &parameter.rule)) return false;
    if (!read_each(states, found, [](PyObject *one, float *&at) { return read_address(one, at); })) return false;
    if (found.size() < static_cast<std::size_t>(learns ? vector::state_count(parameter.rule.kind) : 0) ||
        found.size() > 3) {
        PyErr_Format(PyExc_ValueError, "parameter %s has %zu states", name, found.size());
        return false;
    }
    std::copy(found.begin(), found.end(), parameter.states);
    return true;
}

bool read_value(PyObject *given, ValueShape &value) {
    int single;
    if (!PyArg_ParseTuple(given, "ip", &value.width, &single)) return false;
    value.single = single;
    return true;
}

// The number of a name in a list; false with Python's error set.
template <std::size_t count>
bool read_name(const char *name, const char *const (&names)[count], int &number) {
    for (number = 0; number < static_cast<int>(count); ++number) {
        if (std::strcmp(name, names[number]) == 0) return true;
    }
    PyErr_Format(PyExc_ValueError, "the engine knows nothing called %s", name);
    return false;
}

bool read_step(PyObject *given, Step &step) {
    const char *name, *function;
    int kind;
    PyObject *in, *ints, *floats;
    if (!PyArg_ParseTuple(given, "ssiOOO", &name, &function, &step.out, &in, &ints, &floats) ||
        !read_name(name, names_of_StepKind, kind)) {
        return false;
    }
    step.kind = static_cast<StepKind>(kind);
    const bool known = step.kind == StepKind::Pool     ? read_name(function, names_of_Pool, step.function)
                       : step.kind == StepKind::Unary  ? read_name(function, vector::names_of_Unary, step.function)
                       : step.kind == StepKind::Binary ? read_name(function, vector::names_of_Binary, step.function)
                                                       : true;
    return known && read_each(in, step.in, read_int) && read_each(ints, step.ints, read_int) &&
           read_each(floats, step.floats, read_float);
}

bool read_fetch(PyObject *given, Fetch &fetch) { return PyArg_ParseTuple(given, "ii", &fetch.value, &fetch.slot); }

bool read_part(PyObject *given, Part &part) {
    const char *path;
    long long begin, end;
    unsigned long long skip;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(given, "yLLKn", &path, &begin, &end, &skip, &number)) return false;
    part = {path, begin, end, skip, static_cast<std::size_t>(number)};
    return true;
}

}  // namespace

bool read_plan(PyObject *given, Plan &plan) {
    PyObject *slots, *parameters, *values, *steps, *outputs, *fetches, *watched;
    if (!PyArg_ParseTuple(given, "iOOOOOOO", &plan.batch_size, &slots, &parameters, &values, &steps, &outputs, &fetches,
                          &watched))
        return false;
    return read_each(slots, plan.slots, read_slot) && read_each(parameters, plan.parameters, read_parameter) &&
           read_each(values, plan.values, read_value) && read_each(steps, plan.steps, read_step) &&
           read_each(outputs, plan.outputs, read_int) && read_each(fetches, plan.fetches, read_fetch) &&
           read_each(watched, plan.watched, read_int);
}

bool read_parts(PyObject *given, std::vector<Part> &parts) { return read_each(given, parts, read_part); }

}  // namespace dpmodule::hogwild
