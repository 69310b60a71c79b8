#include "components.hpp"

#include <algorithm>

namespace dpmodule::autobatch {

void Components::squeeze(std::vector<int> &list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    // twice the room until the next time keeps the whole work linear
    if (list.size() * 2 > limit_) limit_ = list.size() * 2;
}

// Tarjan's algorithm with an explicit stack.
void Components::find() {
    const int n = static_cast<int>(next_.size());
    for (std::vector<int> &list : next_) squeeze(list);
    std::vector<int> index(n, -1), low(n), component(n, -1), stack;
    std::vector<std::pair<int, std::size_t>> path;  // vertex, how many of its edges are done
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
