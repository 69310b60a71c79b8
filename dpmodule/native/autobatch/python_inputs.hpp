// Inputs and constants, made of numbers, lists, arrays and sizes of Python.
#pragma once

#include "python_builder.hpp"

namespace dpmodule::autobatch {

// What a function is given: a number; a list of numbers, or an array, of which only the order or also the shape counts;
// the sizes of a tensor of one number, which may come after them.
enum class Given : int { Number, Vector, Tensor, Zeros, Matrix, Ones, Constant };

// One size or a list of them, all positive; false for what needs the slow way.
bool sizes(PyObject *x, std::vector<int> &found);

// The node, or -1 for what needs the slow way.
int input_of(Given given, PyObject *const *args, Py_ssize_t count);

}  // namespace dpmodule::autobatch
