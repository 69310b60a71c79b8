// Arguments of functions that are no expressions. All return -1 or false for what needs the slow way.
#pragma once

#include "python_builder.hpp"

namespace dpmodule::autobatch {

bool whole(PyObject *x, int &found);
// A list or tuple of some integers.
bool several_whole(PyObject *x, std::vector<int> &found);
bool real(PyObject *x, double &found);  // finite
// The node of a sum, mean or extreme: x and then (d, b, n) of sums and means, (d=0) of all others.
int along(Reduction kind, int x, PyObject *const *args, Py_ssize_t count);
// The node of a mean of powers: x, then (d, r, b, n) or, over all elements or the minibatch, (r).
enum class Over { Dimensions, Elements, Minibatch };
int moment(Over over, int x, PyObject *const *args, Py_ssize_t count);
unsigned all_axes(int x);  // as Builder::along takes them; 0: too many
// Elements of the minibatch, rows and columns, places by strides, elements of labels: x and then what the functions take.
enum class Part { Member, Members, Rows, Columns, Strided };
int part(Part kind, int x, PyObject *const *args, Py_ssize_t count);
// (dimension=0) of softmax; (places that take part) of log_softmax.
int softmax(Op op, int x, PyObject *const *args, Py_ssize_t count);
// Random numbers: (sizes, first number, second number).
int draw_numbers(Draw kind, PyObject *const *args, Py_ssize_t count);
// Some rows of a table, side by side in a minibatch.
int rows(PyObject *given, PyObject *numbers);

}  // namespace dpmodule::autobatch
