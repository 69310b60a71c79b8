// Python's C API as the files here use it, and the functions by which they add their types to the module.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace dpmodule {

// int add_thread_pool(PyObject *module);  // thread_pool.cpp

}  // namespace dpmodule
