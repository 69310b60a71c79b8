#include "update.hpp"

#include "kernels.hpp"

namespace dpmodule::vector {
namespace {

void one_row(const UpdateRule &rule, float *weight, float *const *states, std::size_t begin, const float *grad,
             std::size_t width) {
    float *here[UpdateRule::max_states];
    for (int i = 0, count = state_count(rule.kind); i < count; i++) here[i] = states[i] + begin;
    update(rule, weight + begin, here, grad, width);
}

}  // namespace

int state_count(UpdateRule::Kind kind) {
    constexpr int counts[UpdateRule::kinds] = {0, 1, 1, 2, 3, 1, 3, 2, 2, 1};
    return counts[static_cast<int>(kind)];
}

void update(const UpdateRule &rule, float *weight, float *const *states, const float *grad, std::size_t n) {
    kernels().update(rule, weight, states, grad, n);
}

void update_rows(const UpdateRule &rule, float *weight, float *const *states, const RowGradients &grads) {
    for (std::size_t i = 0; i < grads.count; i++) {
        const std::size_t begin = static_cast<std::size_t>(grads.rows[i]) * grads.width;
        one_row(rule, weight, states, begin, grads.values + i * grads.width, grads.width);
    }
}

void update_table(const UpdateRule &rule, float *weight, float *const *states, const RowGradients &grads,
                  std::size_t table_rows, const float *zeros) {
    for (std::size_t row = 0, i = 0; row < table_rows; row++) {
        const bool given = i < grads.count && static_cast<std::size_t>(grads.rows[i]) == row;
        const float *grad = given ? grads.values + i++ * grads.width : zeros;
        one_row(rule, weight, states, row * grads.width, grad, grads.width);
    }
}

}  // namespace dpmodule::vector
