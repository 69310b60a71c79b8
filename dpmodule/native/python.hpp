// Python's C API as the files here use it, and the functions by which they add their types to the module.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace dpmodule {

// A function as a slot of a type.
template <class F>
void *slot(F function) {
    return reinterpret_cast<void *>(function);
}

// Gives an object's memory back, once all in it has been destroyed.
inline void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

// Adds a type to the module; it lives as long as the process. nullptr if Python has raised.
PyTypeObject *add_type(PyObject *module, PyType_Spec &spec, PyTypeObject *base = nullptr);

// A new list of what item(i) returns, new references; nullptr if one of them is, and Python has raised.
template <class Item>
PyObject *list_of(std::size_t count, Item item) {
    PyObject *made = PyList_New(static_cast<Py_ssize_t>(count));
    for (std::size_t i = 0; made && i < count; ++i) {
        if (PyObject *each = item(i)) PyList_SET_ITEM(made, static_cast<Py_ssize_t>(i), each);
        else Py_CLEAR(made);
    }
    return made;
}

// The same as a tuple.
template <class Item>
PyObject *tuple_of(std::size_t count, Item item) {
    PyObject *list = list_of(count, item), *made = list ? PyList_AsTuple(list) : nullptr;
    Py_XDECREF(list);
    return made;
}

// Floats at an address that Python has given as a number.
inline float *pointer(unsigned long long address) {
    return reinterpret_cast<float *>(static_cast<std::uintptr_t>(address));
}

// What the module consists of: `add_...` of each part adds its types and functions, and returns -1 if Python has raised.
// clang-format off: a list
#define DPMODULE_PARTS(PART)                                                                                  \
    PART(functor) PART(signal_bus) PART(thread_pool) PART(kernels) PART(io) PART(string_handle) PART(ready)   \
    PART(deflate) PART(checksum) PART(copy) PART(multislot) PART(records) PART(pipe_reader) PART(pipe_writer) \
    PART(autobatch_node) PART(autobatch_function) PART(autobatch_engine) PART(autobatch_layers)               \
    PART(autobatch_state) PART(autobatch_update) PART(hogwild_run)
// clang-format on

#define DPMODULE_DECLARE(part) int add_##part(PyObject *module);
DPMODULE_PARTS(DPMODULE_DECLARE)
#undef DPMODULE_DECLARE

}  // namespace dpmodule
