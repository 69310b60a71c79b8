// b + W1 x1 + W2 x2 + ... for all occurrences of one step: how its inputs are read, and its gradients. A row of a run
// is a minibatch of vectors, each of which is a row of the product.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.hpp"

namespace dpmodule::autobatch {

// Weights packed for the product kernel: once per parameter and direction, until the parameters change.
class PackedWeights {
  public:
    explicit PackedWeights(const Graph &graph) : graph_(graph) {}
    // For Z = X W^T (`forward`) or X = Z W, with W the parameter.
    const float *get(int param, bool forward);
    bool has(int param, bool forward) const;
    void invalidate() { epoch_++; }

  private:
    struct Entry {
        std::vector<float> data;
        std::uint64_t epoch = 0;
    };
    const Graph &graph_;
    std::vector<Entry> entries_;
    std::uint64_t epoch_ = 1;
};

inline bool PackedWeights::has(int param, bool forward) const {
    const std::size_t index = 2 * static_cast<std::size_t>(param) + forward;
    return index < entries_.size() && entries_[index].epoch == epoch_;
}

inline const float *PackedWeights::get(int param, bool forward) {
    const std::size_t index = 2 * static_cast<std::size_t>(param) + forward;
    if (index >= entries_.size()) entries_.resize(index + 2);
    Entry &entry = entries_[index];
    if (entry.epoch != epoch_) {
        const Param &p = graph_.params[param];
        const int k = forward ? p.cols : p.rows, n = forward ? p.rows : p.cols;
        entry.data.resize(packed_size(kernels(), k, n));
        pack(kernels(), k, n, p.value, p.cols, forward, entry.data.data());
        entry.epoch = epoch_;
    }
    return entry.data.data();
}

// State shared by the steps of a run during computation.
struct Workspace {
    Graph &graph;
    PackedWeights &packed;
    Arena &memory;   // until renew
    Arena &scratch;  // until the next bucket
};

class Affine {
  public:
    Affine(Workspace &space, const Plan &plan, const Run &run, const Group &group, const Step &step);

    // Rows [first, first + count) of the output, whose row 0 is at `out`.
    void forward(Workspace &space, const Run &run, int first, int count, Block out);
    // Gradients of the inputs that were read row by row.
    void backward(Workspace &space, const Run &run, int first, int count, Block dout);
    // Once, after all rows: the other inputs, weights and bias.
    void finish(Workspace &space, const Run &run, Block dout);

  private:
    enum class Read {
        Inside,    // the result of an earlier step of the group
        Direct,    // the rows are already in order
        Gathered,  // copied, bucket by bucket
        Ahead,     // copied and multiplied for all rows before the recurrence
        Distinct,  // the same, with each distinct input only once
    };
    struct Term {
        int param, column, width;  // of a whole minibatch
        Read read;
        Block x;                 // of all rows, or of the distinct ones
        std::vector<int> nodes;  // Distinct: whose values
        std::vector<int> which;  // Distinct: number of each row's input
        Block dx;                // Inside: its gradient, of all rows
        bool adds;               // Inside: add to the gradient, which has other parts
        bool is_step_by_step() const { return read != Read::Ahead && read != Read::Distinct; }
        bool wants_grad(const Graph &graph, const Run &run) const;
    };
    void choose(Workspace &space, const Plan &plan, const Run &run, Term &term);
    bool find_distinct(Workspace &space, const Run &run, Term &term);
    void multiply_ahead(Workspace &space, const Run &run, Block out);
    // out (+)= bias + x W^T; or, not `forward`, x W
    void multiply(Workspace &space, const Term &term, bool forward, int total, int rows, Block x, Block out,
                  const float *bias, bool add) const;
    const float *bias_of(const Workspace &space, const Term &term) const;
    void add_weight_grad(Workspace &space, const Term &term, int rows, Block x, Block dout) const;
    void add_weight_grad(Workspace &space, const Param &w, int rows, Block x, Block dout) const;
    Block folded(Workspace &space, const Term &term, const Run &run, Block dout) const;
    template <class F>
    void vectors(int rows, Block a, int width, Block b, int other, F body) const;

    int batch_, width_;  // vectors in a minibatch, numbers in the result of one
    int bias_;
    bool begun_ = false, ahead_ = false;
    std::vector<Term> terms_;
};

}  // namespace dpmodule::autobatch
