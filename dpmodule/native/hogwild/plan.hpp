// What the Hogwild engine is told by Python: records only, all of them checked there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "functors/multislot.hpp"
#include "kernels/kernels.hpp"

namespace dpmodule::hogwild {

// A slot of the files, and what the network takes of it.
struct SlotInput {
    Slot slot;
    bool as_ids = false;      // rows of tables
    bool as_numbers = false;  // float32, also of a slot of integers
    std::uint64_t rows = 0;   // ids lie below it
    std::string table;        // the table that says so, for messages
};

// A parameter and the states of its update rule, in memory that all workers share.
struct Parameter {
    std::string name;
    std::int64_t rows, width;
    float *weight = nullptr;
    float *states[vector::UpdateRule::most_states] = {};
    vector::UpdateRule rule;  // but for lr, which changes
    double lr_mult;
    bool learns;
    bool all_rows;  // of a table: those without a gradient are updated, too, as if it were 0
};

// Values are matrices: a row for each line of a batch, or a single row.
struct ValueShape {
    int width;
    bool single;
};

// What steps do. Python gives the names; a Pool, Unary or Binary has a second one, of its function.
// clang-format off: lists
#define STEP_KINDS(X)                                                                                              \
    X(Pool, "Pool") X(Lookup, "Lookup") X(Numbers, "Numbers") X(FullyConnected, "FullyConnected") X(Unary, "Unary") \
    X(Binary, "Binary") X(Concat, "Concat") X(Reduce, "Reduce") X(Dropout, "Dropout") X(Softmax, "Softmax")         \
    X(Pick, "Pick") X(Total, "Total") X(SoftmaxOutput, "SoftmaxOutput") X(Logistic, "Logistic")                     \
    X(Linear, "Linear") X(MakeLoss, "MakeLoss") X(CrossEntropy, "CrossEntropy") X(Argmax, "Argmax")
NAMED_ENUM(StepKind, STEP_KINDS)
// Of the rows that are looked up for a line; None: a row for each id.
#define POOLS(X)                                                                                     \
    X(Sum, "sum") X(Mean, "mean") X(Sqrt, "sqrt") X(Max, "max") X(First, "first") X(Last, "last")    \
    X(None, "none")
NAMED_ENUM(Pool, POOLS)
// clang-format on

// One operator: which value it makes of which, and its attributes.
struct Step {
    StepKind kind;
    int function;  // which Pool, Unary or Binary
    int out;
    std::vector<int> in;
    std::vector<int> ints;
    std::vector<float> floats;
};

// Something whose mean over each batch is asked for: a value, or the numbers of a slot.
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
    std::vector<int> watched;  // values that are recorded line by line, for metrics
};

// A piece of a file: the lines that begin in [begin, end), but for the first `skip` of them; end < 0: to its end.
struct Part {
    std::string path;
    std::int64_t begin, end;
    std::uint64_t skip;
    std::size_t number;  // of its mark
};

// The lines that one step of training is about: a slot's.
// Values of line i are those from offsets[i] on to offsets[i + 1].
struct SlotBatch {
    std::vector<int> ids, offsets;
    std::vector<float> numbers;

    int begin(int line) const { return offsets[static_cast<std::size_t>(line)]; }
    int end(int line) const { return offsets[static_cast<std::size_t>(line) + 1]; }
};

// How far a part has been read: so many of its lines.
struct Place {
    const Part *part;
    std::uint64_t lines;
};

struct Batch {
    int lines = 0;
    std::vector<SlotBatch> slots;
    const Part *part = nullptr;  // in which it begins, and the line there, from 0
    std::uint64_t first_line = 0;
    std::vector<Place> ends;  // of each part that it has lines of
};

}  // namespace dpmodule::hogwild
