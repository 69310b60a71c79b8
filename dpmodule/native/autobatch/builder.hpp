// Adds operations with kernels to a graph: finds the signature, checks shapes.
//
// Every function returns the new node, or -1 where the operands are not what a kernel takes: then the slow way decides.
#pragma once

#include <array>
#include <unordered_set>

#include "graph.hpp"
#include "kernels.hpp"

namespace dpmodule::autobatch {

class Builder {
   public:
    explicit Builder(Graph &graph) : graph_(graph) {}

    int unary(Unary kind, float attr, int x);
    int binary(Binary kind, int a, int b);
    // bias (-1: none) + the sum of matrix `terms[2i]` times vector `terms[2i + 1]`
    int affine(int bias, const int *terms, int count);
    int concat(const int *parts, int count);
    int sum(const int *parts, int count);
    int loss(int scores, int label);
    int softmax(Op op, int x);
    int reduce(Op op, int x, int y = -1);
    int pick(int x, int index);
    int range(int x, int first, int last);
    int lookup(int table, int row);
    // h; its c is the next node.  -1 for h or c stands for zeros.
    int lstm(int x, int h, int c, int wx, int wh, int bias, float forget_bias);

   private:
    // Recently used signatures by what made them.
    struct Key {
        std::array<int, 6> of;
        bool operator==(const Key &other) const { return of == other.of; }
    };
    struct Entry {
        Key key{{-1, 0, 0, 0, 0, 0}};
        int sig = -1;
    };
    template <class F> int signature(const Key &key, F make);
    int shape_of(int node) const { return graph_.signature(node).shape; }
    bool is_vector(int node) const;
    const Param *matrix(int node, int &index) const;   // nullptr: not a parameter
    int simple(Op op, int kind, float attr, int shape, int nargs);

    bool is_common(Unary kind, float attr);
    int unary_each(Unary kind, float attr, int x);

    Graph &graph_;
    std::unordered_set<std::uint64_t> numbers_;   // that have signatures of their own
    std::array<Entry, 1024> recent_;
};

}  // namespace dpmodule::autobatch
