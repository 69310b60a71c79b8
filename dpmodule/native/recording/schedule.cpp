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
std::vector<int> needed_nodes(RecorderObject *self, std::vector<int> wanted) {
    constexpr int seen = -2;
    std::vector<int> found;
    while (!wanted.empty()) {
        const int number = wanted.back();
        wanted.pop_back();
        const Node &node = self->nodes[number];
        if (self->run_of_node[number] == seen || node.batch >= 0) continue;
        self->run_of_node[number] = seen;
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
    std::vector<std::vector<int>> parts;
    for (const int number : nodes) {
        const auto fits = [&](const std::vector<int> &part) { return equal_shapes(self, part[0], number); };
        auto part = std::find_if(parts.begin(), parts.end(), fits);
        if (part == parts.end()) {
            if ((parts.size() + 1) * worth_a_call > nodes.size()) break;
            part = parts.insert(part, std::vector<int>());
        }
        part->push_back(number);
    }
    std::size_t total = 0;
    for (const std::vector<int> &part : parts) total += part.size();
    if (total < nodes.size()) planned.push_back(std::move(nodes));
    else
        for (std::vector<int> &part : parts) planned.push_back(std::move(part));
}

}  // namespace

bool equal_shapes(const RecorderObject *self, int a, int b) {
    const Node &left = self->nodes[a], &right = self->nodes[b];
    if (left.call == right.call) return true;
    if (left.count != right.count) return false;
    for (int i = 0; i < left.count; ++i) {
        if (self->operands[left.first + i].spec != self->operands[right.first + i].spec) return false;
    }
    return true;
}

void plan(RecorderObject *self, const std::vector<int> &wanted) {
    self->run_of_node.resize(self->nodes.size(), -1);
    self->level.resize(self->nodes.size(), 0);
    const std::vector<int> nodes = needed_nodes(self, wanted);
    self->planned.clear();
    std::vector<int> &run_of_node = self->run_of_node, &level = self->level;
    std::unordered_map<int, int> run_of_partition;
    int runs = 0;
    for (const int number : nodes) {
        const auto [run, is_new] = run_of_partition.emplace(self->nodes[number].partition, runs);
        runs += is_new;
        run_of_node[number] = run->second;
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
    for (auto &[place, members] : batches) split(self, std::move(members), self->planned);
    for (const int number : nodes) run_of_node[number] = -1, level[number] = 0;
}

}  // namespace dpmodule::recording
