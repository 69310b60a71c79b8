// `count_updates`: counts in memory that several processes add to at the same time.
#include "python.hpp"

namespace dpmodule {
namespace {

// Adds 1 to a count so that no other process's addition is lost; returns the new count.
inline std::int64_t add_one(std::int64_t *count) {
#if defined(__GNUC__)
    return __atomic_add_fetch(count, std::int64_t{1}, __ATOMIC_RELAXED);
#else
    return ++*count;
#endif
}

// Takes the address of int64 counts, how many there are, and a list of positions; returns the new counts there.
PyObject *count_updates(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count != 3 || !PyList_Check(given[2])) {
        PyErr_SetString(PyExc_TypeError, "expected an address, a number of counts and a list of positions");
        return nullptr;
    }
    const unsigned long long address = PyLong_AsUnsignedLongLong(given[0]);
    const Py_ssize_t size = PyLong_AsSsize_t(given[1]);
    if (PyErr_Occurred()) return nullptr;
    std::int64_t *const counts = reinterpret_cast<std::int64_t *>(static_cast<std::uintptr_t>(address));
    PyObject *const found = PyList_New(PyList_GET_SIZE(given[2]));
    for (Py_ssize_t i = 0; found && i < PyList_GET_SIZE(given[2]); ++i) {
        const Py_ssize_t at = PyLong_AsSsize_t(PyList_GET_ITEM(given[2], i));
        if (at < 0 || at >= size) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_IndexError, "there is no count %zd among %zd", at, size);
            Py_DECREF(found);
            return nullptr;
        }
        PyObject *const now = PyLong_FromLongLong(add_one(counts + at));
        if (!now) {
            Py_DECREF(found);
            return nullptr;
        }
        PyList_SET_ITEM(found, i, now);
    }
    return found;
}

PyMethodDef count_functions[] = {
    {"count_updates", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(count_updates)), METH_FASTCALL,
     "count_updates(address, size, positions)\n--\n\n"
     "Add 1 to int64 counts atomically and return the new ones."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_counts(PyObject *module) { return PyModule_AddFunctions(module, count_functions); }

}  // namespace dpmodule
