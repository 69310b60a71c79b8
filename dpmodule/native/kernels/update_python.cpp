// `update_rows` for Python.
#include "update_python.hpp"

#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "addresses.hpp"
#include "errors.hpp"

namespace dpmodule::vector {
namespace {

// in the order of UpdateRule::Kind
constexpr const char *kind_names[UpdateRule::kinds] = {"sgd",     "momentum", "adagrad",  "adam", "amsgrad",
                                                       "rmsprop", "centered", "adadelta", "ftrl"};

struct Field {
    const char *name;
    double UpdateRule::*at;
};

constexpr Field rule_fields[] = {
    {"lr", &UpdateRule::lr},
    {"wd", &UpdateRule::wd},
    {"rescale_grad", &UpdateRule::rescale_grad},
    {"clip_gradient", &UpdateRule::clip_gradient},
    {"momentum", &UpdateRule::momentum},
    {"beta1", &UpdateRule::beta1},
    {"beta2", &UpdateRule::beta2},
    {"epsilon", &UpdateRule::epsilon},
    {"gamma1", &UpdateRule::gamma1},
    {"gamma2", &UpdateRule::gamma2},
    {"clip_weights", &UpdateRule::clip_weights},
    {"lamda1", &UpdateRule::lamda1},
    {"beta", &UpdateRule::beta},
};

bool read_kind(PyObject *given, UpdateRule *rule) {
    const char *name = PyUnicode_AsUTF8(given);
    if (!name) return false;
    for (int i = 0; i < UpdateRule::kinds; i++) {
        if (std::strcmp(name, kind_names[i])) continue;
        rule->kind = static_cast<UpdateRule::Kind>(i);
        return true;
    }
    PyErr_Format(PyExc_ValueError, "no rule is called %R", given);
    return false;
}

bool read_field(PyObject *key, PyObject *value, UpdateRule *rule) {
    const char *name = PyUnicode_AsUTF8(key);
    if (!name) return false;
    if (!std::strcmp(name, "kind")) return read_kind(value, rule);
    for (const Field &field : rule_fields) {
        if (std::strcmp(name, field.name)) continue;
        rule->*field.at = PyFloat_AsDouble(value);
        return !PyErr_Occurred();
    }
    PyErr_Format(PyExc_ValueError, "rules have no %R", key);
    return false;
}

// A call of `update_rows`, without Python.
struct RowsCall {
    UpdateRule rule;
    float *weight, *states[UpdateRule::most_states];
    RowGradients grads;
    std::size_t table_rows;
    bool all;  // else only the rows given

    bool read(PyObject *const *given, Py_ssize_t count) {
        if (count < 1 || !read_rule(given[0], &rule)) return false;
        const int kept = state_count(rule.kind);
        Arguments next(given + 1, count - 1, 7 + kept);
        bool good = next.read(weight, table_rows, grads.width, grads.rows, grads.count, grads.values, all);
        for (int i = 0; i < kept; i++) good = next.read(states[i]);
        return good && within();
    }

    // Whether there are such rows; else an error is set.
    bool within() const {
        for (std::size_t i = 0; i < grads.count; i++) {
            if (static_cast<std::size_t>(grads.rows[i]) < table_rows) continue;
            const std::string text = "row " + std::to_string(grads.rows[i]) + " of a gradient is outside of the " +
                                     std::to_string(table_rows) + " rows of its parameter";
            return set_named_error("dpmodule.base", "BoundsError", text.c_str()) != nullptr;
        }
        return true;
    }
};

bool run_rows(const RowsCall &call) {
    if (!call.all) {
        update_rows(call.rule, call.weight, call.states, call.grads);
        return true;
    }
    const std::unique_ptr<float[]> zeros(new (std::nothrow) float[call.grads.width]());
    if (!zeros) return false;
    update_table(call.rule, call.weight, call.states, call.grads, call.table_rows, zeros.get());
    return true;
}

PyObject *update_rows_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    RowsCall call{};
    if (call.read(given, count)) return without_gil(run_rows, call);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a rule and addresses");
    return nullptr;
}

// Python keeps a pointer to this table
PyMethodDef row_functions[] = {
    method(
        "update_rows", update_rows_of,
        "update_rows(rule, weight, table_rows, width, rows, count, gradients, all_rows, *states)\n--\n\n"
        "Update rows of a table of float32 numbers in place; arguments are a dict, see update_python.hpp, sizes and\n"
        "addresses. Rows without a gradient are left alone, or with all_rows updated as if it were 0."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool read_rule(PyObject *given, UpdateRule *rule) {
    if (!PyDict_Check(given)) {
        PyErr_Format(PyExc_TypeError, "a rule is a dict, not %R", given);
        return false;
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(given, &at, &key, &value);) {
        if (!read_field(key, value, rule)) return false;
    }
    return true;
}

}  // namespace dpmodule::vector

int dpmodule::add_row_updates(PyObject *module) { return PyModule_AddFunctions(module, vector::row_functions); }
