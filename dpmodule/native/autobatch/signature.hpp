// Signatures: nodes of one signature do the same arithmetic with the same parameters and may share a batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"

namespace dpmodule::autobatch {

using namespace vector;  // the kernels

enum class Op : std::uint8_t {
#define OPERATION(kind, name) kind,
#include "op_list.hpp"
};
constexpr const char *names_of_Op[] = {
#define OPERATION(kind, name) name,
#include "op_list.hpp"
};

// clang-format off: lists
#define ARRANGEMENTS(X)                                                                                       \
    X(Transpose, "transpose") X(Reshape, "reshape") X(Strided, "strided_select") X(Ngram, "kmh_ngram")        \
    X(CircularConvolution, "circ_conv") X(CircularCorrelation, "circ_corr")
NAMED_ENUM(Arrangement, ARRANGEMENTS)
#define CONVOLUTIONS(X) X(Image, "conv2d") X(Lines, "filter1d_narrow")   // Lines: along a matrix, filter by filter
// clang-format on
NAMED_ENUM(Convolution, CONVOLUTIONS)

struct Signature {
    Signature() = default;
    // With as many operands as widths.
    Signature(Op op, int kind, int shape, std::vector<int> widths, std::vector<int> params = {}, float attr = 0)
        : op(op), kind(kind), attr(attr), shape(shape), nargs(static_cast<int>(widths.size())),
          params(std::move(params)), widths(std::move(widths)) {}

    Op op = Op::Input;
    int kind = 0;  // the Unary or Binary; for Call the number of its Python object
    float attr = 0;
    int shape = -1;           // of the value, a number in Shapes
    int width = 0;            // floats in the value
    bool is_matrix = false;   // more than one row and more than one column
    int nargs = 0;            // -1: differs between nodes
    std::vector<int> params;  // Broadcast: shapes of the operands
                              // Affine, Lstm: bias or -1, then weights; Param, Lookup: its number
                              // Multiply: the parameter of each operand or -1, then columns of the left one
    // Drawn: the same, then the halves of its two numbers, repetitions and stride of mask numbers
    // Reduce: number of reduced elements, their stride, and 1 if operands are reduced with each
    // other, 2 for adjacent rows
    // Softmax, LogSoftmax, Greatest, Sums, Argmax: count and stride, and for LogSoftmax the
    // restricted indices, for Argmax whether gradients pass
    // Select: number of rows, row offsets, column offsets
    // ConcatColumns: repetitions of each operand for the elements of a minibatch
    // PickEach: number of parts of an element, and of places in each
    // Arrange: the first element, then count and stride of nested loops
    // Convolve, Pool: sizes of the image, the window, its steps, padding above and on the left,
    // sizes of the result; filters and biases as for Multiply
    std::vector<int> widths;  // of the arguments
    int further = 0;          // floats of further results after the value, accessed by views
    int row() const { return width + further; }
};

// Several operations as one node: the step of a recurrent network.
struct Compound {
    struct Part {
        int sig;
        std::vector<int> args;  // operands first, then earlier parts
    };
    std::vector<Part> parts;  // in order of computation; the last part is the result
    int operands = 0;
    int memory = -1;                // the part that is the second result, -1: none
    int sig = -1, memory_sig = -1;  // of the nodes
};

struct Shape {
    std::vector<int> dims;
    int batch = 1;
    int size = 1;  // floats, batch included
    bool operator==(const Shape &other) const { return dims == other.dims && batch == other.batch; }
};

// Error for a shape with too many elements.
struct TooLarge : std::length_error {
    TooLarge()
        : std::length_error("an expression of the native engine has at most 2147483647 elements with its minibatch") {}
};

// Numbers tuples of integers from 0, in order of insertion; used by the tables below.
class Interner {
  public:
    // The number of `key`, and true if it is new.
    std::pair<int, bool> number(const std::vector<int> &key) {
        std::uint64_t h = 0x9e3779b97f4a7c15ull;
        for (int x : key) h = (h ^ static_cast<std::uint32_t>(x)) * 0xff51afd7ed558ccdull, h ^= h >> 32;
        const auto hash = static_cast<std::uint32_t>(h);
        if (2 * ends_.size() >= slots_.size()) grow();
        std::size_t slot = hash & (slots_.size() - 1);
        for (int known; (known = slots_[slot]) >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
            const std::size_t begin = known ? ends_[known - 1] : 0;
            if (hashes_[known] == hash &&
                std::equal(key.begin(), key.end(), keys_.begin() + begin, keys_.begin() + ends_[known]))
                return {known, false};
        }
        const int fresh = static_cast<int>(ends_.size());
        keys_.insert(keys_.end(), key.begin(), key.end());
        hashes_.push_back(hash);
        ends_.push_back(keys_.size());
        slots_[slot] = fresh;
        return {fresh, true};
    }

  private:
    void grow() {
        slots_.assign(std::max<std::size_t>(16, 2 * slots_.size()), -1);
        for (std::size_t number = 0; number < ends_.size(); number++) {
            std::size_t slot = hashes_[number] & (slots_.size() - 1);
            while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
            slots_[slot] = static_cast<int>(number);
        }
    }
    std::vector<int> keys_;          // concatenated
    std::vector<std::size_t> ends_;  // of each key
    std::vector<std::uint32_t> hashes_;
    std::vector<int> slots_;  // numbers, by hash with linear probing; -1: free
};

class Signatures {
  public:
    int add(Signature s) {
        std::vector<int> key = {static_cast<int>(s.op), s.kind, 0, s.shape, s.nargs, static_cast<int>(s.params.size())};
        std::memcpy(&key[2], &s.attr, sizeof s.attr);
        key.insert(key.end(), s.params.begin(), s.params.end());
        key.insert(key.end(), s.widths.begin(), s.widths.end());
        const auto [index, fresh] = numbers_.number(key);
        if (fresh) {
            if (s.shape >= 0) {
                const std::vector<int> &dims = shapes_[s.shape].dims;
                s.width = shapes_[s.shape].size;
                s.is_matrix = dims.size() > 1 && dims[0] > 1 && s.width > dims[0];
            }
            all_.push_back(std::move(s));
        }
        return index;
    }
    const Signature &operator[](int index) const { return all_[index]; }
    int size() const { return static_cast<int>(all_.size()); }

    int add_shape(const std::vector<int> &dims, int batch = 1) {
        std::int64_t size = batch;
        for (int d : dims) {
            size *= d;  // both fit into 32 bits
            if (size > INT32_MAX) throw TooLarge();
        }
        std::vector<int> key;
        key.reserve(dims.size() + 1);
        key.assign(dims.begin(), dims.end());
        key.push_back(batch);
        const auto [index, fresh] = shape_numbers_.number(key);
        if (fresh) {
            shapes_.push_back({dims, batch, static_cast<int>(size)});
        }
        return index;
    }
    const Shape &shape(int index) const { return shapes_[index]; }
    int vector_shape(int width) { return add_shape({width}); }
    std::vector<Compound> compounds;

  private:
    Interner numbers_, shape_numbers_;
    std::vector<Signature> all_;
    std::vector<Shape> shapes_;
};

}  // namespace dpmodule::autobatch
