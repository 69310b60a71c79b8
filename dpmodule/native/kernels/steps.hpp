// A list of small operators on float32 arrays in one call, for networks in which the overhead of calls dominates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image_layers.hpp"

namespace dpmodule {

enum class StepKind : std::int64_t {
    Add,
    Subtract,
    Multiply,
    Divide,
    First,    // `function` of `a`
    Sum,      // over the second of three axes, times `factor`
    Lookup,   // rows of the table `b` by the indices `a`, which are clipped
    Product,  // of each pair of matrices
    Dense,    // `function` of a @ b.T + c, as in `Product`
};

enum class IndexType : std::int64_t { Int64, Int32, Float32, Float64 };

struct SmallStep {
    static constexpr int axes = 4;

    StepKind kind;
    LayerFunction function;
    std::int64_t sizes[axes];  // elementwise: of the result; sum: outer, summed, inner; lookup: indices, width, rows of
                               // the table, `IndexType`; product: pairs, rows, columns, depth; dense: rows, units,
                               // features
    std::int64_t gaps[3][axes];  // of `a`, `b` and an elementwise result, whose last one is 1: elements from one to the
                                 // next along each axis; of the pair, the row and the column for products
    float low, high, factor;     // parameters of `function`; of a sum
    const float *a, *b, *c;      // `b`: if null, `factor`
    float *result;
};

// Runs steps in order. Only dense layers use several of torch's threads. Returns false if memory runs out.
bool run_steps(const std::vector<SmallStep> &steps, int threads);

}  // namespace dpmodule
