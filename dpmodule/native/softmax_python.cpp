// `softmax` for Python. Compilers without vector types get none.
#include "addresses.hpp"
#include "softmax.hpp"

#if defined(__GNUC__)

namespace dpmodule {
namespace {

PyObject *softmax_tensor(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 4);
    Softmax run{};
    run.rows = next.size();
    run.classes = next.size();
    run.scores = next.floats();
    run.result = next.floats();
    return next.good() ? without_gil(softmax, run) : nullptr;
}

// Python keeps a pointer to this table
PyMethodDef softmax_functions[] = {
    {"softmax", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(softmax_tensor)), METH_FASTCALL,
     "softmax(rows, classes, scores, result)\n--\n\n"
     "Apply softmax to short rows; arguments are sizes and addresses, see softmax.hpp."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_softmax(PyObject *module) { return PyModule_AddFunctions(module, softmax_functions); }

}  // namespace dpmodule

#else

int dpmodule::add_softmax(PyObject *) { return 0; }

#endif
