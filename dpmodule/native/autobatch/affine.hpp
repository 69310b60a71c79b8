// b + W1 x1 + W2 x2 + ... for all occurrences of one step: how its inputs are read, and its gradients. A row of a run
// is a minibatch of vectors, each of which is a row of the product.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.hpp"

namespace dpmodule::autobatch {

// Columns of weights packed for the product kernel: once per direction, until the parameters change.
class PackedWeights {
  public:
    explicit PackedWeights(const Graph &graph) : graph_(graph) {}
    // For Z = X W^T (`forward`) or Z = X W, with W the columns [first, first + count) of the parameter.
    const float *get(int param, bool forward, int first, int count);
    const float *get(int param, bool forward) { return get(param, forward, 0, graph_.params[param].cols); }
    bool has(int param, bool forward, int first, int count) {
        return entry(param, forward, first, count).epoch == epoch_;
    }
    void invalidate() { epoch_++; }

  private:
    struct Entry {
        int first, count;
        float *data = nullptr;
        std::uint64_t epoch = 0;
    };
    Entry &entry(int param, bool forward, int first, int count);
    const Graph &graph_;
    Arena memory_{1 << 19};                    // a huge page, since products read all of it again and again
    std::vector<std::vector<Entry>> entries_;  // per parameter and direction
    std::uint64_t epoch_ = 1;
};

inline PackedWeights::Entry &PackedWeights::entry(int param, bool forward, int first, int count) {
    const std::size_t index = 2 * static_cast<std::size_t>(param) + forward;
    if (index >= entries_.size()) entries_.resize(index + 2);
    for (Entry &each : entries_[index]) {
        if (each.first == first && each.count == count) return each;
    }
    entries_[index].push_back({first, count});
    return entries_[index].back();
}

inline const float *PackedWeights::get(int param, bool forward, int first, int count) {
    Entry &found = entry(param, forward, first, count);
    if (found.epoch != epoch_) {
        const Param &p = graph_.params[param];
        const int k = forward ? count : p.rows, n = forward ? p.rows : count;
        if (!found.data) found.data = memory_.take(packed_size(kernels(), k, n));
        pack(kernels(), k, n, p.value + first, p.cols, forward, found.data);
        found.epoch = epoch_;
    }
    return found.data;
}

// Rows at even distances, or each with its address.
struct Vectors {
    Vectors(Block block) : at(block.at), stride(block.stride) {}
    explicit Vectors(float *const *rows) : rows(rows) {}
    // The vectors of minibatches of `batch` from number `i` on.
    Vectors from(int i, int width, int batch) const {
        if (rows) return Vectors(rows + static_cast<std::ptrdiff_t>(i) * batch);
        return Block{at + i * stride, batch == 1 ? stride : width};
    }
    bool lies(int width, int batch) const { return rows || batch == 1 || stride == width * batch; }
    float *at = nullptr;
    std::ptrdiff_t stride = 0;
    float *const *rows = nullptr;
};

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
    void backward(Workspace &space, const Run &run, const Group &group, int first, int count, Block dout);
    // Later: the gradients of weights and bias, and of the other inputs, which need all rows together.
    void finish(Workspace &space, const Run &run, int first, int count, Block dout);
    bool needs_all_rows(const Run &run) const;

  private:
    enum class Read {
        Inside,    // the result of an earlier step of the group
        Rows,      // in place, bucket by bucket
        Ahead,     // in place, multiplied for all rows before the recurrence
        Distinct,  // the same, with each distinct input only once
    };
    struct Term {
        int param, first, cols;  // columns of the weight
        int index;               // of the column of the run, or of the step
        Read read;
        bool adds;               // Inside: add to the gradient, which has other parts
        Block x;                 // of all rows, if they are evenly spaced
        std::vector<int> nodes;  // Distinct: whose values
        std::vector<int> which;  // Distinct: number of each row's input
        bool is_step_by_step() const { return read == Read::Inside || read == Read::Rows; }
    };
    void choose(Workspace &space, const Plan &plan, const Run &run, Term &term) const;
    void find_distinct(Workspace &space, const Run &run, Term &term) const;
    void multiply_ahead(Workspace &space, const Run &run, Block out);
    const int *nodes_of(const Run &run, const Term &term, int first) const {
        return term.read == Read::Distinct ? term.nodes.data() : run.nodes(term.index) + first;
    }
    Vectors inputs(Workspace &space, const Run &run, const Term &term, int first, int count) const;
    // Addresses of the vectors of nodes, or of their gradients: zeros where there are none, or if sums are compensated.
    Vectors listed(Workspace &space, bool is_grad, const int *nodes, int count, int width) const;
    // out (+)= bias + x W^T; or, not `forward`, x W
    void multiply(Workspace &space, const Term &term, bool forward, int total, int rows, Vectors x, Vectors out,
                  const float *bias, bool add) const;
    const float *bias_of(const Workspace &space, const Term &term) const;
    void add_input_grad(Workspace &space, const Term &term, const int *nodes, int total, int count, Block dout) const;
    void add_weight_grad(Workspace &space, const Term &term, int rows, Vectors x, Block dout) const;
    void add_weight_grad(Workspace &space, const Param &w, const Term &term, int rows, Vectors x, Vectors dout) const;
    Block folded(Workspace &space, const Term &term, const Run &run, Block dout) const;
    template <class F>
    void vectors(int rows, Vectors a, int width, Vectors b, int other, F body) const;

    int batch_, width_;  // vectors in a minibatch, numbers in the result of one
    int bias_;
    bool begun_ = false, ahead_ = false;
    std::vector<Term> terms_;
};

}  // namespace dpmodule::autobatch
