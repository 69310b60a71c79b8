// Functions of trainers that update parameters in place: float32 arrays given by address, whole or by rows.
#include <cstdint>
#include <cstring>

#include "kernels/update_python.hpp"

namespace dpmodule::autobatch {
namespace {

// An array as rows: the given rows, or the whole array as one row.
struct Rows {
    unsigned long long numbers;  // address of int64, 0: one row
    long long count, width;
    template <class F>
    void each(F body) const {
        const auto *given = reinterpret_cast<const std::int64_t *>(static_cast<std::uintptr_t>(numbers));
        for (long long i = 0; i < count; i++) body((given ? given[i] : i) * width);
    }
};

// One parameter: addresses of value, gradient, three moments and row numbers, or 0; count, width.
struct Parameter {
    unsigned long long value, gradient, moments[3];
    Rows rows;
};

// Calls body(place) for each tuple of eight numbers; false with an error set.
template <class F>
bool each_place(PyObject *places, F body) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(places); i++) {
        PyObject *numbers = PyList_GET_ITEM(places, i);
        unsigned long long n[8];
        if (!PyTuple_Check(numbers) || PyTuple_GET_SIZE(numbers) != 8) {
            PyErr_SetString(PyExc_TypeError, "addresses must be tuples of eight numbers");
            return false;
        }
        for (int k = 0; k < 8; k++) n[k] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(numbers, k));
        if (PyErr_Occurred()) return false;
        body(Parameter{
            n[0], n[1], {n[2], n[3], n[4]}, {n[5], static_cast<long long>(n[6]), static_cast<long long>(n[7])}});
    }
    return true;
}

// squared_length(places) -> sum of squares of gradients
PyObject *squared_length(PyObject *, PyObject *args) {
    PyObject *places;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &places)) return nullptr;
    double total = 0;
    const bool done = each_place(places, [&](const Parameter &p) {
        const float *at = pointer(p.gradient);
        p.rows.each([&](long long begin) {
            // in pieces, summed in double precision
            for (long long done = 0; done < p.rows.width; done += 4096) {
                const int piece = static_cast<int>(p.rows.width - done < 4096 ? p.rows.width - done : 4096);
                total += kernels().dot(piece, at + begin + done, at + begin + done);
            }
        });
    });
    return done ? PyFloat_FromDouble(total) : nullptr;
}

// rule(rule, places); the gradients become zero
PyObject *rule(PyObject *, PyObject *args) {
    PyObject *given, *places;
    vector::UpdateRule rule;
    if (!PyArg_ParseTuple(args, "OO!", &given, &PyList_Type, &places) || !vector::read_rule(given, &rule))
        return nullptr;
    const bool done = each_place(places, [&](const Parameter &p) {
        p.rows.each([&](long long begin) {
            float *g = pointer(p.gradient) + begin, *moments[vector::UpdateRule::max_states];
            for (int i = 0; i < 3; i++) moments[i] = p.moments[i] ? pointer(p.moments[i]) + begin : nullptr;
            vector::update(rule, pointer(p.value) + begin, moments, g, static_cast<std::size_t>(p.rows.width));
            std::memset(g, 0, sizeof(float) * p.rows.width);
        });
    });
    if (!done) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef update_functions[] = {
    {"autobatch_squared_length", squared_length, METH_VARARGS,
     "Return the sum of squares of gradients, or of some of their rows."},
    {"autobatch_rule", rule, METH_VARARGS, "Run a trainer's update in place and clear the gradients."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace dpmodule::autobatch

namespace dpmodule {

int add_autobatch_update(PyObject *module) { return PyModule_AddFunctions(module, autobatch::update_functions); }

}  // namespace dpmodule
