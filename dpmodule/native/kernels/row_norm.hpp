// Normalisation of each row by its own mean and variance, forward and backward: the rows of LayerNorm, the groups of
// channels of GroupNorm, and the channels of InstanceNorm.
//
// Threads compute chunks of rows, whose size depends only on that of a row. Gradients of gamma and beta are sums in
// float32 of a chunk or image, then in float64, in order, so that they do not depend on the number of threads.
//
// Source: Ba et al., "Layer normalization", 2016; Wu and He, "Group normalization", 2018.
#pragma once

#include <cstddef>

namespace dpmodule {

// A row has `parts` stretches of `length` adjacent numbers, of which each has one gamma and beta.
struct RowSizes {
    std::ptrdiff_t rows, parts, length;
    std::ptrdiff_t groups;  // row r has the gammas and betas from r % groups * parts on
    int threads;            // maximal number of threads
};

// Stretches have at least 4 numbers; those of one number are adjacent, and at least 4.
struct RowNormForward {
    RowSizes size;
    double eps;
    const float *x, *gamma, *beta;
    float *out;
    float *statistics;  // (2, rows), written: mean, 1 / deviation
};

struct RowNormBackward {
    RowSizes size;
    const float *grad, *x, *gamma, *statistics;
    float *for_x;  // written; or null
    float *for_gamma, *for_beta;
};

void row_norm_forward(const RowNormForward &run);
bool row_norm_backward(const RowNormBackward &run);  // false without memory for the sums

}  // namespace dpmodule
