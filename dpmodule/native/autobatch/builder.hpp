// Adds operations with kernels to a graph: finds the signature, checks shapes. Every function returns the new node, or
// -1 if no kernel supports the operands, which then go to Python.
#pragma once

#include <array>
#include <cstring>
#include <unordered_set>

#include "graph.hpp"

namespace dpmodule::autobatch {

// A number as part of a key.
inline int bits(float x) {
    int found;
    std::memcpy(&found, &x, sizeof found);
    return found;
}

// The size of a shape along an axis; axes that it lacks have size 1.
inline int padded(const std::vector<int> &dims, std::size_t axis) { return axis < dims.size() ? dims[axis] : 1; }

class Builder {
  public:
    explicit Builder(Graph &graph) : graph_(graph) {}

    int unary(Unary kind, float attr, int x);
    int power(float exponent, int x);
    int binary(Binary kind, int a, int b);
    // bias (-1: none) + the sum of parameter `terms[2i]` times vector `terms[2i + 1]`
    int affine(int bias, const int *terms, int count, bool is_column = false);
    // the same of any matrices
    int inverse(int x);
    int transform(int bias, const int *terms, int count);
    int multiply(int a, int b);
    int add_to_columns(int x, int column);
    int concat(const int *parts, int count, int axis = 0);
    int repeated(int x, int batch);  // the same for every element of a minibatch
    int to_batch(const int *parts, int count, int kind);
    int elements(int x, const std::vector<int> &places);  // of a minibatch
    int transpose(int x);
    int reshape(int x, int shape);
    // count and stride of a loop
    struct Loop {
        int size, step;
    };
    // steps, first and end of each dimension, then of the minibatch; dimensions beyond the lists are selected whole
    int strided(int x, const std::vector<int> &steps, const std::vector<int> &firsts, const std::vector<int> &lasts);
    // the elements that nested loops read from `first` on, the outermost first
    int arranged(Arrangement kind, int x, int first, const std::vector<Loop> &loops, int shape);
    int sum(const int *parts, int count);
    // for minibatches: a list of one label per element, or a single label
    int loss(Op op, float margin, int scores, std::vector<int> labels, bool is_list);
    // for matrices: one label per row (axis 1) or column, of each element or of all
    int hinge_along(int axis, float margin, int scores, std::vector<int> labels);
    int pick_each(int x, const std::vector<int> &labels, int axis = 0);
    int drawn(Draw kind, double rate, int x, int axis = 0);  // axis: of DropoutDim
    int random(Draw kind, int shape, double first, double second);
    // `axes` is a bit set: bit 0 is the minibatch, bit 1 the first dimension
    int along(Reduction kind, int x, unsigned axes, int divisor = 0);
    int moment(int power, int x, unsigned axes, int divisor = 0);  // the mean of powers
    // elementwise over all operands: log(exp(x1) + exp(x2) + ...), or the maximum
    int across(Reduction kind, const int *parts, int count);
    // the given rows and columns of a matrix, or rows of a vector
    int select(int x, const std::vector<int> &rows, const std::vector<int> &columns);
    // an image, and for Convolve filters and optional biases; the window is for Pool only
    struct Window {
        int tall, wide, down, right;
        bool is_valid;  // the window must not extend past the border
    };
    int slide(Op op, const int *args, int count, Window window, bool is_narrow = false);
    // a matrix and filters of its height, which go along it
    int filter(int x, int filters);
    // sums of `count` consecutive rows
    int fold(int x, int rows);
    // along one dimension: the greatest numbers, the sums up to each of them
    int greatest(int x, int count, int axis);
    int sums(int x, int axis);
    int softmax(Op op, int x, int axis = 0);
    int restricted(int x, const std::vector<int> &places);  // LogSoftmax of some places of a vector
    int sparsemax(int x);
    int constrained(int x, int bounds);
    int argmax(int x, bool passes) { return lines(Op::Argmax, x, 0, 0, {passes}); }  // does the gradient pass
    int reduce(Op op, int x, int y = -1);
    int pick(int x, int index, int axis = 0);
    int range(int x, int first, int last, int axis = 0);
    int lookup(int table, int row);
    // an input whose values the caller writes to `at`
    int input(const std::vector<int> &dims, float *&at, int batch = 1);
    // returns h; c is the next node. -1 for h or c means zeros.
    int lstm(int x, int h, int c, int wx, int wh, int bias, float forget_bias);
    // the result; a second one is the next node
    int compound(int number, const int *operands);
    // a node of a shape, without a value
    int stand_in(int shape) { return graph_.add(simple(Op::Input, 0, 0, shape, 0), nullptr, 0); }

