// A schedule for one segment of the graph: what runs with what, in which order, and where values lie.
//
// The graph of groups (who feeds whom) is cut into its strongly connected components.  A node's level counts only the
// steps inside its own component: a group outside any recurrence is one batch for the whole segment, a recurrent one
// runs level by level.  Linear in nodes and arguments, no recursion.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.hpp"
#include "group.hpp"

namespace dpmodule::autobatch {

// One occurrence of a group.
struct Instance {
    int root;  // node
    int run;
    int first;  // where its outside arguments begin in Plan::outside
    int count;
    int level;
    int row;      // inside its run
    int repeats;  // how many other nodes are equal to the root
};

// All occurrences of one group in a plan, in order of levels; their values are one block.
struct Run {
    int group;
    int rows = 0;
    int component = 0;
    bool recurrent = false;   // takes part in a cycle
    std::vector<int> order;   // instance of each row
    std::vector<int> column;  // node of each outside argument, column by column; -1: zeros
    float *value = nullptr, *grad = nullptr, *kept = nullptr, *grad_kept = nullptr;
    bool wanted = false;  // by the backward pass now running
    const int *nodes(int column_index) const { return column.data() + static_cast<std::size_t>(column_index) * rows; }
};

// What a step leaves in all rows of a run, and its gradients, where these are not in scratch space.
inline Block value_in(const Run &run, const Group &group, const Step &step) {
    if (step.home == Step::Home::Root) return {run.value + step.at, group.row};
    return {run.kept + static_cast<std::ptrdiff_t>(step.at) * run.rows, step.width};
}
inline Block grad_in(const Run &run, const Group &group, const Step &step) {
    if (step.grad_home == Step::Home::Root) return {run.grad + step.grad_at, group.row};
    return {run.grad_kept + static_cast<std::ptrdiff_t>(step.grad_at) * run.rows, step.width};
}

// What runs together: rows [first, first + count) of a run.
struct Bucket {
    int run, level, first, count;
};

struct Manner {
    bool batched, fuses;  // not batched: each node is a batch of its own, nothing is fused
};

class Plan {
  public:
    // Schedule the nodes [from, to); values lie in `memory`.
    Plan(Graph &graph, Groups &groups, Arena &memory, int from, int to, Manner manner);

    int from, to;
    bool batched;
    bool has_repeats = false;  // an instance may stand for several nodes, which have one value and one gradient
    std::vector<Instance> instances;
    std::vector<int> outside;  // arguments of instances
    std::vector<Run> runs;
    std::vector<Bucket> buckets;
    // The instance that computes a node of this segment: -1 for inputs, parameters and lookups, -2 for inner nodes.
    int owner(int node) const { return owner_[node - from]; }
    std::uint32_t stamp;                      // tells plans apart
    std::vector<int> lookups, views;          // nodes
    std::vector<std::vector<int>> consumers;  // of each run, among the runs
    std::vector<std::vector<int>> producers;  // likewise; made when a backward pass needs them

  private:
    friend class Planner;
    std::vector<int> owner_;
};

}  // namespace dpmodule::autobatch
