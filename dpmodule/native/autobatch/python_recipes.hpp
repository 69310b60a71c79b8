// Cache of the nodes that operations add to the graph.
#pragma once

#include <unordered_map>
#include <utility>

#include "python_state.hpp"

namespace dpmodule::autobatch {

// Nodes added by operations, by the kinds of their operands, so that repetitions need no further checks.
class Recipes {
  public:
    explicit Recipes(Graph &graph) : graph_(graph) {}

    // The number of the recipe for an operation, identified by any numbers, on `count` nodes. `own`: the node has its
    // own number, so that only a Call, which does not depend on it, can be cached.
    int number(int operation, int attributes, const int *operands, int count, bool own);
    bool is_known(int recipe) const { return recipe >= 0 && !all_[recipe].made.empty(); }
    // Adds the nodes; returns the result.
    int follow(int recipe, const int *operands, int own);
    // Records the nodes from `first` on if they would be the same for other operands of these kinds.
    void remember(int recipe, const int *operands, int count, int first, int result);

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
    void set_numbers(PyObject *list);
    int traverse(visitproc visit, void *arg);
    void clear();

  private:
    int number(const Applied &applied, const Nodes &operands);  // -1: it cannot be cached
    int number_of(PyObject *operation, bool many);
    int number_of(PyObject *attributes);
    int keep(PyObject *own);

    Graph &graph_;
    Recipes recipes_;
    std::unordered_map<PyObject *, int> operations_;  // owned references
    PyObject *attributes_ = nullptr, *numbers_ = nullptr;
};

extern PythonRecipes *recipes_of_current;

}  // namespace dpmodule::autobatch
