// Plan of a Hogwild run: plain records, which Python has already checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "functors/multislot.hpp"
#include "kernels/kernels.hpp"

namespace dpmodule::hogwild {

// A slot of the files, and its use by the network.
struct SlotInput {
    Slot slot;
    bool as_ids = false;      // as rows of tables
    bool as_numbers = false;  // as float32, even for a slot of integers
    std::uint64_t rows = 0;   // upper bound of ids
    std::string table;        // the table with these rows, for messages
};

// A parameter and the states of its update rule, in memory shared by all workers.
struct Parameter {
    std::string name;
    std::int64_t rows, width;
    float *weight = nullptr;
    float *states[vector::UpdateRule::max_states] = {};
    vector::UpdateRule rule;  // without lr, which changes
    double lr_mult;
    bool learns;
    bool all_rows;  // of a table: also update rows without a gradient
};

// Values are matrices with one row for each line of a batch, or a single row.
struct ValueShape {
    int width;
    bool single;
};

// Kinds of steps, which Python selects by name; Pool, Unary and Binary have a second name for their function.
// clang-format off: lists
#define STEP_KINDS(X)                                                                                              \
    X(Pool, "Pool") X(Lookup, "Lookup") X(Numbers, "Numbers") X(FullyConnected, "FullyConnected") X(Unary, "Unary") \
    X(Binary, "Binary") X(Concat, "Concat") X(Reduce, "Reduce") X(Dropout, "Dropout") X(Softmax, "Softmax")         \
    X(Pick, "Pick") X(Total, "Total") X(SoftmaxOutput, "SoftmaxOutput") X(Logistic, "Logistic")                     \
    X(Linear, "Linear") X(MakeLoss, "MakeLoss") X(CrossEntropy, "CrossEntropy") X(Argmax, "Argmax")
NAMED_ENUM(StepKind, STEP_KINDS)
// Pooling of the rows looked up for a line; None: one row for each id.
#define POOLS(X)                                                                                     \
    X(Sum, "sum") X(Mean, "mean") X(Sqrt, "sqrt") X(Max, "max") X(First, "first") X(Last, "last")    \
    X(None, "none")
NAMED_ENUM(Pool, POOLS)
// clang-format on

// One operator: its output, inputs and attributes.
struct Step {
    StepKind kind;
    int function;  // the Pool, Unary or Binary
    int out;
    std::vector<int> in;
    std::vector<int> ints;
    std::vector<float> floats;
};

// A value, or the numbers of a slot, whose mean over each batch is fetched.
struct Fetch {
    int value = -1, slot = -1;
};

struct Plan {
    int batch_size;
    std::vector<SlotInput> slots;
    std::vector<Parameter> parameters;
    std::vector<ValueShape> values;
    std::vector<Step> steps;
    std::vector<int> outputs;  // values of the heads, which must be finite
    std::vector<Fetch> fetches;
    std::vector<int> watched;  // values to record for metrics
};

// A part of a file: the lines that begin in [begin, end), without the first `skip` of them; end < 0: the end of the
// file.
struct Part {
    std::string path;
    std::int64_t begin, end;
    std::uint64_t skip;
    std::size_t number;  // index of its progress
};

// One slot of a batch.
// The values of line i are those from offsets[i] to offsets[i + 1].
struct SlotBatch {
    std::vector<int> ids, offsets;
    std::vector<float> numbers;

    int begin(int line) const { return offsets[static_cast<std::size_t>(line)]; }
    int end(int line) const { return offsets[static_cast<std::size_t>(line) + 1]; }
};

// Number of lines read from a part.
struct PartProgress {
    const Part *part;
    std::uint64_t lines;
};

struct Batch {
    int lines = 0;
    std::vector<SlotBatch> slots;
    const Part *part = nullptr;  // the part and line, from 0, where the batch begins
    std::uint64_t first_line = 0;
    std::vector<PartProgress> ends;  // the end position in each of its parts
};

}  // namespace dpmodule::hogwild
