// Which nodes run together, and in which order: see autobatch/plan.hpp for the schedule by components.
#include <algorithm>
#include <map>
#include <tuple>

#include "../autobatch/components.hpp"
#include "recording.hpp"

namespace dpmodule::recording {

namespace {

constexpr std::size_t worth_a_call = 8;  // nodes of equal shapes, from which they are not joined with others

// The nodes, in order, that must run for some others.
std::vector<int> needed_nodes(const RecorderObject *self, std::vector<int> wanted) {
    std::vector<char> seen(self->nodes.size(), 0);
    std::vector<int> found;
    while (!wanted.empty()) {
        const int number = wanted.back();
        wanted.pop_back();
        const Node &node = self->nodes[number];
        if (seen[number] || node.batch >= 0) continue;
        seen[number] = 1;
        found.push_back(number);
        for (int i = node.first; i < node.first + node.count; ++i) {
            if (self->operands[i].node >= 0) wanted.push_back(self->operands[i].node);
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

// Split a batch by shapes where there are enough nodes of each.
void split(const RecorderObject *self, std::vector<int> nodes, std::vector<std::vector<int>> &planned) {
    std::map<int, std::vector<int>> by_shape;
    for (const int number : nodes) by_shape[shape_of_result(self, number)].push_back(number);
    if (by_shape.size() == 1 || nodes.size() < worth_a_call * by_shape.size()) {
        planned.push_back(std::move(nodes));
        return;
    }
    for (auto &[shape, part] : by_shape) planned.push_back(std::move(part));
}

}  // namespace

void plan(RecorderObject *self, const std::vector<int> &wanted) {
    const std::vector<int> nodes = needed_nodes(self, wanted);
    std::vector<int> run_of_partition(self->partition_numbers.size(), -1), run_of_node(self->nodes.size(), -1);
    int runs = 0;
    for (const int number : nodes) {
        int &run = run_of_partition[self->nodes[number].partition];
        if (run < 0) run = runs++;
        run_of_node[number] = run;
    }
    autobatch::Components components(runs);
    const auto each_source = [&](int number, auto body) {
        const Node &node = self->nodes[number];
        for (int i = node.first; i < node.first + node.count; ++i) {
            const int source = self->operands[i].node;
            if (source >= 0 && run_of_node[source] >= 0) body(source);
        }
    };
    for (const int number : nodes) {
        each_source(number, [&](int source) { components.edge(run_of_node[source], run_of_node[number]); });
    }
    components.find();
    std::vector<int> level(self->nodes.size(), 0);
    std::map<std::tuple<int, int, int>, std::vector<int>> batches;  // component, level, run
    for (const int number : nodes) {
        const int run = run_of_node[number], rank = components.rank(run);
        if (components.cyclic(run)) {
            each_source(number, [&](int source) {
                if (components.rank(run_of_node[source]) == rank)
                    level[number] = std::max(level[number], level[source] + 1);
            });
        }
        batches[{rank, level[number], run}].push_back(number);
    }
    self->planned.clear();
    for (auto &[place, members] : batches) split(self, std::move(members), self->planned);
}

}  // namespace dpmodule::recording
