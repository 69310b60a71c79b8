#include "graph.hpp"

#include <algorithm>
#include <utility>

namespace dpmodule::autobatch {

Table::Table(float *value, int rows, int width) : value(value), rows(rows), width(width), touches_(rows, 0) {}

float *Table::grad(int row) {
    if (!grads) return nullptr;
    std::uint8_t &touches = touches_[row];
    if (!touches) touched_.push_back(row);
    touches += touches < Graph::most_uses;
    return grads + static_cast<std::size_t>(row) * width;
}

std::vector<int> Table::take_touched() {
    for (int row : touched_) touches_[row] = 0;
    std::sort(touched_.begin(), touched_.end());
    return std::exchange(touched_, {});
}

bool Table::is_crowded(int row) const { return touches_[row] == Graph::most_uses; }

int Table::first_reader(int row, int node, std::uint32_t stamp) {
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

int Graph::param_node(int index) {
    Param &p = params[index];
    if (p.round != round) {
        p.round = round;
        p.node = add(p.sig, nullptr, 0);
    }
    return p.node;
}

int Graph::add_input(int sig, float *at) {
    const int node = add(sig, nullptr, 0);
    value.resize(node + 1, nullptr);
    grad.resize(node + 1, nullptr);
    value[node] = at;
    return node;
}

// An argument was fused; the uses counted so far only make the planner more conservative.
int Graph::add_again(int sig, const int *arguments, int count, int aux) {
    std::vector<int> real(arguments, arguments + count);
    for (int &a : real) {
        if (a >= 0 && is_fused(a)) a = again(a);
    }
    return add(sig, real.data(), count, aux);
}

int Graph::again(int node) {
    const auto known = again_.find(node);
    if (known != again_.end()) return is_fused(known->second) ? again(known->second) : known->second;
    const Node old = nodes[node];
    const std::vector<int> arguments(begin(node), begin(node) + old.count);
    const int id = add(old.sig, arguments.data(), old.count, old.aux);  // groups are small, so the recursion is shallow
    again_[node] = id;
    return id;
}

void Graph::skip(int node) {
    uses[node] |= fused;
    if (static_cast<int>(value.size()) <= node) value.resize(node + 1, nullptr), grad.resize(node + 1, nullptr);
    value[node] = grad[node] = nullptr;
    skipped_.push_back(node);
}

void Graph::keep_remainder(int node) {
    if (!grad[node]) return;
    std::vector<float> &kept = remainders_[grad[node]];
    kept.resize(signature(node).row(), 0.0f);
    remainder.resize(size(), nullptr);
    remainder[node] = kept.data();
}

void Graph::settle(int node) {
    if (!is_crowded(node)) return;
    std::vector<float> &kept = remainders_[grad[node]];
    for (std::size_t i = 0; i < kept.size(); i++) grad[node][i] += kept[i];
    std::fill(kept.begin(), kept.end(), 0.0f);
}

void Graph::settle() {
    for (auto &[at, kept] : remainders_) {
        for (std::size_t i = 0; i < kept.size(); i++) at[i] += kept[i];
    }
    drop_remainders();
}

void Graph::drop_remainders() {
    remainder.clear();
    remainders_.clear();
}

namespace {

template <class T>
void empty(std::vector<T> &v) {
    // oversized vectors are released to the system
    if (v.capacity() > (1u << 16) && v.capacity() > 8 * v.size()) std::vector<T>().swap(v);
    v.clear();
}

}  // namespace

void Graph::renew() {
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

void Graph::revert(int size, int computed) {
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

}  // namespace dpmodule::autobatch
