// The functor that copies memory.
#include <cstring>

#include "python.hpp"
#include "ready.hpp"

namespace dpmodule {
namespace {

// dpmodule.native.functors.copy has checked the ranges; it knows the objects they belong to.
PyObject *make_copy(PyObject *, PyObject *args) {
    unsigned long long target, source;
    Py_ssize_t size;
    PyObject *owners;
    if (!PyArg_ParseTuple(args, "KKnO", &target, &source, &size, &owners)) return nullptr;
    return ready_from(
        [to = reinterpret_cast<void *>(static_cast<std::uintptr_t>(target)),
         from = reinterpret_cast<const void *>(static_cast<std::uintptr_t>(source)), size, kept = keep(owners)] {
            if (size > 0) std::memmove(to, from, static_cast<std::size_t>(size));  // they may be parts of one buffer
            return size;
        },
        PyLong_FromSsize_t);
}

PyMethodDef copy_functions[] = {
    {"copy", guard<make_copy>, METH_VARARGS, "copy(target, source, size, owners): a functor; both are addresses."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_copy(PyObject *module) { return PyModule_AddFunctions(module, copy_functions); }

}  // namespace dpmodule
