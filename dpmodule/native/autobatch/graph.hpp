// The node table, and the parameters and tables that nodes refer to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "signature.hpp"

namespace dpmodule::autobatch {

constexpr std::uint8_t most_uses = 127;  // largest number of uses that is counted

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
    Table(float *value, int rows, int width) : value(value), rows(rows), width(width), touches_(rows, 0) {}
    float *value, *grads = nullptr;
    int rows, width, sig = -1;
    // The gradient of one row, which is marked as touched; nullptr without gradients.
    float *grad(int row) {
        if (!grads) return nullptr;
        std::uint8_t &touches = touches_[row];
        if (!touches) touched_.push_back(row);
        touches += touches < most_uses;
        return grads + static_cast<std::size_t>(row) * width;
    }
    // The rows touched since the last call, sorted.
    std::vector<int> take_touched() {
        for (int row : touched_) touches_[row] = 0;
        std::sort(touched_.begin(), touched_.end());
        return std::exchange(touched_, {});
    }
    // True if the gradient of `row` has many parts.
    bool is_crowded(int row) const { return touches_[row] == most_uses; }
    // The first of all nodes of one plan that read `row`; `stamp` identifies the plan.
    int first_reader(int row, int node, std::uint32_t stamp) {
        if (reader_.empty()) {
            reader_.assign(rows, -1);
            reader_stamp_.assign(rows, 0);
        }
        if (reader_stamp_[row] != stamp) {
            reader_stamp_[row] = stamp;
            reader_[row] = node;
        }
        return reader_[row];
    }

  private:
    std::vector<std::uint8_t> touches_;  // of each row, up to most_uses
    std::vector<int> touched_;
    std::vector<int> reader_;
    std::vector<std::uint32_t> reader_stamp_;
};

template <class T>
void empty(std::vector<T> &v) {
    // oversized vectors are released to the system
    if (v.capacity() > (1u << 16) && v.capacity() > 8 * v.size()) std::vector<T>().swap(v);
    v.clear();
}

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
        for (int i = 0; i < count; i++) args.push_back(arguments[i]);  // mostly one or two: faster than insert()
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
    // A node with values in `inputs`.
    int add_input(int sig, float *at) {
        const int node = add(sig, nullptr, 0);
        value.resize(node + 1, nullptr);
        grad.resize(node + 1, nullptr);
        value[node] = at;
        return node;
    }
    // One per parameter and round.
    int param_node(int index) {
        Param &p = params[index];
        if (p.round != round) {
            p.round = round;
            p.node = add(p.sig, nullptr, 0);
        }
        return p.node;
    }

    // Rounding errors of gradients with many parts, for compensated sums: per node, usually nullptr; empty if no node
    // has many.
    std::vector<float *> remainder;
    bool is_crowded(int node) const { return !remainder.empty() && remainder[node]; }
    // Called after the gradient has memory.
    void keep_remainder(int node) {
        if (!grad[node]) return;
        std::vector<float> &kept = remainders_[grad[node]];
        kept.resize(signature(node).row(), 0.0f);
        remainder.resize(size(), nullptr);
        remainder[node] = kept.data();
    }
    // Add the remainder to the complete gradient.
    void settle(int node) {
        if (!is_crowded(node)) return;
        std::vector<float> &kept = remainders_[grad[node]];
        for (std::size_t i = 0; i < kept.size(); i++) grad[node][i] += kept[i];
        std::fill(kept.begin(), kept.end(), 0.0f);
    }
    // The same for all nodes, and drop the remainders.
    void settle() {
        for (auto &[at, kept] : remainders_) {
            for (std::size_t i = 0; i < kept.size(); i++) at[i] += kept[i];
        }
        drop_remainders();
    }
    void drop_remainders() {
        remainder.clear();
        remainders_.clear();
    }

    // Random numbers of nodes, for recomputation.
    std::unordered_map<int, std::vector<float>> drawn;

    static constexpr std::uint8_t most_uses = autobatch::most_uses, fused = 128;
    bool is_fused(int node) const { return uses[node] & fused; }
    // A fused node is recomputed under a new number when its value is requested.
    int again(int node) {
        const auto known = again_.find(node);
        if (known != again_.end()) return is_fused(known->second) ? again(known->second) : known->second;
        const Node old = nodes[node];
        const std::vector<int> arguments(begin(node), begin(node) + old.count);
        const int id =
            add(old.sig, arguments.data(), old.count, old.aux);  // groups are small, so the recursion is shallow
        again_[node] = id;
        return id;
    }
    // The number of a node's recomputation, or -1.
    int copy_of(int node) const {
        const auto known = again_.find(node);
        return known == again_.end() ? -1 : known->second;
    }
    // A failed node, whose readers fail, too. A request recomputes it under a new number, as if it were fused.
    void skip(int node) {
        uses[node] |= fused;
        if (static_cast<int>(value.size()) <= node) value.resize(node + 1, nullptr), grad.resize(node + 1, nullptr);
        value[node] = grad[node] = nullptr;
        skipped_.push_back(node);
    }
    bool is_skipped(int node) const {
        return !skipped_.empty() && std::binary_search(skipped_.begin(), skipped_.end(), node);
    }
    bool has_skipped() const { return !skipped_.empty(); }
    void renew() {
        empty(nodes);
        empty(args);
        empty(uses);
        empty(value);
        empty(grad);
        empty(numbers);
        inputs.reset();
        again_.clear();
        skipped_.clear();
        drawn.clear();
        round++;
    }
    // Remove the nodes from `size` on; nodes from `computed` on count as not computed.
    void revert(int size, int computed) {
        nodes.resize(size);
        uses.resize(size);
        args.resize(size ? nodes.back().first + nodes.back().count : 0);
        if (static_cast<int>(value.size()) > size) value.resize(size), grad.resize(size);
        skipped_.erase(std::lower_bound(skipped_.begin(), skipped_.end(), std::min(computed, size)), skipped_.end());
        for (int n = computed; n < size; n++) uses[n] &= static_cast<std::uint8_t>(~fused);
        for (auto each = drawn.begin(); each != drawn.end();)
            each = each->first >= size ? drawn.erase(each) : std::next(each);
        for (auto each = again_.begin(); each != again_.end();)
            each = each->second >= size ? again_.erase(each) : std::next(each);
        for (Param &p : params) {
            if (p.node >= size) p.round = 0;
        }
    }

  private:
    int memory_of(int node) const {
        const Signature &s = signature(node);
        return s.op == Op::Compound ? signatures.compounds[s.kind].memory_sig : -1;
    }
    // An argument was fused; the uses counted so far only make the planner more conservative.
    int add_again(int sig, const int *arguments, int count, int aux) {
        std::vector<int> real(arguments, arguments + count);
        for (int &a : real) {
            if (a >= 0 && is_fused(a)) a = again(a);
        }
        return add(sig, real.data(), count, aux);
    }
    std::unordered_map<float *, std::vector<float>> remainders_;  // by gradient
    std::unordered_map<int, int> again_;
    std::vector<int> skipped_;  // in order
};

}  // namespace dpmodule::autobatch
