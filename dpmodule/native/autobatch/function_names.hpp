// Arguments given by name.
#pragma once

#include "python.hpp"

namespace dpmodule::autobatch {

// What the arguments of a function in Python are called, and what they are where they are left out.
struct ArgumentNames {
    PyObject *names, *defaults;  // tuples; nullptr for no names known, and for no defaults
    // False: Python has raised.
    bool read(PyObject *function);
    void clear();
};

// The arguments of a call in their order.
class Arguments {
  public:
    // False: only the function itself can tell what these are.
    bool read(const ArgumentNames &known, PyObject *const *args, std::size_t flags, PyObject *keywords) {
        at = args;
        count = PyVectorcall_NARGS(flags);
        if (keywords) return put_in_order(known, keywords);
        return !known.names || count <= PyTuple_GET_SIZE(known.names);
    }
    PyObject *const *at;
    Py_ssize_t count;

  private:
    bool put_in_order(const ArgumentNames &known, PyObject *keywords);
    static constexpr Py_ssize_t most = 8;
    PyObject *ordered_[most];
};

}  // namespace dpmodule::autobatch
