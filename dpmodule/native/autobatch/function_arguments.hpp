// Arguments other than expressions. All functions return -1 or false to fall back to Python.
#pragma once

#include "python_state.hpp"

namespace dpmodule::autobatch {

bool whole(PyObject *x, int &found);
// A list or tuple of some integers.
bool several_whole(PyObject *x, std::vector<int> &found);
bool real(PyObject *x, double &found);  // finite
// The node of a sum, mean or extreme: x and then (d, b, n) for sums and means, (d=0) for others.
int along(Reduction kind, int x, PyObject *const *args, Py_ssize_t count);
// The node of a mean of powers: x, then (d, r, b, n), or (r) over all elements or the minibatch.
enum class Over { Dimensions, Elements, Minibatch };
int moment(Over over, int x, PyObject *const *args, Py_ssize_t count);
unsigned all_axes(int x);  // as Builder::along takes them; 0: too many
// Selection of minibatch elements, rows, columns, strides, labels: x and then the functions' arguments.
enum class Part { Member, Members, Rows, Columns, Strided };
int part(Part kind, int x, PyObject *const *args, Py_ssize_t count);
// (dimension=0) for softmax; (indices) for log_softmax.
int softmax(Op op, int x, PyObject *const *args, Py_ssize_t count);
// Random numbers: (sizes, first number, second number).
int draw_numbers(Draw kind, PyObject *const *args, Py_ssize_t count);
// Rows of a table as a minibatch.
int rows(PyObject *given, PyObject *numbers);

// Inputs and constants (python_inputs.cpp) from Python numbers, lists, arrays and sizes.

// Arguments of an input function: a number; a list or array, with or without its shape; or sizes, optionally followed
// by a number.
enum class InputKind : int { Number, Vector, Tensor, Zeros, Matrix, Ones, Constant };

// One positive size or a list of sizes; false to fall back to Python.
bool sizes(PyObject *x, std::vector<int> &found);

// The node, or -1 to fall back to Python.
int input_of(InputKind given, PyObject *const *args, Py_ssize_t count);

// Keyword arguments.

// Names and defaults of a Python function's arguments.
struct ArgumentNames {
    PyObject *names, *defaults;  // tuples; nullptr without known names or defaults
    // False: a Python error is set.
    bool read(PyObject *function);
    void clear();
};

// The arguments of a call, in order.
class Arguments {
  public:
    // False: the arguments need the Python function.
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
