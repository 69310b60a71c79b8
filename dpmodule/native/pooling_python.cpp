// `max_pool` for Python. Compilers without vector types get none.
#include "addresses.hpp"
#include "pooling.hpp"

#if defined(__GNUC__)

namespace dpmodule {
namespace {

PyObject *max_pool_tensor(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 15);
    Pooling pooling{};
    pooling.images = next.size();
    pooling.channels = next.size();
    for (auto *pair : {pooling.sizes, pooling.counts, pooling.kernel, pooling.stride, pooling.pad}) {
        pair[0] = next.size();
        pair[1] = next.size();
    }
    pooling.data = next.floats();
    pooling.result = next.floats();
    pooling.threads = static_cast<int>(next.size());
    return next.good() ? without_gil(max_pool, pooling) : nullptr;
}

// Python keeps a pointer to this table
PyMethodDef pooling_functions[] = {
    {"max_pool", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(max_pool_tensor)), METH_FASTCALL,
     "max_pool(images, channels, *sizes, *counts, *kernel, *stride, *pad, data, result, threads)\n--\n\n"
     "Write the greatest number of each window; arguments are sizes and addresses, see pooling.hpp."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_pooling(PyObject *module) { return PyModule_AddFunctions(module, pooling_functions); }

}  // namespace dpmodule

#else

int dpmodule::add_pooling(PyObject *) { return 0; }

#endif
