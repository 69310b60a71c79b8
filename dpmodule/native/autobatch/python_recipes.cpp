#include "python_recipes.hpp"

#include <algorithm>

namespace dpmodule::autobatch {

constexpr int few_operands = 8;  // limit for comparing all pairs of operands

int Recipes::number(int operation, int attributes, const int *operands, int count, bool own) {
    key_.assign({operation, attributes, count});
    for (int i = 0; i < count; i++) {
        const Node &node = graph_.nodes[operands[i]];
        const Signature &s = graph_.signatures[node.sig];
        // parameters are distinguished, since they become part of signatures
        key_.push_back(s.op == Op::Param ? -1 - node.sig : s.shape);
    }
    // so are x * x and x * y, to identify the operand of each argument
    for (int i = 1; i < count; i++) {
        const int *same = std::find(operands, operands + std::min(i, few_operands), operands[i]);
        if (*same == operands[i] && same < operands + i)
            key_.insert(key_.end(), {i, static_cast<int>(same - operands)});
    }
    const auto [found, fresh] = numbers_.number(key_);
    if (fresh) all_.emplace_back();
    all_[found].own = own;
    return found;
}

int Recipes::follow(int recipe, const int *operands, int own) {
    const Recipe &known = all_[recipe];
    nodes_.clear();
    for (const Made &each : known.made) {
        args_.clear();
        for (int place : each.args) args_.push_back(place >= 0 ? operands[place] : nodes_[-1 - place]);
        nodes_.push_back(
            graph_.add(each.sig, args_.data(), static_cast<int>(args_.size()), known.own ? own : each.aux));
    }
    return nodes_[known.result];
}

void Recipes::remember(int recipe, const int *operands, int count, int first, int result) {
    for (int i = few_operands + 1; i < count; i++) {
        if (std::find(operands + few_operands, operands + i, operands[i]) != operands + i)
            return;  // not determined by the key
    }
    Recipe &known = all_[recipe];
    std::vector<Made> found;
    for (int node = first; node < graph_.size(); node++) {
        const Op op = graph_.signature(node).op;
        if (op == Op::Input || op == Op::Param || op == Op::Lookup || (known.own && op != Op::Call)) return;
        Made made{graph_.nodes[node].sig, graph_.nodes[node].aux, {}};
        const int *args = graph_.begin(node);
        for (int i = 0; i < graph_.nodes[node].count; i++) {
            const int place = static_cast<int>(std::find(operands, operands + count, args[i]) - operands);
            if (place < count) made.args.push_back(place);
            else if (args[i] >= first) made.args.push_back(-1 - (args[i] - first));
            else return;  // an earlier node, such as a recomputed one
        }
        found.push_back(std::move(made));
    }
    if (result < first || found.empty() || (known.own && found.size() > 1)) return;
    known.made = std::move(found);
    known.result = result - first;
}

PythonRecipes *recipes_of_current = nullptr;

int PythonRecipes::number(const Applied &applied, const Nodes &operands) {
    const bool plain =
        !applied.attributes || (PyTuple_CheckExact(applied.attributes) && PyTuple_GET_SIZE(applied.attributes) == 0);
    const int attributes = plain ? 0 : number_of(applied.attributes);
    if (attributes < 0) return -1;
    // operations with and without a node argument are different
    const int operation = 2 * number_of(applied.operation, applied.many) + (applied.own != nullptr);
    return recipes_.number(operation, attributes, operands.at, operands.count, applied.own != nullptr);
}

int PythonRecipes::number_of(PyObject *operation, bool many) {
    const auto [at, fresh] = operations_.try_emplace(operation, static_cast<int>(operations_.size()));
    if (fresh) Py_INCREF(operation);
    return 2 * at->second + many;
}

// From 1; -1 for unhashable attributes.
int PythonRecipes::number_of(PyObject *attributes) {
    if (!attributes_ && !(attributes_ = PyDict_New())) throw PythonError();
    if (PyObject *known = PyDict_GetItemWithError(attributes_, attributes))
        return static_cast<int>(PyLong_AsLong(known));
    const int number = static_cast<int>(PyDict_GET_SIZE(attributes_)) + 1;
    PyObject *boxed = PyErr_Occurred() ? nullptr : PyLong_FromLong(number);
    const bool kept = boxed && PyDict_SetItem(attributes_, attributes, boxed) == 0;
    Py_XDECREF(boxed);
    if (kept) return number;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();
    return -1;
}

int PythonRecipes::keep(PyObject *own) {
    if (!own) return 0;
    if (PyList_Append(numbers_, own) < 0) throw PythonError();
    return static_cast<int>(PyList_GET_SIZE(numbers_)) - 1;
}

void PythonRecipes::set_numbers(PyObject *list) {
    Py_INCREF(list);
    Py_XSETREF(numbers_, list);
}

int PythonRecipes::traverse(visitproc visit, void *arg) {
    for (const auto &each : operations_) Py_VISIT(each.first);
    Py_VISIT(attributes_);
    Py_VISIT(numbers_);
    return 0;
}

void PythonRecipes::clear() {
    for (const auto &each : std::exchange(operations_, {})) Py_DECREF(each.first);
    Py_CLEAR(attributes_);
    Py_CLEAR(numbers_);
}

}  // namespace dpmodule::autobatch
