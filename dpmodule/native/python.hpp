// Python's C API with small helpers, and the functions that add types to the module.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace dpmodule {

// Cast a function to a type slot.
template <class F>
void *slot(F function) {
    return reinterpret_cast<void *>(function);
}

// Free an object whose members have been destroyed.
inline void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

// Add a type to the module; it lives as long as the process. Returns nullptr with an exception.
PyTypeObject *add_type(PyObject *module, PyType_Spec &spec, PyTypeObject *base = nullptr);

// Make a list from the new references that item(i) returns; nullptr, with an exception, if one of them is nullptr.
template <class Item>
PyObject *list_of(std::size_t count, Item item) {
    PyObject *made = PyList_New(static_cast<Py_ssize_t>(count));
    for (std::size_t i = 0; made && i < count; ++i) {
        if (PyObject *each = item(i)) PyList_SET_ITEM(made, static_cast<Py_ssize_t>(i), each);
        else Py_CLEAR(made);
    }
    return made;
}

// Like list_of, but makes a tuple.
template <class Item>
PyObject *tuple_of(std::size_t count, Item item) {
    PyObject *list = list_of(count, item), *made = list ? PyList_AsTuple(list) : nullptr;
    Py_XDECREF(list);
    return made;
}

// Convert an address from Python to a pointer.
inline float *pointer(unsigned long long address) {
    return reinterpret_cast<float *>(static_cast<std::uintptr_t>(address));
}

// Parts of the module: `add_...` of a part adds its types and functions; it returns -1 with an exception.
// clang-format off: a list
#define DPMODULE_PARTS(PART)                                                                                  \
    PART(functor) PART(signal_bus) PART(thread_pool) PART(kernels) PART(io) PART(string_handle) PART(ready)   \
    PART(deflate) PART(checksum) PART(multislot) PART(records) PART(pipe_reader) PART(pipe_writer) PART(parcel) PART(autobatch_node)     \
    PART(autobatch_function) PART(autobatch_engine) PART(autobatch_layers) PART(autobatch_state)              \
    PART(autobatch_update) PART(ranges) PART(recorded_place) PART(recorded_cell) PART(recorder) PART(hogwild_run)
// clang-format on

#define DPMODULE_DECLARE(part) int add_##part(PyObject *module);
DPMODULE_PARTS(DPMODULE_DECLARE)
#undef DPMODULE_DECLARE

}  // namespace dpmodule
