// The node table and what nodes refer to: parameters and tables of rows.
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
    int first;  // where its arguments begin in the pool
    int count;  // of them
    int aux;    // a row, a label, an offset: whatever differs between nodes of one signature
};

// A parameter lives in a torch tensor; `grad` may be absent.
struct Param {
    float *value = nullptr, *grad = nullptr;
    int rows = 0, cols = 0;  // cols 1 for a vector
    int sig = -1;
    int node = -1;  // in the graph of `round`
    std::uint32_t round = 0;
    int size() const { return rows * cols; }
};

// Rows of a torch tensor; the gradient is a tensor of the same shape of which only some rows are touched.
class Table {
  public:
    Table(float *value, int rows, int width);
    float *value, *grads = nullptr;
    int rows, width, sig = -1;
    // The gradient of one row; the row counts as touched from then on.  nullptr without gradients.
    float *grad(int row);
    // The rows touched since the last call, sorted.
    std::vector<int> take_touched();
    // Does the gradient of `row` have many parts?
    bool is_crowded(int row) const;
    // The first of all nodes of one plan that read `row`; `stamp` tells plans apart.
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
    std::vector<std::uint8_t> uses;    // by how many nodes, up to most_uses; or the bit `fused`
    std::vector<float *> value, grad;  // of nodes that a plan has placed
    std::uint32_t round = 1;           // counts renew()
    Arena inputs;
    std::vector<int> numbers;  // scratch space for whoever numbers nodes; all -1 between uses

    int size() const { return static_cast<int>(nodes.size()); }
    const Signature &signature(int node) const { return signatures[nodes[node].sig]; }
    const Shape &shape(int node) const { return signatures.shape(signature(node).shape); }
    const int *begin(int node) const { return args.data() + nodes[node].first; }
    // Is it the second result of the node in front, which is a Compound?
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
    // Keep labels for a node that is added next; returns where they lie in `args`.
    int keep_labels(const std::vector<int> &labels) {
        const int first = static_cast<int>(args.size());
        args.insert(args.end(), labels.begin(), labels.end());
        return first;
    }
    // The labels of a node for a minibatch of so many.
    const int *labels(const Node &node, int batch) const { return batch == 1 ? &node.aux : args.data() + node.aux; }
    int add_input(int sig, float *at);  // whose numbers lie in `inputs`
    int param_node(int param);          // one per parameter and round

    // What rounding takes from gradients that have many parts, while these are computed: per node, nullptr for most;
    // empty where no node has that many.
    std::vector<float *> remainder;
    bool is_crowded(int node) const { return !remainder.empty() && remainder[node]; }
    void keep_remainder(int node);  // its gradient has been placed
    void settle(int node);          // add its remainder to the gradient: all parts are there
    void settle();                  // likewise for all nodes, and keep none any more
    void drop_remainders();

    // What nodes have drawn, for computing the same again.
    std::unordered_map<int, std::vector<float>> drawn;

    static constexpr std::uint8_t most_uses = 127, fused = 128;
    bool is_fused(int node) const { return uses[node] & fused; }
    // A node whose value was fused away is computed again under a new number when somebody asks for it.
    int again(int node);
    // The number under which a node was computed again, -1 if it was not.
    int copy_of(int node) const {
        const auto known = again_.find(node);
        return known == again_.end() ? -1 : known->second;
    }
    // A node that cannot be computed: those that read it cannot, either.  Whoever asks for it has it computed under a new
    // number, as if it had been fused away.
    void skip(int node);
    bool is_skipped(int node) const {
        return !skipped_.empty() && std::binary_search(skipped_.begin(), skipped_.end(), node);
    }
    bool has_skipped() const { return !skipped_.empty(); }
    void renew();
    // Forget the nodes from `size` on; those from `computed` on count as not computed.
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
