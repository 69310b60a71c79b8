// Strongly connected components of a small directed graph, ranked so that edges lead from lower to higher ranks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace dpmodule::autobatch {

class Components {
  public:
    explicit Components(int vertices) : next_(vertices), last_(vertices, -1), self_(vertices, 0) {}
    // Edges may be given many times over; `last_` catches most repetitions cheaply.
    void edge(int from, int to) {
        if (from == to) {
            self_[from] = 1;
        } else if (last_[to] != from) {
            last_[to] = from;
            next_[from].push_back(to);
            if (next_[from].size() > limit_) squeeze(next_[from]);
        }
    }
    void find();
    // The edges without repetitions, after find().
    std::vector<std::vector<int>> take_edges() { return std::move(next_); }
    int rank(int vertex) const { return rank_[vertex]; }
    bool cyclic(int vertex) const { return self_[vertex] || size_[rank_[vertex]] > 1; }

  private:
    void squeeze(std::vector<int> &list);

    std::vector<std::vector<int>> next_;
    std::vector<int> last_;
    std::vector<char> self_;
    std::vector<int> rank_, size_;
    std::size_t limit_ = 64;
};

}  // namespace dpmodule::autobatch
