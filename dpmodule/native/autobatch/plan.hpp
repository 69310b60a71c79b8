// The schedule of a segment of the graph: batches, their order, and the memory of values. The dependency graph of
// groups is split into strongly connected components. A node's level counts only the steps inside its component: a
// group outside recurrences is one batch for the whole segment, a recurrent one runs level by level. Linear in nodes
// and arguments, without recursion.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "graph.hpp"
#include "group.hpp"

namespace dpmodule::autobatch {

// One occurrence of a group.
struct Instance {
    int root;  // node
    int run;
    int first;  // start of its external arguments in Plan::outside
    int count;
    int level;
    int row;      // within its run
    int repeats;  // number of other nodes equal to the root
};

// All occurrences of one group in a plan, in order of levels; their values are one block.
struct Run {
    int group;
    int rows = 0;
    int component = 0;
    bool recurrent = false;   // part of a cycle
    std::vector<int> order;   // instance of each row
    std::vector<int> column;  // node of each external argument, column by column; -1: zeros
    float *value = nullptr, *grad = nullptr, *kept = nullptr;
    bool wanted = false;  // by the current backward pass
    // During the backward pass: gradients of steps, for the rows [grad_first, grad_first + grad_rows); and the number of
    // rows whose weight gradients are not computed yet.
    float *grad_kept = nullptr;
    int grad_first = 0, grad_rows = 0, pending = 0;
    const int *nodes(int column_index) const { return column.data() + static_cast<std::size_t>(column_index) * rows; }
};

// The values and gradients of a step in all rows of a run, unless they are in scratch space.
inline Block value_in(const Run &run, const Group &group, const Step &step) {
    if (step.home == Step::Home::Root) return {run.value + step.at, group.row};
    return {run.kept + static_cast<std::ptrdiff_t>(step.at) * run.rows, step.width};
}
inline Block grad_in(const Run &run, const Group &group, const Step &step) {
    if (step.grad_home == Step::Home::Root) return {run.grad + step.grad_at, group.row};
    return {run.grad_kept + static_cast<std::ptrdiff_t>(step.grad_at) * run.grad_rows -
                static_cast<std::ptrdiff_t>(run.grad_first) * step.width,
            step.width};
}

// A batch: rows [first, first + count) of a run.
struct Bucket {
    int run, level, first, count;
};

struct PlanOptions {
    bool batched, fuses;  // not batched: one batch per node, without fusion
};

class Plan {
  public:
    // Schedule the nodes [from, to); values are stored in `memory`.
    Plan(Graph &graph, Groups &groups, Arena &memory, int from, int to, PlanOptions manner);

    int from, to;
    bool batched;
    bool has_repeats = false;  // an instance may represent several equal nodes, with one value and one gradient
    std::vector<Instance> instances;
    std::vector<int> outside;  // arguments of instances
    std::vector<Run> runs;
    std::vector<Bucket> buckets;
    // The instance that computes a node of this segment: -1 for inputs, parameters and lookups, -2 for inner nodes.
    int owner(int node) const { return owner_[node - from]; }
    std::uint32_t stamp;                      // identifies the plan
    std::vector<int> lookups, views;          // nodes
    std::vector<std::vector<int>> consumers;  // of each run, among the runs
    std::vector<std::vector<int>> producers;  // created when a backward pass needs them

  private:
    friend class Planner;
    std::vector<int> owner_;
};

}  // namespace dpmodule::autobatch
