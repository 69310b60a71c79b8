// Equal nodes of a segment: what does the same with the same operands is computed once, and has one gradient.
//
// It begins with rows of tables that several nodes read: words repeat, and what is made of them alone does.  (Value
// numbering, Cocke and Schwartz 1970.)
#pragma once

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

}  // namespace dpmodule::autobatch
