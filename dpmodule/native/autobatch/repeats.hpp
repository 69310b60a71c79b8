// Equal nodes of a segment: what does the same with the same operands is computed once, and has one gradient.
//
// It begins with rows of tables that several nodes read: words repeat, and what is made of them alone does.  (Value
// numbering, Cocke and Schwartz 1970.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "graph.hpp"

namespace dpmodule::autobatch {

class Repeats {
  public:
    Repeats(Graph &graph, int from, int to) : graph_(graph), from_(from), size_(to - from) {}
    // Of every Lookup, before anything else; `stamp` tells segments apart.
    void add_row(int node, std::uint32_t stamp);
    bool any() const { return !first_.empty(); }
    // The first of the nodes that are equal to this one.
    int first(int node) const { return may_repeat(node) ? first_[node - from_] : node; }
    // Is this node, which does what `key` says with the operands, equal to an earlier one?  Operands are first ones;
    // they become part of the key.
    bool repeats(int node, std::vector<int> &key, const int *operands, int count);

  private:
    bool may_repeat(int node) const { return node >= from_ && any() && first_[node - from_] >= 0; }
    bool is_given(int node) const { return node < from_ || graph_.signature(node).op <= Op::Param; }

    Graph &graph_;
    const int from_, size_;
    std::vector<int> first_;  // -1: the node cannot be equal to another; empty until two are
    Interner keys_;
    std::vector<int> holders_;  // the first node of each key
};

inline void Repeats::add_row(int node, std::uint32_t stamp) {
    const int first =
        graph_.tables[graph_.signature(node).params[0]]->first_reader(graph_.nodes[node].aux, node, stamp);
    if (first == node) return;
    if (first_.empty()) first_.assign(size_, -1);
    first_[first - from_] = first_[node - from_] = first;
}

inline bool Repeats::repeats(int node, std::vector<int> &key, const int *operands, int count) {
    if (!any()) return false;
    bool some = false;
    for (int k = 0; k < count; k++) {
        if (may_repeat(operands[k])) some = true;
        else if (!is_given(operands[k])) return false;
    }
    if (!some) return false;
    key.insert(key.end(), operands, operands + count);
    const auto [number, fresh] = keys_.number(key);
    if (fresh) holders_.push_back(node);
    const int first = first_[node - from_] = holders_[number];
    if (fresh) return false;
    const int uses = graph_.uses[first] + graph_.uses[node];
    graph_.uses[first] = static_cast<std::uint8_t>(std::min<int>(uses, Graph::most_uses));
    return true;
}

}  // namespace dpmodule::autobatch