  private:
    // Cache of recently used signatures.
    struct Entry {
        std::uint64_t a = 0, b = 0, c = 0;
        int sig = -1;
    };
    // In registers: a processor waits if it reads two numbers together that were written one by one.
    static std::uint64_t pair(int low, int high) {
        return static_cast<std::uint64_t>(high) << 32 | static_cast<std::uint32_t>(low);
    }
    template <class F>
    int signature(std::array<int, 6> key, F make) {
        const std::uint64_t a = pair(key[0], key[1]), b = pair(key[2], key[3]), c = pair(key[4], key[5]);
        // independent products, since a hash of one number after the other would take longer than the search
        const auto h = (a * 0x9e3779b97f4a7c15ull + b * 0xff51afd7ed558ccdull + c * 0xc4ceb9fe1a85ec53ull) >> 54;
        // colliding entries would evict each other, so the next slots are tried, too
        constexpr std::uint32_t tries = 4;
        for (std::uint32_t i = 0; i < tries; i++) {
            Entry &entry = recent_[(h + i) % recent_.size()];
            if (entry.a == a && entry.b == b && entry.c == c && entry.sig >= 0) return entry.sig;
            if (entry.sig >= 0 && i + 1 < tries) continue;
            entry = {a, b, c, graph_.signatures.add(make())};
            return entry.sig;
        }
        return -1;  // not reached
    }
    int shape_of(int node) const { return graph_.signature(node).shape; }
    const Shape &shape(int node) const { return graph_.shape(node); }
    int reduction(Reduction kind, int x, unsigned axes, int divisor);  // the signature; -1: no kernel
    int broadcast(Binary kind, int a, int b);
    int add_column(int x, int column);  // without minibatches
    int sum_of_shapes(const int *parts, int count);
    bool fits_elements(int x, int y) const;  // one may lack the minibatch of the other
    bool is_vector(int node) const;
    bool is_column(int node) const;   // a vector, or a matrix of one column
    bool is_columns(int node) const;  // a minibatch of those
    bool is_flat(int shape) const;    // contiguous, whichever dimension runs fastest
    int product_shape(int a, int b);
    int part(int x, int first, int count, int axis);
    int lines(Op op, int x, int axis, int count = 0, const std::vector<int> &places = {});
    int view(int x, int shape, int first);
    Signature arrangement(Arrangement kind, int width, int first, const std::vector<Loop> &loops, int shape);
    const Param *matrix(int node, int &index) const;  // nullptr: not a parameter
    int simple(Op op, int kind, float attr, int shape, int nargs);

    struct Mask {
        int repeats, inner;  // each number is repeated `repeats` times, `inner` apart
    };
    int drawing(Draw kind, int shape, const Signature *operand, double first, double second, Mask mask = {1, 1});
    bool is_common(Unary kind, float attr);
    int unary_each(Unary kind, float attr, int x);

    Graph &graph_;
    std::unordered_set<std::uint64_t> numbers_;  // with their own signatures
    Interner drawings_;                          // of the parameters of random nodes
    std::array<Entry, 1024> recent_;
};

}  // namespace dpmodule::autobatch
