// Arguments other than expressions. All functions return -1 or false to fall back to Python.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "python_parameters.hpp"
#include "python_state.hpp"

namespace dpmodule::autobatch {

// The node of a mean of powers: x, then (d, r, b, n), or (r) over all elements or the minibatch.
enum class Over { Dimensions, Elements, Minibatch };
// Selection of minibatch elements, rows, columns, strides, labels: x and then the functions' arguments.
enum class Part { Member, Members, Rows, Columns, Strided };
// Arguments of an input function: a number; a list or array, with or without its shape; or sizes, optionally followed
// by a number.
enum class InputKind : int { Number, Vector, Tensor, Zeros, Matrix, Ones, Constant };

inline bool whole(PyObject *x, int &found) {
    if (!PyLong_CheckExact(x)) return false;
    int overflow;
    const long value = PyLong_AsLongAndOverflow(x, &overflow);
    found = static_cast<int>(value);
    return !overflow && value == found;
}

// A finite float.
inline bool real(PyObject *x, double &found) {
    if (!PyFloat_CheckExact(x)) return false;
    found = PyFloat_AS_DOUBLE(x);
    return std::isfinite(found);
}

// A list or tuple of some integers.
inline bool several_whole(PyObject *x, std::vector<int> &found) {
    if (!PyList_CheckExact(x) && !PyTuple_CheckExact(x)) return false;
    found.resize(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(x)));
    for (std::size_t i = 0; i < found.size(); i++) {
        if (!whole(PySequence_Fast_GET_ITEM(x, static_cast<Py_ssize_t>(i)), found[i])) return false;
    }
    return !found.empty();
}

// The bits of all dimensions, as Builder::along takes them; 0: too many.
inline unsigned all_axes(int x) {
    const std::size_t rank = current.engine->graph.shape(x).dims.size();
    return rank < 30 ? (2u << rank) - 2u : 0;
}

inline bool is_list(PyObject *x) { return PyList_CheckExact(x) || PyTuple_CheckExact(x); }

inline bool size(PyObject *x, int &found) {
    int overflow = 1;
    const long value = PyLong_CheckExact(x) ? PyLong_AsLongAndOverflow(x, &overflow) : 0;
    found = static_cast<int>(value);
    return !overflow && value == found && value > 0;
}

// One positive size or a list of sizes; false to fall back to Python.
inline bool sizes(PyObject *x, std::vector<int> &found) {
    found.assign(1, 0);
    if (!is_list(x)) return size(x, found[0]);
    found.resize(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(x)));
    for (std::size_t i = 0; i < found.size(); i++) {
        if (!size(PySequence_Fast_GET_ITEM(x, static_cast<Py_ssize_t>(i)), found[i])) return false;
    }
    return !found.empty();
}

// The bits of one or several dimensions for Builder::along.
inline bool axis(PyObject *x, unsigned &bits) {
    int found;
    if (!whole(x, found) || found < 0 || found > 29 || bits >> (found + 1) & 1) return false;
    bits |= 2u << found;
    return true;
}

inline bool several_axes(PyObject *x, unsigned &bits) {
    if (!PyList_CheckExact(x) && !PyTuple_CheckExact(x)) return axis(x, bits);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(x); i++) {
        if (!axis(PySequence_Fast_GET_ITEM(x, i), bits)) return false;
    }
    return true;
}

// (b, n=0): the bit of the minibatch, a divisor.
inline bool batch_and_divisor(PyObject *const *args, Py_ssize_t count, unsigned &bits, int &divisor) {
    if (count > 2 || (count > 0 && !PyBool_Check(args[0])) || (count > 1 && (!whole(args[1], divisor) || divisor < 0)))
        return false;
    bits |= count > 0 && args[0] == Py_True;
    return true;
}

