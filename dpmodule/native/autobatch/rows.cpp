#include "rows.hpp"

#include <cstring>

namespace dpmodule::autobatch {

Block as_block(const std::vector<float *> &pointers, const int *nodes, int count, int width, bool apart) {
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

Block as_target(const Graph &graph, const int *nodes, int count, int width) {
    for (int i = 0; i < count && !graph.remainder.empty(); i++) {
        if (nodes[i] >= 0 && graph.is_crowded(nodes[i])) return {};
    }
    return as_block(graph.grad, nodes, count, width, true);
}

void gather(const Graph &graph, const int *nodes, int count, int width, Block to) {
    for (int i = 0; i < count; i++, to.at += to.stride) {
        if (nodes[i] < 0) std::memset(to.at, 0, sizeof(float) * width);
        else std::memcpy(to.at, graph.value[nodes[i]], sizeof(float) * width);
    }
}

void scatter(const Graph &graph, const int *nodes, int count, int width, Block from) {
    for (int i = 0; i < count; i++, from.at += from.stride) {
        if (nodes[i] >= 0) scatter_part(graph, nodes[i], 0, width, from.at);
    }
}

void scatter_part(const Graph &graph, int node, int at, int count, const float *from) {
    float *to = graph.grad[node];
    if (!to) return;
    if (graph.is_crowded(node)) kernels().add_exactly(count, to + at, graph.remainder[node] + at, from);
    else kernels().accumulate(count, to + at, from);
}

bool any_grad(const Graph &graph, const int *nodes, int count) {
    for (int i = 0; i < count; i++) {
        if (nodes[i] >= 0 && graph.grad[nodes[i]]) return true;
    }
    return false;
}

void turn(int rows, int columns, const float *from, float *to, bool add) {
    for (int c = 0; c < columns; c++) {
        for (int r = 0; r < rows; r++, to++) *to = (add ? *to : 0.0f) + from[r * columns + c];
    }
}

}  // namespace dpmodule::autobatch
