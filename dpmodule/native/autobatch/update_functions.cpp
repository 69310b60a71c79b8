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

// adam(value, gradient, mean, square: addresses, rows address or 0, count, width, beta_1, beta_2, rate, eps, scale);
// the gradient becomes zero
PyObject *adam(PyObject *, PyObject *args) {
    unsigned long long value, gradient, mean, square;
    Rows rows;
    double beta1, beta2, rate, eps, scale;
    if (!PyArg_ParseTuple(args, "KKKKKLLddddd", &value, &gradient, &mean, &square, &rows.numbers, &rows.count, &rows.width, &beta1,
                          &beta2, &rate, &eps, &scale)) return nullptr;
    rows.each([&](long long begin) {
        float *g = pointer(gradient) + begin;
        kernels().adam(static_cast<long>(rows.width), pointer(value) + begin, g, pointer(mean) + begin, pointer(square) + begin,
                       static_cast<float>(beta1), static_cast<float>(beta2), static_cast<float>(rate), static_cast<float>(eps),
                       1.0f, static_cast<float>(scale));
        std::memset(g, 0, sizeof(float) * rows.width);
    });
    Py_RETURN_NONE;
}

// step(value, gradient: addresses, rows address or 0, count, width, rate): value += rate * gradient, which becomes zero
PyObject *step(PyObject *, PyObject *args) {
    unsigned long long value, gradient;
    Rows rows;
    double rate;
    if (!PyArg_ParseTuple(args, "KKKLLd", &value, &gradient, &rows.numbers, &rows.count, &rows.width, &rate)) return nullptr;
    rows.each([&](long long begin) {
        float *g = pointer(gradient) + begin;
        for (long long done = 0; done < rows.width; done += 1 << 20) {
            const int piece = static_cast<int>(rows.width - done < (1 << 20) ? rows.width - done : 1 << 20);
            kernels().axpy(piece, pointer(value) + begin + done, static_cast<float>(rate), g + done);
        }
        std::memset(g, 0, sizeof(float) * rows.width);
    });
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"autobatch_squared_length", squared_length, METH_VARARGS, "The sum of squares of a float32 array, or of some of its rows."},
    {"autobatch_adam", adam, METH_VARARGS, "A step of Adam in place; the gradient becomes zero."},
    {"autobatch_step", step, METH_VARARGS, "A step along the gradient in place; the gradient becomes zero."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace dpmodule::autobatch

namespace dpmodule {

int add_autobatch_update(PyObject *module) { return PyModule_AddFunctions(module, autobatch::functions); }

}  // namespace dpmodule
