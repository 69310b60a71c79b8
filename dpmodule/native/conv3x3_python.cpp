// `conv3x3` and `conv3x3_gradients` for Python, and `conv3x3_lanes`, of which the filters are a multiple; for x86 alone.
#include "addresses.hpp"
#include "conv3x3.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#include <initializer_list>

namespace dpmodule {
namespace {

Conv3x3Sizes conv3x3_sizes(Arguments &next) {
    Conv3x3Sizes found{};
    for (std::ptrdiff_t *each :
         {&found.images, &found.height, &found.width, &found.channels, &found.filters, &found.step})
        *each = next.size();
    found.threads = static_cast<int>(next.size());
    return found;
}

Conv3x3Weight conv3x3_weight(Arguments &next) {
    Conv3x3Weight found{};
    found.numbers = next.floats();
    for (std::ptrdiff_t *each : {&found.filter, &found.channel, &found.row, &found.column}) *each = next.size();
    return found;
}

PyObject *conv3x3_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 17);
    Conv3x3 run{};
    run.size = conv3x3_sizes(next);
    run.spread = next.size();
    run.weight = conv3x3_weight(next);
    run.turned = next.size() != 0;
    run.data = next.floats();
    run.bias = next.floats();
    run.result = next.floats();
    return next.good() ? without_gil(conv3x3, run) : nullptr;
}

PyObject *conv3x3_gradients_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 15);
    Conv3x3Gradients run{};
    run.size = conv3x3_sizes(next);
    run.weight = conv3x3_weight(next);
    run.data = next.floats();
    run.grad = next.floats();
    run.bias = next.floats();
    return next.good() ? without_gil(conv3x3_gradients, run) : nullptr;
}

PyObject *conv3x3_lanes_of(PyObject *, PyObject *) { return PyLong_FromSsize_t(conv3x3_lanes()); }

// Python keeps a pointer to this table
PyMethodDef conv3x3_functions[] = {
    {"conv3x3", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(conv3x3_of)), METH_FASTCALL,
     "conv3x3(images, height, width, channels, filters, step, threads, spread, weight, filter_stride, channel_stride, "
     "row_stride, column_stride, turned, data, bias, result)\n--\n\n"
     "Convolve images; arguments are sizes, strides and addresses, see conv3x3.hpp."},
    {"conv3x3_gradients", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(conv3x3_gradients_of)),
     METH_FASTCALL,
     "conv3x3_gradients(images, height, width, channels, filters, step, threads, weight, filter_stride, "
     "channel_stride, row_stride, column_stride, data, grad, bias)\n--\n\n"
     "Compute the gradients of weight and bias; see conv3x3.hpp."},
    {"conv3x3_lanes", conv3x3_lanes_of, METH_NOARGS,
     "conv3x3_lanes()\n--\n\n"
     "Return how many filters are computed at once; 0: the processor is not for it."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_conv3x3(PyObject *module) { return PyModule_AddFunctions(module, conv3x3_functions); }

}  // namespace dpmodule

#else

int dpmodule::add_conv3x3(PyObject *) { return 0; }

#endif
