#include "repeats.hpp"

#include <algorithm>

namespace dpmodule::autobatch {

void Repeats::add_row(int node, std::uint32_t stamp) {
    const int first =
        graph_.tables[graph_.signature(node).params[0]]->first_reader(graph_.nodes[node].aux, node, stamp);
    if (first == node) return;
    if (first_.empty()) first_.assign(size_, -1);
    first_[first - from_] = first_[node - from_] = first;
}

bool Repeats::repeats(int node, std::vector<int> &key, const int *operands, int count) {
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
