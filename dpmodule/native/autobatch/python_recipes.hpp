// What operations have added to the graph, remembered.
#pragma once

#include <unordered_map>
#include <utility>

#include "python_state.hpp"

namespace dpmodule::autobatch {

// What operations have added to the graph, remembered by the kinds of their operands: the next time nothing is looked
// at but the kinds.
class Recipes {
  public:
    explicit Recipes(Graph &graph) : graph_(graph) {}

    // The number of the recipe for an operation on `count` nodes, whatever numbers stand for it and its attributes. `own`:
    // the node has a number of its own, so that only a Call can be remembered, which does not look at it.
    int number(int operation, int attributes, const int *operands, int count, bool own);
    bool is_known(int recipe) const { return recipe >= 0 && !all_[recipe].made.empty(); }
    // Adds the nodes; returns the result.
    int follow(int recipe, const int *operands, int own);
    // Remembers what was added from node `first` on, if it would be the same for other operands of these kinds.
    void remember(int recipe, const int *operands, int count, int first, int result);

  private:
    struct Made {
        int sig, aux;
        std::vector<int> args;  // places among the operands, then among what has been made before
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

// An operation on nodes, as the function `apply` in Python is given it.
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
    // The expression of what `applied` adds to the graph: from memory, or else what `slow` returns.
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
    // Where nodes' own numbers are kept; the place in this list is what the graph knows of them.
    void set_numbers(PyObject *list);
    int traverse(visitproc visit, void *arg);
    void clear();

  private:
    int number(const Applied &applied, const Nodes &operands);  // -1: what it does cannot be remembered
    int number_of(PyObject *operation, bool many);
    int number_of(PyObject *attributes);
    int keep(PyObject *own);

    Graph &graph_;
    Recipes recipes_;
    std::unordered_map<PyObject *, int> operations_;  // which are held
    PyObject *attributes_ = nullptr, *numbers_ = nullptr;
};

extern PythonRecipes *recipes_of_current;

}  // namespace dpmodule::autobatch
