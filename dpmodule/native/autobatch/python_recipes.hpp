// Cache of the nodes that operations add to the graph.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "python_state.hpp"

namespace dpmodule::autobatch {

constexpr int few_operands = 8;  // limit for comparing all pairs of operands

// Nodes added by operations, by the kinds of their operands, so that repetitions need no further checks.
class Recipes {
  public:
    explicit Recipes(Graph &graph) : graph_(graph) {}

    // The number of the recipe for an operation, identified by any numbers, on `count` nodes. `own`: the node has its
    // own number, so that only a Call, which does not depend on it, can be cached.
    int number(int operation, int attributes, const int *operands, int count, bool own) {
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
    bool is_known(int recipe) const { return recipe >= 0 && !all_[recipe].made.empty(); }
    // Adds the nodes; returns the result.
    int follow(int recipe, const int *operands, int own) {
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
    // Records the nodes from `first` on if they would be the same for other operands of these kinds.
    void remember(int recipe, const int *operands, int count, int first, int result) {
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

  private:
    struct Made {
        int sig, aux;
        std::vector<int> args;  // indices of operands, then of earlier results
    };
    struct Recipe {
        std::vector<Made> made;
        int result = 0;
        bool own = false;
    };
    Graph &graph_;
    Interner numbers_;
    std::vector<Recipe> all_;
    std::vector<int> key_, nodes_, args_;  // scratch space
};

// The arguments of the Python function `apply`.
struct Applied {
    PyObject *operation;
    PyObject *attributes;  // a tuple, or nullptr for none
    PyObject *own;         // the node's own number, or nullptr for none
    bool many;             // by `append_many`
};

// The recipes of an engine for operations and attributes that are Python objects.
class PythonRecipes {
  public:
    explicit PythonRecipes(Graph &graph) : graph_(graph), recipes_(graph) {}
    // The expression added by `applied`: from the cache, or else the result of `slow`.
    template <class F>
    PyObject *make(const Applied &applied, const Nodes &operands, F slow) {
        const int recipe = number(applied, operands);
        if (recipes_.is_known(recipe)) return make_expression(recipes_.follow(recipe, operands.at, keep(applied.own)));
        const int first = graph_.size();
        PyObject *made = slow();
        if (made && recipe >= 0 && PyObject_TypeCheck(made, node_type)) {
            recipes_.remember(recipe, operands.at, operands.count, first, reinterpret_cast<NodeObject *>(made)->node);
        }
        return made;
    }
    // List of node arguments; the graph stores their indices.
    void set_numbers(PyObject *list) {
        Py_INCREF(list);
        Py_XSETREF(numbers_, list);
    }
    int traverse(visitproc visit, void *arg) {
        for (const auto &each : operations_) Py_VISIT(each.first);
        Py_VISIT(attributes_);
        Py_VISIT(numbers_);
        return 0;
    }
    void clear() {
        for (const auto &each : std::exchange(operations_, {})) Py_DECREF(each.first);
        Py_CLEAR(attributes_);
        Py_CLEAR(numbers_);
    }

  private:
    // -1: it cannot be cached
    int number(const Applied &applied, const Nodes &operands) {
        const bool plain = !applied.attributes ||
                           (PyTuple_CheckExact(applied.attributes) && PyTuple_GET_SIZE(applied.attributes) == 0);
        const int attributes = plain ? 0 : number_of(applied.attributes);
        if (attributes < 0) return -1;
        // operations with and without a node argument are different
        const int operation = 2 * number_of(applied.operation, applied.many) + (applied.own != nullptr);
        return recipes_.number(operation, attributes, operands.at, operands.count, applied.own != nullptr);
    }
    int number_of(PyObject *operation, bool many) {
        const auto [at, fresh] = operations_.try_emplace(operation, static_cast<int>(operations_.size()));
        if (fresh) Py_INCREF(operation);
        return 2 * at->second + many;
    }
    // From 1; -1 for unhashable attributes.
    int number_of(PyObject *attributes) {
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
    int keep(PyObject *own) {
        if (!own) return 0;
        if (PyList_Append(numbers_, own) < 0) throw PythonError();
        return static_cast<int>(PyList_GET_SIZE(numbers_)) - 1;
    }

    Graph &graph_;
    Recipes recipes_;
    std::unordered_map<PyObject *, int> operations_;  // owned references
    PyObject *attributes_ = nullptr, *numbers_ = nullptr;
};

inline PythonRecipes *recipes_of_current = nullptr;

}  // namespace dpmodule::autobatch
