// Reading and adding to scattered rows, as one block if their addresses are evenly spaced.
#pragma once

#include <cstring>
#include "plan.hpp"

namespace dpmodule::autobatch {

inline Block rows_from(Block block, int first) { return {block.at + first * block.stride, block.stride}; }
// The rows of `pointers[nodes[0..count)]` as a block without copying; `at` is nullptr if impossible. `apart`: rows must
// not overlap (for writing).
Block as_block(const std::vector<float *> &pointers, const int *nodes, int count, int width, bool apart);
// True if a node has a kept remainder.
bool any_crowded(const Graph &graph, const int *nodes, int count);
// Copy rows; node -1 means zeros.
void gather(const Graph &graph, const int *nodes, int count, int width, Block to);
// Add rows to gradients; nodes without one are skipped.
void scatter(const Graph &graph, const int *nodes, int count, int width, Block from);
// The same for part of one gradient.
void scatter_part(const Graph &graph, int node, int at, int count, const float *from);
bool any_grad(const Graph &graph, const int *nodes, int count);

// Transpose a matrix into `to` (columns x rows).
void turn(int rows, int columns, const float *from, float *to, bool add = false);

inline Block as_block(const std::vector<float *> &pointers, const int *nodes, int count, int width, bool apart) {
    if (nodes[0] < 0 || !pointers[nodes[0]]) return {};
    float *first = pointers[nodes[0]];
    if (count == 1) return {first, width};
    if (nodes[1] < 0 || !pointers[nodes[1]]) return {};
    // integers: the rows may belong to different arrays
    const auto address = [&](int i) { return reinterpret_cast<std::intptr_t>(pointers[nodes[i]]); };
    const std::intptr_t start = address(0), step = address(1) - start;
    const std::intptr_t bytes = static_cast<std::intptr_t>(sizeof(float)) * width;
    if (step % static_cast<std::intptr_t>(sizeof(float)) || (apart && step < bytes)) return {};
    for (int i = 2; i < count; i++) {
        if (nodes[i] < 0 || address(i) != start + i * step) return {};
    }
    return {first, step / static_cast<std::ptrdiff_t>(sizeof(float))};
}

inline bool any_crowded(const Graph &graph, const int *nodes, int count) {
    for (int i = 0; i < count && !graph.remainder.empty(); i++) {
        if (nodes[i] >= 0 && graph.is_crowded(nodes[i])) return true;
    }
    return false;
}

inline void gather(const Graph &graph, const int *nodes, int count, int width, Block to) {
    for (int i = 0; i < count; i++, to.at += to.stride) {
        if (nodes[i] < 0) std::memset(to.at, 0, sizeof(float) * width);
        else std::memcpy(to.at, graph.value[nodes[i]], sizeof(float) * width);
    }
}

inline void scatter(const Graph &graph, const int *nodes, int count, int width, Block from) {
    for (int i = 0; i < count; i++, from.at += from.stride) {
        if (nodes[i] >= 0) scatter_part(graph, nodes[i], 0, width, from.at);
    }
}

inline void scatter_part(const Graph &graph, int node, int at, int count, const float *from) {
    float *to = graph.grad[node];
    if (!to) return;
    if (graph.is_crowded(node)) kernels().add_exactly(count, to + at, graph.remainder[node] + at, from);
    else kernels().accumulate(count, to + at, from);
}

inline bool any_grad(const Graph &graph, const int *nodes, int count) {
    for (int i = 0; i < count; i++) {
        if (nodes[i] >= 0 && graph.grad[nodes[i]]) return true;
    }
    return false;
}

inline void turn(int rows, int columns, const float *from, float *to, bool add) {
    for (int c = 0; c < columns; c++) {
        for (int r = 0; r < rows; r++, to++) *to = (add ? *to : 0.0f) + from[r * columns + c];
    }
}

}  // namespace dpmodule::autobatch