// The node of a sum, mean or extreme: x and then (d, b, n) for sums and means, (d=0) for others.
inline int along(Reduction kind, int x, PyObject *const *args, Py_ssize_t count) {
    const bool divides = kind == Reduction::Mean || kind == Reduction::Deviation,
               many = divides || kind == Reduction::Sum;
    unsigned axes = 0;
    int divisor = 0;
    if (!many) {
        const bool fits = count == 1 ? (axes = 2) : count == 2 && axis(args[1], axes);
        return fits ? current_builder().along(kind, x, axes) : -1;
    }
    if (count < (divides ? 3 : 2) || !several_axes(args[1], axes) ||
        !batch_and_divisor(args + 2, count - 2, axes, divisor))
        return -1;
    return current_builder().along(kind, x, axes, divides ? divisor : 0);
}

inline int moment(Over over, int x, PyObject *const *args, Py_ssize_t count) {
    const bool dimensions = over == Over::Dimensions;
    int power, divisor = 0;
    unsigned axes = over == Over::Minibatch;
    if (dimensions ? count < 4 : count != 2) return -1;
    if (!whole(args[1 + dimensions], power) || power < 1) return -1;
    if (dimensions && !(several_axes(args[1], axes) && batch_and_divisor(args + 3, count - 3, axes, divisor)))
        return -1;
    if (over == Over::Elements) axes = all_axes(x);
    return axes ? current_builder().moment(power, x, axes, divisor) : -1;
}

// defaults of random_normal, random_gumbel and random_bernoulli
// Random numbers: (sizes, first number, second number).
inline int draw_numbers(Draw kind, PyObject *const *args, Py_ssize_t count) {
    double numbers[2] = {0.0, 1.0};
    const Py_ssize_t least = kind == Draw::Uniform ? 3 : kind == Draw::Bernoulli ? 2 : 1;
    if (count < least || count > 3) return -1;
    for (Py_ssize_t i = 1; i < count; i++) {
        if (!real(args[i], numbers[i - 1])) return -1;
    }
    const bool fits = kind == Draw::Uniform     ? numbers[0] <= numbers[1]
                      : kind == Draw::Bernoulli ? numbers[0] >= 0 && numbers[0] <= 1
                                                : numbers[1] >= 0;
    std::vector<int> dims;
    if (!fits || !sizes(args[0], dims)) return -1;
    return current_builder().random(kind, current.engine->graph.signatures.add_shape(dims), numbers[0], numbers[1]);
}

inline int part(Part kind, int x, PyObject *const *args, Py_ssize_t count) {
    Builder &build = current_builder();
    std::vector<int> numbers[3];
    const Py_ssize_t most = kind == Part::Strided ? 4 : 2;
    if (count < 2 || count > most) return -1;
    for (Py_ssize_t i = 1; i < count; i++) {
        std::vector<int> &into = numbers[i - 1];
        const bool is_empty = i > 1 && (PyList_CheckExact(args[i]) || PyTuple_CheckExact(args[i])) &&
                              PySequence_Fast_GET_SIZE(args[i]) == 0;
        if (kind == Part::Member ? !whole(args[i], (into.resize(1), into[0]))
                                 : !is_empty && !several_whole(args[i], into))
            return -1;
    }
    if (kind == Part::Strided) return build.strided(x, numbers[0], numbers[1], numbers[2]);
    if (kind == Part::Member || kind == Part::Members) return build.elements(x, numbers[0]);
    const std::vector<int> &dims = current.engine->graph.shape(x).dims;
    if (kind == Part::Columns && dims.size() < 2) return -1;
    std::vector<int> all(dims.size() < 2 ? 1 : dims[kind == Part::Rows]);
    std::iota(all.begin(), all.end(), 0);
    return kind == Part::Rows ? build.select(x, numbers[0], all) : build.select(x, all, numbers[0]);
}

// (dimension=0) for softmax; (indices) for log_softmax.
inline int softmax(Op op, int x, PyObject *const *args, Py_ssize_t count) {
    Builder &build = current_builder();
    int axis = 0;
    std::vector<int> places;
    if (count == 2 && op == Op::LogSoftmax) return several_whole(args[1], places) ? build.restricted(x, places) : -1;
    return count == 1 || (count == 2 && whole(args[1], axis)) ? build.softmax(op, x, axis) : -1;
}

