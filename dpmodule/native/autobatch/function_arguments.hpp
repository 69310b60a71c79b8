// Arguments of functions that are no expressions. All return -1 or false for what needs the slow way.
#pragma once

#include "python_state.hpp"

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

// Inputs and constants (python_inputs.cpp), made of numbers, lists, arrays and sizes of Python.

// What a function is given: a number; a list of numbers, or an array, of which only the order or also the shape counts;
// the sizes of a tensor of one number, which may come after them.
enum class Given : int { Number, Vector, Tensor, Zeros, Matrix, Ones, Constant };

// One size or a list of them, all positive; false for what needs the slow way.
bool sizes(PyObject *x, std::vector<int> &found);

// The node, or -1 for what needs the slow way.
int input_of(Given given, PyObject *const *args, Py_ssize_t count);

// Arguments given by name.

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
