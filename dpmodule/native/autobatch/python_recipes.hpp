// The recipes of an engine for operations and attributes that are Python objects.
#pragma once

#include <unordered_map>
#include <utility>

#include "python_builder.hpp"
#include "recipes.hpp"

namespace dpmodule::autobatch {

// An operation on nodes, as the function `apply` in Python is given it.
struct Applied {
    PyObject *operation;
    PyObject *attributes;  // a tuple, or nullptr for none
    PyObject *own;         // the node's own number, or nullptr for none
    bool many;             // by `append_many`
};

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
