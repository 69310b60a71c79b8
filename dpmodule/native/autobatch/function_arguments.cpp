#include "function_arguments.hpp"

#include <cmath>

#include "python_inputs.hpp"

namespace dpmodule::autobatch {
namespace {

// The bit of a dimension in the argument of Builder::along.
bool axis(PyObject *x, unsigned &bits) {
    int found;
    if (!whole(x, found) || found < 0 || found > 29 || bits >> (found + 1) & 1) return false;
    bits |= 2u << found;
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
    const bool divides = kind == Reduction::Mean || kind == Reduction::Deviation, many = divides || kind == Reduction::Sum;
    unsigned axes = 0;
    int divisor = 0;
    if (!many) {
        const bool fits = count == 1 ? (axes = 2) : count == 2 && axis(args[1], axes);
        return fits ? current_builder().along(kind, x, axes) : -1;
    }
    if (count < (divides ? 3 : 2) || count > 4 || (count > 2 && !PyBool_Check(args[2])) || (count > 3 && !whole(args[3], divisor))) return -1;
    if (PyList_CheckExact(args[1]) || PyTuple_CheckExact(args[1])) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(args[1]); i++) {
            if (!axis(PySequence_Fast_GET_ITEM(args[1], i), axes)) return -1;
        }
    } else if (!axis(args[1], axes)) {
        return -1;
    }
    if (count > 2 && args[2] == Py_True) axes |= 1;
    return current_builder().along(kind, x, axes, divides ? divisor : 0);
}

bool real(PyObject *x, double &found) {
    if (!PyFloat_CheckExact(x)) return false;
    found = PyFloat_AS_DOUBLE(x);
    return std::isfinite(found);
}

// All have what random_normal, random_gumbel and random_bernoulli leave out
int random(Draw kind, PyObject *const *args, Py_ssize_t count) {
    double numbers[2] = {0.0, 1.0};
    const Py_ssize_t least = kind == Draw::Uniform ? 3 : kind == Draw::Bernoulli ? 2 : 1;
    if (count < least || count > 3) return -1;
    for (Py_ssize_t i = 1; i < count; i++) {
        if (!real(args[i], numbers[i - 1])) return -1;
    }
    const bool fits = kind == Draw::Uniform ? numbers[0] <= numbers[1] : kind == Draw::Bernoulli ? numbers[0] >= 0 && numbers[0] <= 1 : numbers[1] >= 0;
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

int rows(PyObject *given, PyObject *numbers) {
    std::vector<int> nodes;
    if (!PyObject_TypeCheck(given, node_type) || !several_whole(numbers, nodes)) return -1;
    const auto *object = reinterpret_cast<NodeObject *>(given);
    // the first lookup in a graph goes the slow way, which keeps the table alive
    if (object->table < 0 || object->serial != current.serial || !current.engine->graph.tables[object->table]->used) return -1;
    const int size = current.engine->graph.tables[object->table]->rows;
    for (int each : nodes) {
        if (each < 0 || each >= size) return -1;
    }
    for (int &each : nodes) each = current_builder().lookup(object->table, each);
    return current_builder().to_batch(nodes.data(), static_cast<int>(nodes.size()), -2);
}

}  // namespace dpmodule::autobatch
