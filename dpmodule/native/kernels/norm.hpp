// Batch normalisation with an optional sum, and ReLU or SiLU, forward and backward. Tensors are rows of `channels`
// elements, one row for each position, or planes of adjacent positions, one for each channel of each image.
//
// Rows are split into chunks, whose size depends only on the number of channels; each tensor is read at most twice and
// written once. Sums are float32 within a chunk and float64 over chunks, in order, so that results do not depend on the
// number of threads. The planes of a channel are read by one thread, while they are in its cache.
//
// Source: Ioffe and Szegedy, "Batch normalization", 2015; Chan, Golub and LeVeque, "Updating formulae and a pairwise
// algorithm for computing sample variances", 1979.
#pragma once

#include <cstddef>

namespace dpmodule {

struct NormRows {
    std::ptrdiff_t rows, channels;  // rows: all positions
    std::ptrdiff_t pixels;          // positions of a plane, at least 16; 1 for rows of at least 4 channels
    int threads;                    // maximal number of threads
};

// What follows the normalisation and the sum: nothing, max(x, 0) up to a limit, or x sigmoid(x) without a sum.
enum class NormEnd : std::ptrdiff_t { None, Relu, Silu };

struct NormForward {
    NormRows size;
    const float *x;
    const float *other;  // summand, or null
    const float *gamma;  // null: 1
    const float *beta;
    const float *moving_mean;  // before
    const float *moving_var;
    float *out;
    float *statistics;  // (4, channels), written: mean, 1 / deviation, factor and summand for x - mean
    float *new_mean;
    float *new_var;
    NormEnd end;
    float limit;  // the largest number after the ReLU, or infinity
    double eps, momentum;
};

struct NormBackward {
    NormRows size;
    const float *grad;  // of the result
    const float *x;
    const float *out;  // the result; null without a summand
    const float *statistics;
    float *for_other;  // written with the gradient before `end`, which is then computed once; or null
    float *for_x;      // written; or null
    float *for_gamma;
    float *for_beta;
    NormEnd end;
    float limit;     // not infinity: the gradient at both ends is 1, and 0 at NaN; requires no summand
    bool nan_stays;  // the ReLU's gradient at NaN is NaN; else that of the result
};

// Both return false if there is no memory for the sums of chunks.
bool norm_forward(const NormForward &run);
bool norm_backward(const NormBackward &run);

}  // namespace dpmodule
