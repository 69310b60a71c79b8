// Strongly connected components of a small directed graph, ranked so that edges lead from lower to higher ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace dpmodule::autobatch {

class Components {
  public:
    explicit Components(int vertices) : next_(vertices), self_(vertices, 0) {}
    // Edges may be repeated; a look at the last ones filters most repetitions cheaply.
    void edge(int from, int to) {
        std::vector<int> &list = next_[from];
        if (from == to) {
            self_[from] = 1;
        } else if (std::find(list.end() - std::min<std::ptrdiff_t>(list.size(), 8), list.end(), to) == list.end()) {
            list.push_back(to);
            if (list.size() > limit_) squeeze(list);
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
    std::vector<char> self_;
    std::vector<int> rank_, size_;
    std::size_t limit_ = 64;
};

inline void Components::squeeze(std::vector<int> &list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    // doubling the limit keeps the total work linear
    if (list.size() * 2 > limit_) limit_ = list.size() * 2;
}

// Tarjan's algorithm with an explicit stack.
inline void Components::find() {
    const int n = static_cast<int>(next_.size());
    for (std::vector<int> &list : next_) squeeze(list);
    std::vector<int> index(n, -1), low(n), component(n, -1), stack;
    std::vector<std::pair<int, std::size_t>> path;  // vertex, number of visited edges
    int count = 0, components = 0;
    for (int start = 0; start < n; start++) {
        if (index[start] >= 0) continue;
        path.push_back({start, 0});
        while (!path.empty()) {
            auto &[v, done] = path.back();
            if (done == 0 && index[v] < 0) {
                index[v] = low[v] = count++;
                stack.push_back(v);
            }
            if (done < next_[v].size()) {
                const int w = next_[v][done++];
                if (index[w] < 0) path.push_back({w, 0});
                else if (component[w] < 0) low[v] = std::min(low[v], index[w]);
                continue;
            }
            const int finished = v;
            path.pop_back();
            if (!path.empty()) low[path.back().first] = std::min(low[path.back().first], low[finished]);
            if (low[finished] == index[finished]) {
                for (int w = -1; w != finished;) {
                    w = stack.back();
                    stack.pop_back();
                    component[w] = components;
                }
                components++;
            }
        }
    }
    // components are found sinks first
    rank_.resize(n);
    size_.assign(components, 0);
    for (int v = 0; v < n; v++) {
        rank_[v] = components - 1 - component[v];
        size_[rank_[v]]++;
    }
}

}  // namespace dpmodule::autobatch