// Rows of a table as a minibatch.
inline int rows(PyObject *given, PyObject *numbers) {
    std::vector<int> nodes;
    if (!PyObject_TypeCheck(given, node_type) || !several_whole(numbers, nodes)) return -1;
    const auto *object = reinterpret_cast<NodeObject *>(given);
    if (object->table < 0 || object->serial != current.serial) return -1;
    const int size = current.engine->graph.tables[object->table]->rows;
    for (int each : nodes) {
        if (each < 0 || each >= size) return -1;
    }
    parameters_of_current->hold_table(object->table);
    for (int &each : nodes) each = current_builder().lookup(object->table, each);
    return current_builder().to_batch(nodes.data(), static_cast<int>(nodes.size()), -2);
}

// An integer must be exact as a double.
inline bool number(PyObject *x, float &found) {
    if (PyFloat_Check(x)) {
        found = static_cast<float>(PyFloat_AS_DOUBLE(x));
        return true;
    }
    constexpr long long most = 1LL << 53;
    int overflow = 1;
    const long long value = PyLong_CheckExact(x) ? PyLong_AsLongLongAndOverflow(x, &overflow) : 0;
    found = static_cast<float>(value);
    return !overflow && value <= most && value >= -most;
}

inline int filled(const std::vector<int> &dims, float value) {
    float *at;
    const int node = current_builder().input(dims, at);
    std::fill_n(at, current.engine->graph.signature(node).width, value);
    return node;
}

inline int of_list(PyObject *list) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    if (count == 0 || count > INT32_MAX) return -1;
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!number(PySequence_Fast_GET_ITEM(list, i), numbers[static_cast<std::size_t>(i)])) return -1;
    }
    float *at;
    const int node = current_builder().input({static_cast<int>(count)}, at);
    std::copy(numbers.begin(), numbers.end(), at);
    return node;
}

struct Axis {
    Py_ssize_t size, step;  // in bytes
};

// Row by row, the first axis outermost.
template <class T>
float *copy(const char *from, const Axis *axis, const Axis *end, float *to) {
    if (axis + 1 < end) {
        for (Py_ssize_t i = 0; i < axis->size; i++) to = copy<T>(from + i * axis->step, axis + 1, end, to);
        return to;
    }
    for (Py_ssize_t i = 0; i < axis->size; i++, from += axis->step) {
        T x;
        std::memcpy(&x, from, sizeof x);  // arrays may be unaligned
        *to++ = static_cast<float>(x);
    }
    return to;
}

enum class As { Vector, Tensor, Minibatch };  // a minibatch has its elements along the last axis

// Of float32 or float64.
inline int of_array(PyObject *array, As as) {
    struct Data : Py_buffer {
        explicit Data(PyObject *array) {
            is_there = PyObject_GetBuffer(array, this, PyBUF_STRIDED_RO | PyBUF_FORMAT) == 0;
        }
        ~Data() {
            if (is_there) PyBuffer_Release(this);
            else PyErr_Clear();
        }
        bool is_there;
    } data(array);
    if (!data.is_there || data.ndim < 1 || !data.format) return -1;
    const bool doubles = !std::strcmp(data.format, "d");
    if (!doubles && std::strcmp(data.format, "f")) return -1;
    std::vector<Axis> axes;
    std::vector<int> dims;
    for (int k = 0; k < data.ndim; k++) {
        if (data.shape[k] < 1 || data.shape[k] > INT32_MAX) return -1;
        axes.push_back({data.shape[k], data.strides[k]});
        dims.push_back(static_cast<int>(data.shape[k]));
    }
    int batch = 1;
    if (as == As::Vector) {
        if (data.len / data.itemsize > INT32_MAX) return -1;
        dims = {static_cast<int>(data.len / data.itemsize)};
    }
    if (as == As::Minibatch) {
        std::rotate(axes.begin(), axes.end() - 1, axes.end());
        batch = dims.back();
        dims.pop_back();
        if (dims.empty()) dims = {1};
    }
    float *at;
    const int node = current_builder().input(dims, at, batch);
    const char *from = static_cast<const char *>(data.buf);
    if (doubles) copy<double>(from, axes.data(), axes.data() + axes.size(), at);
    else copy<float>(from, axes.data(), axes.data() + axes.size(), at);
    return node;
}

