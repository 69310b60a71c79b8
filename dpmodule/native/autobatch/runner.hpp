// Computes the buckets of a segment, and their gradients in reverse.
#pragma once

#include "caller.hpp"
#include "segment.hpp"

namespace dpmodule::autobatch {

// Is a number what an extreme was found to be?
inline bool is_same(float a, float b) { return a == b || (a != a && b != b); }

class Runner {
  public:
    Runner(Graph &graph, Groups &groups, Arena &memory, Caller *caller)
        : graph_(graph), groups_(groups), packed_(graph), space_{graph, packed_, memory, scratch_}, caller_(caller) {}

    void forward(Segment &segment);
    // Gradients of the runs that are `wanted`; those of values must have been set to zero or to the seed.
    void backward(Segment &segment);
    void parameters_changed() { packed_.invalidate(); }
    // Give back scratch space that an unusually large batch has needed.
    void shrink();

  private:
    // A batch while its steps are computed.
    struct Work {
        Segment *segment;
        Run *run;
        const Group *group;
        int index;                      // of the run
        int first, count;               // rows
        float *scratch, *grad_scratch;  // of the steps: see Step::at
    };
    bool splits(const Group &group) const;
    int rows_at_once(const Group &group, int rows) const;
    void forward(const Work &work);
    void backward(const Work &work);
    void forward_step(const Work &work, const Step &step);
    void backward_step(const Work &work, const Step &step);
    Affine &affine(const Work &work, const Step &step);

    Block value_of(const Work &work, const Step &step) const;
    Block grad_of(const Work &work, const Step &step) const;
    Block read(const Work &work, Operand operand, int width);
    // The gradient of an operand: where to put it, and whether to add.
    struct Target {
        Block at;
        bool add;
        int column;  // >= 0: scatter afterwards
    };
    bool target(const Work &work, Operand operand, int width, Target &found);
    void done(const Work &work, const Target &target, int width);
    int width_of(const Work &work, Operand operand) const;
    // The rows of an operand, or of its gradient, where they lie; nullptr for a gradient that nobody wants.
    struct Rows {
        Block block;
        const int *nodes;
        const std::vector<float *> *pointers;
        float *operator[](int i) const { return nodes ? (*pointers)[nodes[i]] : block.at + i * block.stride; }
        bool add() const { return nodes; }  // gradients: others add to them, too
    };
    Rows values(const Work &work, Operand operand) const;
    Rows gradients(const Work &work, Operand operand) const;

    void unary_each(const Work &work, const Step &step, const Signature &s);
    void unary_each_back(const Work &work, const Step &step, const Signature &s);
    void view(const Work &work, const Signature &s);
    void view_back(const Work &work, const Signature &s);
    const Node &root(const Work &work, int row) const;
    void cell(const Work &work, const Step &step);
    void cell_back(const Work &work, const Step &step);
    void loss(const Work &work, const Step &step, const Signature &s);
    void loss_back(const Work &work, const Step &step, const Signature &s);
    void hinge(const Work &work, const Step &step, const Signature &s);
    void hinge_back(const Work &work, const Step &step, const Signature &s);
    Block mask(const Work &work, const Signature &s);
    void drawn(const Work &work, const Step &step, const Signature &s);
    void drawn_back(const Work &work, const Step &step, const Signature &s);
    float *joined_of(const Signature &s);
    const float *join(const Work &work, const Signature &s, int i, float *to) const;
    void reduce_along(const Work &work, const Step &step, const Signature &s);
    void reduce_along_back(const Work &work, const Step &step, const Signature &s);
    void softmax(const Work &work, const Step &step, const Signature &s);
    void softmax_back(const Work &work, const Step &step, const Signature &s);
    void sparsemax(const Work &work, const Step &step, const Signature &s);
    void sparsemax_back(const Work &work, const Step &step, const Signature &s);
    void constrained(const Work &work, const Step &step, const Signature &s);
    void constrained_back(const Work &work, const Step &step, const Signature &s);
    void argmax(const Work &work, const Step &step, const Signature &s);
    void argmax_back(const Work &work, const Step &step, const Signature &s);
    void reduce(const Work &work, const Step &step, const Signature &s);
    void reduce_back(const Work &work, const Step &step, const Signature &s);
    void concat(const Work &work, const Signature &s);
    void concat_back(const Work &work, const Signature &s);
    void multiply(const Work &work, const Step &step, const Signature &s);
    void multiply_back(const Work &work, const Step &step, const Signature &s);
    void multiply_columns(const Work &work, const Step &step, const Signature &s);
    void multiply_columns_back(const Work &work, const Step &step, const Signature &s);
    void inverse(const Work &work, const Step &step, const Signature &s);
    void inverse_back(const Work &work, const Step &step, const Signature &s);
    void add_column(const Work &work, const Step &step, const Signature &s);
    void add_column_back(const Work &work, const Step &step, const Signature &s);
    void concat_columns(const Work &work, const Signature &s);
    void concat_columns_back(const Work &work, const Signature &s);
    void columns(const Work &work, const Step &step, const Signature &s);
    void columns_back(const Work &work, const Step &step, const Signature &s);
    void select(const Work &work, const Step &step, const Signature &s);
    void select_back(const Work &work, const Step &step, const Signature &s);
    void pick_each(const Work &work, const Step &step, const Signature &s);
    void pick_each_back(const Work &work, const Step &step, const Signature &s);
    void arrange(const Work &work, const Step &step, const Signature &s);
    void arrange_back(const Work &work, const Step &step, const Signature &s);
    void convolve(const Work &work, const Step &step, const Signature &s);
    void convolve_back(const Work &work, const Step &step, const Signature &s);
    void pool(const Work &work, const Step &step, const Signature &s);
    void pool_back(const Work &work, const Step &step, const Signature &s);
    void greatest(const Work &work, const Step &step, const Signature &s);
    void greatest_back(const Work &work, const Step &step, const Signature &s);
    void sums(const Work &work, const Step &step, const Signature &s);
    void sums_back(const Work &work, const Step &step, const Signature &s);
    void broadcast(const Work &work, const Step &step, const Signature &s);
    void broadcast_back(const Work &work, const Step &step, const Signature &s);
    void sum(const Work &work);
    void sum_back(const Work &work);
    struct Part {
        const int *nodes;
        int count, width;
        CallBatch::Argument argument;
    };
    Part part(const int *nodes, int count, int width, bool may_share, bool wants_grad);
    void call(const Work &work, const Signature &s, bool forward);

    Graph &graph_;
    Groups &groups_;
    Arena scratch_;
    PackedWeights packed_;
    Workspace space_;
    Caller *caller_;
};

}  // namespace dpmodule::autobatch
