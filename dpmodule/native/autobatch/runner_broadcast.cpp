// Operations on two operands with broadcasting of dimensions or the minibatch.
#include <algorithm>
#include <cstring>

#include "rows.hpp"
#include "runner.hpp"

namespace dpmodule::autobatch {
namespace {

// The minibatch comes first, as in memory.
int size_of(const Shape &shape, int axis) {
    if (axis == 0) return shape.batch;
    return axis <= static_cast<int>(shape.dims.size()) ? shape.dims[axis - 1] : 1;
}

// Broadcasting of an operand: pieces of `inner` numbers that are copied, or one repeated number.
struct Spread {
    int inner;
    bool repeats;
    std::vector<int> from;  // source of each piece

    bool is_whole() const { return !repeats && from.size() == 1; }
    void forward(const float *x, float *to) const {
        for (int at : from) {
            if (repeats) std::fill_n(to, inner, x[at]);
            else std::memcpy(to, x + at, sizeof(float) * inner);
            to += inner;
        }
    }
    // Sums in doubles are exact enough.
    void backward(const float *d, std::vector<double> &sums) const {
        for (int at : from) {
            if (repeats) sums[at] += kernels().sum(inner, d);
            else
                for (int j = 0; j < inner; j++) sums[at + j] += d[j];
            d += inner;
        }
    }
};

struct Spreads {
    Spread of[2];

    Spreads(const Shape &out, const Shape &a, const Shape &b) {
        const Shape *const shapes[] = {&a, &b};
        int axis = static_cast<int>(out.dims.size()), inner = 1, repeats[2] = {-1, -1};
        for (; axis >= 0; axis--) {
            const int n = size_of(out, axis);
            if (n == 1) continue;
            const int now[] = {size_of(a, axis) == 1, size_of(b, axis) == 1};
            if (inner > 1 && (now[0] != repeats[0] || now[1] != repeats[1])) break;
            std::copy_n(now, 2, repeats);
            inner *= n;
        }
        for (int k = 0; k < 2; k++) {
            int stride = shapes[k]->size;
            std::vector<int> from = {0};
            for (int i = 0; i <= axis; i++) {
                const int n = size_of(out, i), own = size_of(*shapes[k], i);
                stride /= own;
                std::vector<int> next;
                for (int at : from) {
                    for (int t = 0; t < n; t++) next.push_back(at + (own == 1 ? 0 : t * stride));
                }
                from = std::move(next);
            }
            of[k] = {inner, repeats[k] == 1, std::move(from)};
        }
    }
};

}  // namespace

void Runner::broadcast(const Work &work, const Step &step, const Signature &s) {
    const Signatures &all = graph_.signatures;
    const Spreads spreads(all.shape(s.shape), all.shape(s.params[0]), all.shape(s.params[1]));
    const Rows x[] = {values(work, step.in[0]), values(work, step.in[1])};
    const Block y = value_of(work, step);
    float *const whole[] = {scratch_.take(s.width), scratch_.take(s.width)};
    for (int i = 0; i < work.count; i++) {
        Block operands[2];
        for (int k = 0; k < 2; k++) {
            operands[k] = {spreads.of[k].is_whole() ? x[k][i] : whole[k], s.width};
            if (operands[k].at == whole[k]) spreads.of[k].forward(x[k][i], whole[k]);
        }
        kernels().binary(static_cast<Binary>(s.kind), 1, s.width, {y.at + i * y.stride, s.width}, operands[0],
                         operands[1]);
    }
}

void Runner::broadcast_back(const Work &work, const Step &step, const Signature &s) {
    const Signatures &all = graph_.signatures;
    const Spreads spreads(all.shape(s.shape), all.shape(s.params[0]), all.shape(s.params[1]));
    const Rows x[] = {values(work, step.in[0]), values(work, step.in[1])};
    const Block y = value_of(work, step), dy = grad_of(work, step);
    float *const whole[] = {scratch_.take(s.width), scratch_.take(s.width)};
    float *d = scratch_.take(s.width), *part = scratch_.take(s.width);
    std::vector<double> sums;
    for (int i = 0; i < work.count; i++) {
        Block operands[2];
        for (int k = 0; k < 2; k++) {
            operands[k] = {whole[k], s.width};
            spreads.of[k].forward(x[k][i], whole[k]);
        }
        for (int k = 0; k < 2; k++) {
            const int *node = work.run->nodes(step.in[k].index) + work.first + i;
            if (!any_grad(graph_, node, 1)) continue;
            kernels().binary_back(static_cast<Binary>(s.kind), k, 1, s.width, {d, s.width}, false,
                                  {dy.at + i * dy.stride, s.width}, operands[0], operands[1],
                                  {y.at + i * y.stride, s.width});
            sums.assign(s.widths[k], 0.0);
            spreads.of[k].backward(d, sums);
            std::copy(sums.begin(), sums.end(), part);
            scatter(graph_, node, 1, s.widths[k], {part, 0});
        }
    }
}

}  // namespace dpmodule::autobatch
