#include "function_arguments.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "python_parameters.hpp"

namespace dpmodule::autobatch {
namespace {

// The bits of one or several dimensions for Builder::along.
bool axis(PyObject *x, unsigned &bits) {
    int found;
    if (!whole(x, found) || found < 0 || found > 29 || bits >> (found + 1) & 1) return false;
    bits |= 2u << found;
    return true;
}

bool several_axes(PyObject *x, unsigned &bits) {
    if (!PyList_CheckExact(x) && !PyTuple_CheckExact(x)) return axis(x, bits);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(x); i++) {
        if (!axis(PySequence_Fast_GET_ITEM(x, i), bits)) return false;
    }
    return true;
}

// (b, n=0): the bit of the minibatch, a divisor.
bool batch_and_divisor(PyObject *const *args, Py_ssize_t count, unsigned &bits, int &divisor) {
    if (count > 2 || (count > 0 && !PyBool_Check(args[0])) || (count > 1 && (!whole(args[1], divisor) || divisor < 0)))
        return false;
    bits |= count > 0 && args[0] == Py_True;
    return true;
}

}  // namespace

bool whole(PyObject *x, int &found) {
    if (!PyLong_CheckExact(x)) return false;
    int overflow;
    const long value = PyLong_AsLongAndOverflow(x, &overflow);
    found = static_cast<int>(value);
    return !overflow && value == found;
}

int along(Reduction kind, int x, PyObject *const *args, Py_ssize_t count) {
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

int moment(Over over, int x, PyObject *const *args, Py_ssize_t count) {
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

unsigned all_axes(int x) {
    const std::size_t rank = current.engine->graph.shape(x).dims.size();
    return rank < 30 ? (2u << rank) - 2u : 0;
}

bool real(PyObject *x, double &found) {
    if (!PyFloat_CheckExact(x)) return false;
    found = PyFloat_AS_DOUBLE(x);
    return std::isfinite(found);
}

// defaults of random_normal, random_gumbel and random_bernoulli
int draw_numbers(Draw kind, PyObject *const *args, Py_ssize_t count) {
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

bool several_whole(PyObject *x, std::vector<int> &found) {
    if (!PyList_CheckExact(x) && !PyTuple_CheckExact(x)) return false;
    found.resize(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(x)));
    for (std::size_t i = 0; i < found.size(); i++) {
        if (!whole(PySequence_Fast_GET_ITEM(x, static_cast<Py_ssize_t>(i)), found[i])) return false;
    }
    return !found.empty();
}

int part(Part kind, int x, PyObject *const *args, Py_ssize_t count) {
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

int softmax(Op op, int x, PyObject *const *args, Py_ssize_t count) {
    Builder &build = current_builder();
    int axis = 0;
    std::vector<int> places;
    if (count == 2 && op == Op::LogSoftmax) return several_whole(args[1], places) ? build.restricted(x, places) : -1;
    return count == 1 || (count == 2 && whole(args[1], axis)) ? build.softmax(op, x, axis) : -1;
}

int rows(PyObject *given, PyObject *numbers) {
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

bool ArgumentNames::read(PyObject *function) {
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

void ArgumentNames::clear() {
    Py_CLEAR(names);
    Py_CLEAR(defaults);
}

bool Arguments::put_in_order(const ArgumentNames &known, PyObject *keywords) {
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

}  // namespace dpmodule::autobatch
