// Normalisation over the batch with what follows it, a sum with another tensor and a rectifier, forward and backward:
// each tensor is read twice and written once at most. Tensors are rows of `channels` numbers, one row for each position.
//
// The rows are cut into chunks, whose size depends on the number of channels alone; sums are float32 within a chunk and
// float64 over chunks, in their order: results are the same for any number of threads.
//
// Source: Ioffe and Szegedy, "Batch normalization", 2015; Chan, Golub and LeVeque, "Updating formulae and a pairwise
// algorithm for computing sample variances", 1979.
#pragma once

#include <cstddef>

namespace dpmodule {

struct NormRows {
    std::ptrdiff_t rows, channels;  // channels: a multiple of 4
    int threads;                    // that may work
};

struct NormForward {
    NormRows size;
    const float *x;
    const float *other;  // is added to the result; or null
    const float *gamma;  // null: 1
    const float *beta;
    const float *moving_mean;  // before
    const float *moving_var;
    float *out;
    float *statistics;  // (4, channels), written: mean, 1 / deviation, and factor and summand of distances to the mean
    float *new_mean;
    float *new_var;
    bool relu;  // whether what is below 0 becomes 0
    double eps, momentum;
};

struct NormBackward {
    NormRows size;
    const float *grad;  // of the result
    const float *x;
    const float *out;  // the result; null where nothing was added
    const float *statistics;
    float *for_other;  // written with the gradient before the rectifier; null: not wanted
    float *for_x;      // written; null: not wanted
    float *for_gamma;
    float *for_beta;
    bool relu;
    bool nan_stays;  // whether the rectifier's gradient at NaN is NaN; else it is that of the result
};

// Both return false where there is no memory for the sums of chunks.
bool norm_forward(const NormForward &run);
bool norm_backward(const NormBackward &run);

}  // namespace dpmodule
