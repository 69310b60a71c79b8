// `convolve` for Python, and `convolution_block`, how many filters lie together in its weight; for x86 alone.
#include "addresses.hpp"
#include "convolution.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#include <initializer_list>

namespace dpmodule {
namespace {

Axis axis(Arguments &next) {
    Axis found{};
    for (std::ptrdiff_t *each : {&found.size, &found.result, &found.kernel, &found.stride, &found.dilate, &found.pad}) {
        *each = next.size();
    }
    return found;
}

PyObject *convolve_tensors(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 22);
    Convolution convolution{};
    convolution.images = next.size();
    convolution.channels = next.size();
    convolution.filters = next.size();
    convolution.y = axis(next);
    convolution.x = axis(next);
    convolution.block = next.size();
    convolution.relu = next.size();
    convolution.data = next.floats();
    convolution.weight = next.floats();
    convolution.bias = next.floats();
    convolution.other = next.floats();
    convolution.result = next.floats();
    return next.good() ? without_gil(convolve, convolution) : nullptr;
}

PyObject *block_of(PyObject *, PyObject *given) {
    const Py_ssize_t filters = PyLong_AsSsize_t(given);
    return filters == -1 && PyErr_Occurred() ? nullptr : PyLong_FromSsize_t(convolution_block(filters));
}

// Python keeps a pointer to this table
PyMethodDef convolution_functions[] = {
    {"convolve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(convolve_tensors)), METH_FASTCALL,
     "convolve(images, channels, filters, size, result, kernel, stride, dilate, pad, size, result, kernel, stride, "
     "dilate, pad, block, relu, data, weight, bias, other, result)\n--\n\n"
     "Convolve images; arguments are sizes and addresses, see convolution.hpp."},
    {"convolution_block", block_of, METH_O,
     "convolution_block(filters)\n--\n\n"
     "Return how many filters lie together in the weight that `convolve` reads; 0: the processor is not for it."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_convolution(PyObject *module) { return PyModule_AddFunctions(module, convolution_functions); }

}  // namespace dpmodule

#else

int dpmodule::add_convolution(PyObject *) { return 0; }

#endif
