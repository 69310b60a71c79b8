// Equal nodes of a segment, with the same operation and operands, share one value and gradient. They start with table
// rows that several nodes read, since words repeat. (Value numbering, Cocke and Schwartz 1970.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "graph.hpp"

namespace dpmodule::autobatch {

class Repeats {
  public:
    Repeats(Graph &graph, int from, int to) : graph_(graph), from_(from), size_(to - from) {}
    // Called first for every Lookup; `stamp` identifies the segment.
    void add_row(int node, std::uint32_t stamp);
    bool any() const { return !first_.empty(); }
    // The first node equal to this one.
    int first(int node) const { return may_repeat(node) ? first_[node - from_] : node; }
    // True if this node, with its operation in `key`, equals an earlier one. The first equal nodes of its operands are
    // added to the key.
    bool repeats(int node, std::vector<int> &key, const int *operands, int count);

  private:
    bool may_repeat(int node) const { return node >= from_ && any() && first_[node - from_] >= 0; }
    bool is_given(int node) const { return node < from_ || graph_.signature(node).op <= Op::Param; }

    Graph &graph_;
    const int from_, size_;
    std::vector<int> first_;  // -1: the node cannot be repeated; empty without repetitions
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
