// What functions share that compute on tensors given as addresses: Python has checked shapes, types and strides, and
// keeps the tensors alive.
#pragma once

#include "python.hpp"

namespace dpmodule {

// Reads arguments one after the other; the first one that is wrong sets Python's error, and the rest read as 0.
class Arguments {
  public:
    Arguments(PyObject *const *given, Py_ssize_t count, Py_ssize_t expected) : given_(given), good_(count == expected) {
        if (!good_) PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, count);
    }

    Py_ssize_t size() {
        if (!good_) return 0;
        const Py_ssize_t found = PyLong_AsSsize_t(*given_++);
        good_ = found != -1 || !PyErr_Occurred();
        return found;
    }

    float *floats() {
        if (!good_) return nullptr;
        void *found = PyLong_AsVoidPtr(*given_++);
        good_ = found || !PyErr_Occurred();
        return static_cast<float *>(found);
    }

    double number() {
        if (!good_) return 0;
        const double found = PyFloat_AsDouble(*given_++);
        good_ = found != -1.0 || !PyErr_Occurred();
        return found;
    }

    bool good() const { return good_; }

  private:
    PyObject *const *given_;
    bool good_;
};

// Runs a function that knows nothing of Python; false from it means that there was no memory.
template <class Run>
PyObject *without_gil(bool (*function)(const Run &), const Run &run) {
    bool done;
    Py_BEGIN_ALLOW_THREADS
    done = function(run);
    Py_END_ALLOW_THREADS
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

}  // namespace dpmodule
