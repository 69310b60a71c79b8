// In-place optimizer steps, in one pass over the parameter, its states and its gradient: float32 arrays, or rows of a
// table. The functions are independent of Python, do not allocate, and are stateless.
//
// Each register is read, updated and written back immediately. Several threads or processes may therefore update the
// same array concurrently: a step is lost only if two of them update the same register within nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpmodule::vector {

// The formulas are MXNet 1.9.1's, those of the classes in dpmodule/optimizer. x = rescale_grad * gradient; "early" are
// g = clip(x + wd * w), "late" g = clip(x) with wd * w added to the step.
struct UpdateRule {
    enum class Kind : int {
        Sgd,           // late
        Momentum,      // late; state: momentum
        AdaGrad,       // late; state: sum of squares
        Adam,          // early; states: mean, mean square. lr includes the bias correction
        AmsGrad,       // Adam with a third state: the maximal mean square
        RmsProp,       // early; state: mean square
        Centered,      // RMSProp, centered; states: mean square, mean, last step
        AdaDelta,      // late; states: mean squares of gradients and of steps. Has no lr
        Ftrl,          // late, in its own form; states: z, n. Unchanged at lr 0
        PlainAdaGrad,  // g = clip(x) + wd * w; state: sum of squares
    };
    static constexpr int kinds = 10;
    static constexpr int max_states = 3;

    Kind kind = Kind::Sgd;
    double lr = 0.01;
    double wd = 0;
    double rescale_grad = 1;
    double clip_gradient = 0;  // 0 or less: gradients are not clipped
    double momentum = 0;       // Momentum
    double beta1 = 0.9;        // Adam, AmsGrad
    double beta2 = 0.999;
    double epsilon = 1e-8;    // inside the root in AdaGrad, RmsProp, Centered and AdaDelta, else outside
    double gamma1 = 0.9;      // RmsProp, Centered; AdaDelta's rho
    double gamma2 = 0.9;      // Centered
    double clip_weights = 0;  // RmsProp, Centered; 0 or less: not clipped
    double lamda1 = 0.01;     // Ftrl
    double beta = 1;          // Ftrl
};

// Number of states of a rule.
int state_count(UpdateRule::Kind kind);

// Updates `n` elements: a whole array, or one row, with pointers to its start.
void update(const UpdateRule &rule, float *weight, float *const *states, const float *grad, std::size_t n);

// Gradients of table rows of `width` elements; weight and states point to row 0. The i-th of the `count` contiguous
// gradients belongs to row rows[i]. Rows may repeat.
struct RowGradients {
    const std::int64_t *rows;
    std::size_t count, width;
    const float *values;
};

// Updates only these rows and their states (MXNet's lazy_update).
void update_rows(const UpdateRule &rule, float *weight, float *const *states, const RowGradients &grads);

// Updates all `table_rows` rows, with zero gradients for the others. `rows` must be strictly ascending, and `zeros`
// contains `width` zeros.
void update_table(const UpdateRule &rule, float *weight, float *const *states, const RowGradients &grads,
                  std::size_t table_rows, const float *zeros);

}  // namespace dpmodule::vector
