// Reading and adding to rows that lie anywhere, as one block where their addresses allow it.
#pragma once

#include "graph.hpp"

namespace dpmodule::autobatch {

inline Block rows_from(Block block, int first) { return {block.at + first * block.stride, block.stride}; }
// The rows of `pointers[nodes[0..count)]` as a block without copying, or a block with `at` nullptr.
// `apart`: rows must not overlap (for writing).
Block as_block(const std::vector<float *> &pointers, const int *nodes, int count, int width, bool apart);
// The gradients of nodes, likewise, for adding to; not of those whose remainders are kept.
Block as_target(const Graph &graph, const int *nodes, int count, int width);
// Copy rows; node -1 is a row of zeros.
void gather(const Graph &graph, const int *nodes, int count, int width, Block to);
// Add rows to gradients; nodes without one are skipped.
void scatter(const Graph &graph, const int *nodes, int count, int width, Block from);
// Likewise to some numbers of one gradient.
void scatter_part(const Graph &graph, int node, int at, int count, const float *from);
bool any_grad(const Graph &graph, const int *nodes, int count);

// `to` (columns x rows) from a matrix of so many rows and columns.
void turn(int rows, int columns, const float *from, float *to, bool add = false);

}  // namespace dpmodule::autobatch
