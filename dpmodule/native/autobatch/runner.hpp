// Computes the buckets of a segment, and their gradients in reverse.
#pragma once

#include <memory>

#include "affine.hpp"

namespace dpmodule::autobatch {

// A batch of an operation without a kernel, run by a Caller.
struct CallBatch {
    std::int64_t key;  // the same for both directions of one batch
    int kind;          // which operation: Signature::kind
    int rows;
    struct Argument {
        float *at;  // consecutive rows, or a single shared row
        bool shared;
        float *grad;  // the gradient, with the same layout; nullptr if not needed
    };
    std::vector<Argument> arguments;
    std::vector<int> aux;     // forward only
    std::vector<int> counts;  // for operations on many operands: the number of each row
    float *out;               // value or, backward, gradient of the result
};

class Caller {
  public:
    virtual ~Caller() = default;
    // Both may throw; exceptions pass through the engine.
    virtual void forward(const CallBatch &batch) = 0;
    virtual void backward(const CallBatch &batch) = 0;
    // Random numbers of a distribution with one or two parameters.
    virtual void draw(int kind, const double *numbers, float *to, std::size_t count) = 0;
};

// A plan, and the data of its computation for the backward pass.
struct Segment {
    Segment(Plan made, Arena::Mark start) : plan(std::move(made)), start(start), affine(plan.runs.size()) {}
    Plan plan;
    Arena::Mark start;  // of its memory
    // per run and step, created at the first bucket, for products only
    std::vector<std::vector<std::unique_ptr<Affine>>> affine;
};

// True if a number equals an extreme.
inline bool is_same(float a, float b) { return a == b || (a != a && b != b); }

// Methods that compute an operation: the one named here, and `..._back` for its gradients.
// clang-format off: lists
#define RUNNER_STEPS(X)                                                                                            \
    X(Unary, unary) X(Binary, binary) X(UnaryEach, unary_each) X(View, view) X(PickNegLogSoftmax, loss)            \
    X(Softmax, softmax) X(SumElems, reduce) X(Concat, concat) X(Multiply, multiply) X(Inverse, inverse)            \
    X(AddColumn, add_column) X(ConcatColumns, concat_columns) X(Columns, columns) X(Select, select)                \
    X(PickEach, pick_each) X(Arrange, arrange) X(Hinge, hinge) X(Drawn, drawn) X(Reduce, reduce_along)             \
    X(Convolve, convolve) X(Pool, pool) X(Greatest, greatest) X(Sums, sums) X(Sparsemax, sparsemax)                \
    X(Constrained, constrained) X(Argmax, argmax) X(Broadcast, broadcast) X(Sum, sum) X(Call, call)
#define RUNNER_SHARED_STEPS(X) X(LogSoftmax, softmax) X(Dot, reduce) X(SquaredNorm, reduce)
// clang-format on

class Runner {
  public:
    Runner(Graph &graph, Groups &groups, Arena &memory, Caller *caller)
        : graph_(graph), groups_(groups), packed_(graph), space_{graph, packed_, memory, scratch_}, caller_(caller) {}

    void forward(Segment &segment);
    // Gradients of the `wanted` runs; gradients of values must be initialized with zero or the seed.
    void backward(Segment &segment);
    void parameters_changed() { packed_.invalidate(); }
    // Release scratch space of an unusually large batch.
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
    int rows_at_once(const Group &group, int rows) const;
    void place_gradients(Segment &segment);
    template <class F>
    void in_parts(const Work &work, F body);
    void forward(const Work &work);
    void backward(const Work &work);
    void forward_step(const Work &work, const Step &step);
    void backward_step(const Work &work, const Step &step);
    Affine &affine(const Work &work, const Step &step);

    Block value_of(const Work &work, const Step &step) const;
    Block grad_of(const Work &work, const Step &step) const;
    Block read(const Work &work, Operand operand, int width);
    // The rows of an operand, or of its gradient, in place; nullptr for an unneeded gradient.
    struct Rows {
        Block block;
        const int *nodes;
        const std::vector<float *> *pointers;
        float *operator[](int i) const { return nodes ? (*pointers)[nodes[i]] : block.at + i * block.stride; }
        Block from(int i) const { return {(*this)[i], block.stride}; }
        bool add() const { return nodes; }  // gradients accumulated from several readers
    };
    Rows values(const Work &work, Operand operand) const;
    Rows gradients(const Work &work, Operand operand) const;
    Rows read_rows(const Work &work, Operand operand, int width);  // a block if the rows are evenly spaced
    // The target of an operand's gradient, and whether to accumulate.
    struct Target {
        Block at;
        bool add;
        int column;  // >= 0: scatter afterwards
        Rows rows;
    };
    bool target(const Work &work, Operand operand, int width, Target &found);
    bool target_rows(const Work &work, Operand operand, int width, Target &found);  // without copies, if possible
    void done(const Work &work, const Target &target, int width);

#define RUNNER_STEP(op, way)                                          \
    void way(const Work &work, const Step &step, const Signature &s); \
    void way##_back(const Work &work, const Step &step, const Signature &s);
    RUNNER_STEPS(RUNNER_STEP)
    RUNNER_STEP(Lstm, cell)
#undef RUNNER_STEP
    const Node &root(const Work &work, int row) const;
    Block mask(const Work &work, const Signature &s);
    float *joined_of(const Signature &s);
    const float *join(const Work &work, const Signature &s, int i, float *to) const;
    void multiply_columns(const Work &work, const Step &step, const Signature &s);
    void multiply_columns_back(const Work &work, const Step &step, const Signature &s);
    struct Part {
        const int *nodes;
        int count, width;
        CallBatch::Argument argument;
    };
    Part part(const int *nodes, int count, int width, bool may_share, bool wants_grad);
    void run_call(const Work &work, const Signature &s, bool forward);

    Graph &graph_;
    Groups &groups_;
    Arena scratch_, windows_;
    PackedWeights packed_;
    Workspace space_;
    Caller *caller_;
};

}  // namespace dpmodule::autobatch
