// `first_nonfinite` for Python.
#include "addresses.hpp"
#include "finite.hpp"

namespace dpmodule {
namespace {

// Takes a list of addresses of float32 numbers and a list of how many there are; returns the position of the first
// with a number that is not finite, -1 if there is none.
PyObject *first_nonfinite(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyList_Check(given[0]) || !PyList_Check(given[1]) ||
        PyList_GET_SIZE(given[0]) != PyList_GET_SIZE(given[1])) {
        PyErr_SetString(PyExc_TypeError, "expected two lists of one length: addresses and sizes");
        return nullptr;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given[0]); ++i) {
        PyObject *const pair[] = {PyList_GET_ITEM(given[0], i), PyList_GET_ITEM(given[1], i)};
        Arguments next(pair, 2, 2);
        const float *at = next.floats();
        const Py_ssize_t size = next.size();
        if (!next.good()) return nullptr;
        if (!all_finite(at, size)) return PyLong_FromSsize_t(i);
    }
    return PyLong_FromLong(-1);
}

// Python keeps a pointer to this table
PyMethodDef functions[] = {
    {"first_nonfinite", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(first_nonfinite)), METH_FASTCALL,
     "first_nonfinite(addresses, sizes)\n--\n\n"
     "Return which of several runs of float32 numbers is the first that has one that is not finite, else -1."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_finite(PyObject *module) { return PyModule_AddFunctions(module, functions); }

}  // namespace dpmodule
