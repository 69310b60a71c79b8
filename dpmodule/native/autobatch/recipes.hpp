// What operations have added to the graph, remembered by the kinds of their operands: the next time nothing is looked
// at but the kinds.
#pragma once

#include <vector>

#include "graph.hpp"

namespace dpmodule::autobatch {

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

}  // namespace dpmodule::autobatch
