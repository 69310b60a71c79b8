// The node table, and the parameters and tables that nodes refer to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "arena.hpp"
#include "signature.hpp"

namespace dpmodule::autobatch {

struct Node {
    int sig;
    int first;  // start of its arguments in the pool
    int count;  // number of arguments
    int aux;    // a row, a label, an offset: the argument that differs between nodes of one signature
};

// A parameter in the memory of a torch tensor; `grad` may be absent.
struct Param {
    float *value = nullptr, *grad = nullptr;
    int rows = 0, cols = 0;  // cols 1 for a vector
    int sig = -1;
    int node = -1;  // in the graph of `round`
    std::uint32_t round = 0;
    int size() const { return rows * cols; }
};

// Rows of a torch tensor; the gradient has the same shape, but only some rows are touched.
class Table {
  public:
    Table(float *value, int rows, int width);
    float *value, *grads = nullptr;
    int rows, width, sig = -1;
    // The gradient of one row, which is marked as touched; nullptr without gradients.
    float *grad(int row);
    // The rows touched since the last call, sorted.
    std::vector<int> take_touched();
    // True if the gradient of `row` has many parts.
    bool is_crowded(int row) const;
    // The first of all nodes of one plan that read `row`; `stamp` identifies the plan.
    int first_reader(int row, int node, std::uint32_t stamp);

  private:
    std::vector<std::uint8_t> touches_;  // of each row, up to Graph::most_uses
    std::vector<int> touched_;
    std::vector<int> reader_;
    std::vector<std::uint32_t> reader_stamp_;
};

class Graph {
  public:
    Signatures signatures;
    std::vector<Param> params;
    std::vector<std::unique_ptr<Table>> tables;

    std::vector<Node> nodes;
    std::vector<int> args;             // of nodes, and labels
    std::vector<std::uint8_t> uses;    // number of uses, up to most_uses; or the bit `fused`
    std::vector<float *> value, grad;  // of nodes with memory assigned by a plan
    std::uint32_t round = 1;           // counts renew()
    Arena inputs;
    std::vector<int> numbers;  // scratch space for numbering nodes; all -1 between uses

    int size() const { return static_cast<int>(nodes.size()); }
    const Signature &signature(int node) const { return signatures[nodes[node].sig]; }
    const Shape &shape(int node) const { return signatures.shape(signature(node).shape); }
    const int *begin(int node) const { return args.data() + nodes[node].first; }
    // True for the second result of a Compound, the previous node.
    bool is_memory(int node) const {
        return node > 0 && signature(node).op == Op::View && *begin(node) == node - 1 &&
               nodes[node].sig == memory_of(node - 1);
    }

    int add(int sig, const int *arguments, int count, int aux = 0) {
        for (int i = 0; i < count; i++) {
            const int a = arguments[i];
            if (a < 0) continue;
            if (uses[a] & fused) return add_again(sig, arguments, count, aux);
            uses[a] += uses[a] < most_uses;
        }
        const int id = size(), first = static_cast<int>(args.size());
        args.insert(args.end(), arguments, arguments + count);
        nodes.push_back({sig, first, count, aux});
        uses.push_back(0);
        return id;
    }
    // Store labels for the next node; returns their position in `args`.
    int keep_labels(const std::vector<int> &labels) {
        const int first = static_cast<int>(args.size());
        args.insert(args.end(), labels.begin(), labels.end());
        return first;
    }
    // The labels of a node for a minibatch.
    const int *labels(const Node &node, int batch) const { return batch == 1 ? &node.aux : args.data() + node.aux; }
    int add_input(int sig, float *at);  // with values in `inputs`
    int param_node(int param);          // one per parameter and round

    // Rounding errors of gradients with many parts, for compensated sums: per node, usually nullptr; empty if no node
    // has many.
    std::vector<float *> remainder;
    bool is_crowded(int node) const { return !remainder.empty() && remainder[node]; }
    void keep_remainder(int node);  // after its gradient has memory
    void settle(int node);          // add the remainder to the complete gradient
    void settle();                  // the same for all nodes, and drop the remainders
    void drop_remainders();

    // Random numbers of nodes, for recomputation.
    std::unordered_map<int, std::vector<float>> drawn;

    static constexpr std::uint8_t most_uses = 127, fused = 128;
    bool is_fused(int node) const { return uses[node] & fused; }
    // A fused node is recomputed under a new number when its value is requested.
    int again(int node);
    // The number of a node's recomputation, or -1.
    int copy_of(int node) const {
        const auto known = again_.find(node);
        return known == again_.end() ? -1 : known->second;
    }
    // A failed node, whose readers fail, too. A request recomputes it under a new number, as if it were fused.
    void skip(int node);
    bool is_skipped(int node) const {
        return !skipped_.empty() && std::binary_search(skipped_.begin(), skipped_.end(), node);
    }
    bool has_skipped() const { return !skipped_.empty(); }
    void renew();
    // Remove the nodes from `size` on; nodes from `computed` on count as not computed.
    void revert(int size, int computed);

  private:
    int memory_of(int node) const {
        const Signature &s = signature(node);
        return s.op == Op::Compound ? signatures.compounds[s.kind].memory_sig : -1;
    }
    int add_again(int sig, const int *arguments, int count, int aux);
    std::unordered_map<float *, std::vector<float>> remainders_;  // by gradient
    std::unordered_map<int, int> again_;
    std::vector<int> skipped_;  // in order
};

}  // namespace dpmodule::autobatch
