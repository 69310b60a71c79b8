// `norm_forward` and `norm_backward` for Python. Compilers without vector types get no such functions.
#include "addresses.hpp"
#include "norm.hpp"

#if defined(__GNUC__)

namespace dpmodule {
namespace {

NormRows norm_rows(Arguments &next) {
    NormRows found{};
    found.rows = next.size();
    found.channels = next.size();
    found.threads = static_cast<int>(next.size());
    return found;
}

PyObject *norm_forward_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 16);
    NormForward run{};
    run.size = norm_rows(next);
    run.relu = next.size() != 0;
    run.eps = next.number();
    run.momentum = next.number();
    run.x = next.floats();
    run.other = next.floats();
    run.gamma = next.floats();
    run.beta = next.floats();
    run.moving_mean = next.floats();
    run.moving_var = next.floats();
    run.out = next.floats();
    run.statistics = next.floats();
    run.new_mean = next.floats();
    run.new_var = next.floats();
    return next.good() ? without_gil(norm_forward, run) : nullptr;
}

PyObject *norm_backward_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 13);
    NormBackward run{};
    run.size = norm_rows(next);
    run.relu = next.size() != 0;
    run.nan_stays = next.size() != 0;
    run.grad = next.floats();
    run.x = next.floats();
    run.out = next.floats();
    run.statistics = next.floats();
    run.for_other = next.floats();
    run.for_x = next.floats();
    run.for_gamma = next.floats();
    run.for_beta = next.floats();
    return next.good() ? without_gil(norm_backward, run) : nullptr;
}

// Python keeps a pointer to this table
PyMethodDef norm_functions[] = {
    {"norm_forward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(norm_forward_of)), METH_FASTCALL,
     "norm_forward(rows, channels, threads, relu, eps, momentum, x, other, gamma, beta, moving_mean, moving_var, out, "
     "statistics, new_mean, new_var)\n--\n\n"
     "Normalise over the batch, add and rectify; arguments are sizes, numbers and addresses, see norm.hpp."},
    {"norm_backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(norm_backward_of)), METH_FASTCALL,
     "norm_backward(rows, channels, threads, relu, nan_stays, grad, x, out, statistics, for_other, for_x, for_gamma, "
     "for_beta)\n--\n\nCompute its gradients; see norm.hpp."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_norm(PyObject *module) { return PyModule_AddFunctions(module, norm_functions); }

}  // namespace dpmodule

#else

int dpmodule::add_norm(PyObject *) { return 0; }

#endif
