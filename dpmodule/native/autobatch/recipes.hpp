// What operations have added to the graph, remembered by the kinds of their operands: the next time nothing is looked
// at but the kinds.
#pragma once

#include <algorithm>
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

inline constexpr int few_operands = 8;  // operands that are compared with all others

inline int Recipes::number(int operation, int attributes, const int *operands, int count, bool own) {
    key_.assign({operation, attributes, count});
    for (int i = 0; i < count; i++) {
        const Node &node = graph_.nodes[operands[i]];
        const Signature &s = graph_.signatures[node.sig];
        // parameters are told apart: they become part of signatures
        key_.push_back(s.op == Op::Param ? -1 - node.sig : s.shape);
    }
    // and so are x * x and x * y, for it has to be clear which operand an argument is
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

inline int Recipes::follow(int recipe, const int *operands, int own) {
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

inline void Recipes::remember(int recipe, const int *operands, int count, int first, int result) {
    for (int i = few_operands + 1; i < count; i++) {
        if (std::find(operands + few_operands, operands + i, operands[i]) != operands + i)
            return;  // the key does not tell
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
            else return;  // a node from before, such as one that is computed again
        }
        found.push_back(std::move(made));
    }
    if (result < first || found.empty() || (known.own && found.size() > 1)) return;
    known.made = std::move(found);
    known.result = result - first;
}

}  // namespace dpmodule::autobatch