// The node, or -1 to fall back to Python.
inline int input_of(InputKind given, PyObject *const *args, Py_ssize_t count) {
    // device and reusable_expr, which follow the flag, are ignored
    const bool has_flag = given == InputKind::Tensor && count >= 2 && count <= 4 && PyBool_Check(args[1]);
    if (!has_flag && count != (given == InputKind::Constant || given == InputKind::Matrix ? 2 : 1)) return -1;
    std::vector<int> dims;
    float value = given == InputKind::Ones ? 1.0f : 0.0f;
    switch (given) {
        case InputKind::Number: return number(args[0], value) ? filled({1}, value) : -1;
        case InputKind::Vector:
        case InputKind::Tensor:
            if (is_list(args[0])) return has_flag ? -1 : of_list(args[0]);
            if (!PyObject_CheckBuffer(args[0])) return -1;
            return of_array(args[0], has_flag && args[1] == Py_True ? As::Minibatch
                                     : given == InputKind::Vector   ? As::Vector
                                                                    : As::Tensor);
        case InputKind::Matrix:
            dims.resize(2);
            return size(args[0], dims[0]) && size(args[1], dims[1]) ? filled(dims, value) : -1;
        case InputKind::Constant:
            if (!number(args[1], value)) return -1;
            [[fallthrough]];
        default: return sizes(args[0], dims) ? filled(dims, value) : -1;
    }
}

// Keyword arguments.

// Names and defaults of a Python function's arguments.
struct ArgumentNames {
    PyObject *names, *defaults;  // tuples; nullptr without known names or defaults
    // False: a Python error is set.
    bool read(PyObject *function) {
        clear();
        if (!PyFunction_Check(function)) return true;
        PyObject *code = PyFunction_GET_CODE(function);
        const auto *plain = reinterpret_cast<const PyCodeObject *>(code);
        if (plain->co_kwonlyargcount || plain->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) return true;
        PyObject *variables = PyObject_GetAttrString(code, "co_varnames");
        names = variables ? PyTuple_GetSlice(variables, 0, plain->co_argcount) : nullptr;
        Py_XDECREF(variables);
        defaults = Py_XNewRef(PyFunction_GET_DEFAULTS(function));
        return names;
    }
    void clear() {
        Py_CLEAR(names);
        Py_CLEAR(defaults);
    }
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
    bool put_in_order(const ArgumentNames &known, PyObject *keywords) {
        const Py_ssize_t given = count, all = known.names ? PyTuple_GET_SIZE(known.names) : 0;
        if (given > all || all > most) return false;
        std::copy_n(at, given, ordered_);
        std::fill(ordered_ + given, ordered_ + all, nullptr);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); i++) {
            Py_ssize_t place = given;
            while (place < all && PyTuple_GET_ITEM(known.names, place) != PyTuple_GET_ITEM(keywords, i))
                place++;  // both are interned
            if (place == all) return false;
            ordered_[place] = at[given + i];
            count = std::max(count, place + 1);
        }
        const Py_ssize_t first = all - (known.defaults ? PyTuple_GET_SIZE(known.defaults) : 0);
        for (Py_ssize_t i = given; i < count; i++) {
            if (!ordered_[i] && i < first) return false;
            if (!ordered_[i]) ordered_[i] = PyTuple_GET_ITEM(known.defaults, i - first);
        }
        at = ordered_;
        return true;
    }
    static constexpr Py_ssize_t most = 8;
    PyObject *ordered_[most];
};

}  // namespace dpmodule::autobatch
