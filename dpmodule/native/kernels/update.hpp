// Steps of optimizers in place, in one pass over the parameter, its states and its gradient: float32 numbers, rows of a
// table or whole arrays. Nothing here knows Python, allocates, or remembers anything between calls.
//
// Each number is read, changed and written back at once. Several threads or processes may therefore update the same
// array at the same time: a step is lost only where two of them meet at the same register in the same nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule::vector {

// The formulas are MXNet 1.9.1's, those of the classes in dpmodule/optimizer. x = rescale_grad * gradient; "early" are
// g = clip(x + wd * w), "late" g = clip(x) with wd * w added to the step.
struct UpdateRule {
    enum class Kind : int {
        Sgd,       // late
        Momentum,  // late; state: momentum
        AdaGrad,   // late; state: sum of squares
        Adam,      // early; states: mean, mean square. The caller puts the correction of the bias into lr
        AmsGrad,   // Adam with a third state: the largest mean square so far
        RmsProp,   // early; state: mean square
        Centered,  // RMSProp, centered; states: mean square, mean, last step
        AdaDelta,  // late; states: mean squares of gradients and of steps. It has no lr
        Ftrl,      // late, in its own way; states: z, n. At lr 0 nothing changes
    };
    static constexpr int kinds = 9;
    static constexpr int most_states = 3;

    Kind kind = Kind::Sgd;
    double lr = 0.01;
    double wd = 0;
    double rescale_grad = 1;
    double clip_gradient = 0;  // 0 or less: gradients are not clipped
    double momentum = 0;       // Momentum
    double beta1 = 0.9;        // Adam, AmsGrad
    double beta2 = 0.999;
    double epsilon = 1e-8;  // under the root in AdaGrad, RmsProp, Centered and AdaDelta, beside it in Adam and AmsGrad
    double gamma1 = 0.9;    // RmsProp, Centered; AdaDelta's rho
    double gamma2 = 0.9;    // Centered
    double clip_weights = 0;  // RmsProp, Centered; 0 or less: not clipped
    double lamda1 = 0.01;     // Ftrl
    double beta = 1;          // Ftrl
};

// How many states a rule keeps for each number of the parameter.
int state_count(UpdateRule::Kind kind);

// Updates `n` numbers: a whole array, or one row, with pointers to where the row begins.
void update(const UpdateRule &rule, float *weight, float *const *states, const float *grad, std::size_t n);

// Rows of a table of `width` numbers each; weight and states point to row 0. The i-th of the `count` gradients, which lie
// one after the other, is that of row rows[i]. Rows may repeat.
struct RowGradients {
    const std::int64_t *rows;
    std::size_t count, width;
    const float *values;
};

// Updates these rows; others, and their states, are not looked at (MXNet's lazy_update).
void update_rows(const UpdateRule &rule, float *weight, float *const *states, const RowGradients &grads);

// Updates all `table_rows` rows; those without a gradient as if it were 0. Here rows ascend without repetition, and
// `zeros` are `width` zeros.
void update_table(const UpdateRule &rule, float *weight, float *const *states, const RowGradients &grads,
                  std::size_t table_rows, const float *zeros);

}  // namespace dpmodule::vector
