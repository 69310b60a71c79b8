// Functions by which trainers update parameters in place: float32 arrays given by address, whole or by rows.
#include <cstdint>
#include <cstring>

#include "kernels.hpp"
#include "python.hpp"

namespace dpmodule::autobatch {
namespace {

float *pointer(unsigned long long address) { return reinterpret_cast<float *>(static_cast<std::uintptr_t>(address)); }

// An array seen as rows: those that `rows` names, or all of it as one.
struct Rows {
    unsigned long long numbers;   // address of int64, 0: one row
    long long count, width;
    template <class F> void each(F body) const {
        const auto *given = reinterpret_cast<const std::int64_t *>(static_cast<std::uintptr_t>(numbers));
        for (long long i = 0; i < count; i++) body((given ? given[i] : i) * width);
    }
};

// squared_length(address, rows address or 0, count, width) -> sum of squares
PyObject *squared_length(PyObject *, PyObject *args) {
    unsigned long long address;
    Rows rows;
    if (!PyArg_ParseTuple(args, "KKLL", &address, &rows.numbers, &rows.count, &rows.width)) return nullptr;
    double total = 0;
    const float *at = pointer(address);
    rows.each([&](long long begin) {
        // in pieces, whose sums are added in double precision
        for (long long done = 0; done < rows.width; done += 4096) {
            const int piece = static_cast<int>(rows.width - done < 4096 ? rows.width - done : 4096);
            total += kernels().dot(piece, at + begin + done, at + begin + done);
        }
    });
    return PyFloat_FromDouble(total);
}

// rule(kind, value, gradient, three moments: addresses or 0, rows address or 0, count, width, four factors, scale); the
// gradient becomes zero
PyObject *rule(PyObject *, PyObject *args) {
    int kind;
    unsigned long long value, gradient, given[3];
    Rows rows;
    float factors[4], scale;
    if (!PyArg_ParseTuple(args, "iKKKKKKLLfffff", &kind, &value, &gradient, &given[0], &given[1], &given[2], &rows.numbers,
                          &rows.count, &rows.width, &factors[0], &factors[1], &factors[2], &factors[3], &scale)) return nullptr;
    if (kind < 0 || kind > static_cast<int>(Rule::Amsgrad)) return PyErr_Format(PyExc_ValueError, "no rule %d", kind);
    rows.each([&](long long begin) {
        float *g = pointer(gradient) + begin, *moments[3];
        for (int i = 0; i < 3; i++) moments[i] = given[i] ? pointer(given[i]) + begin : nullptr;
        kernels().rule(static_cast<Rule>(kind), static_cast<long>(rows.width), pointer(value) + begin, g, moments, factors, scale);
        std::memset(g, 0, sizeof(float) * rows.width);
    });
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"autobatch_squared_length", squared_length, METH_VARARGS, "The sum of squares of a float32 array, or of some of its rows."},
    {"autobatch_rule", rule, METH_VARARGS, "A trainer's step in place; the gradient becomes zero."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace dpmodule::autobatch

namespace dpmodule {

int add_autobatch_update(PyObject *module) { return PyModule_AddFunctions(module, autobatch::functions); }

}  // namespace dpmodule
