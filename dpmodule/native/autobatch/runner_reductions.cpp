// Sums, means, extremes and logarithms of sums over some dimensions: for every part of the operand, a reduction of
// columns.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "rows.hpp"
#include "runner.hpp"

namespace dpmodule::autobatch {
namespace {

// The operand is `parts` times a matrix (rows x width) of which each column becomes a number; operands are its rows.
struct Sizes {
    explicit Sizes(const Signature &s)
        : rows(s.params[0]), width(s.params[1]), size(rows * width), parts(s.nargs > 1 ? 1
                                                                           : size      ? s.widths[0] / size
                                                                                       : 0) {}
    int rows, width, size, parts;
};

// Subtracts the mean; returns the root of the mean of squares.
float deviation(int count, float *x, float divisor) {
    const float mean = kernels().sum(count, x) / divisor;
    for (int k = 0; k < count; k++) x[k] -= mean;
    return std::sqrt(kernels().dot(count, x, x) / divisor);
}

float log_sum_exp(int count, const float *x, float *scratch) {
    const float top = kernels().largest(count, x), shift = std::isfinite(top) ? top : 0.0f;
    return std::log(kernels().exp_sum(count, scratch, x, shift)) + shift;
}

const float *column(const Sizes &z, int j, const float *x, float *to, bool copies = false) {
    if (z.width == 1 && !copies) return x;
    for (int i = 0; i < z.rows; i++) to[i] = x[i * z.width + j];
    return to;
}

}  // namespace

// Memory for the stacked operands of one node; nullptr for a single operand.
float *Runner::joined_of(const Signature &s) {
    return s.nargs > 1 ? scratch_.take(static_cast<std::size_t>(s.nargs) * s.width) : nullptr;
}

// Operands without a minibatch are repeated for each element.
const float *Runner::join(const Work &work, const Signature &s, int i, float *to) const {
    float *at = to;
    for (int k = 0; k < s.nargs; k++) {
        for (int done = 0; done < s.width; done += s.widths[k], at += s.widths[k]) {
            gather(graph_, work.run->nodes(k) + work.first + i, 1, s.widths[k], {at, 0});
        }
    }
    return to;
}

void Runner::reduce_along(const Work &work, const Step &step, const Signature &s) {
    const Sizes z(s);
    const auto kind = static_cast<Reduction>(s.kind);
    const Rows from = values(work, step.in[0]);
    const Block y = value_of(work, step);
    float *scratch = scratch_.take(2 * static_cast<std::size_t>(z.rows)), *joined = joined_of(s);
    for (int i = 0; i < work.count; i++) {
        const float *x = joined ? join(work, s, i, joined) : from[i];
        float *to = y.at + i * y.stride;
        for (int part = 0; part < z.parts; part++, x += z.size, to += z.width) {
            if (kind == Reduction::LogSumExp) {
                for (int j = 0; j < z.width; j++)
                    to[j] = log_sum_exp(z.rows, column(z, j, x, scratch), scratch + z.rows);
            } else if (kind == Reduction::Deviation) {
                for (int j = 0; j < z.width; j++)
                    column(z, j, x, scratch, true), to[j] = deviation(z.rows, scratch, s.attr);
            } else if (kind == Reduction::Length) {
                for (int j = 0; j < z.width; j++) {
                    const float *each = column(z, j, x, scratch);
                    to[j] = std::sqrt(kernels().dot(z.rows, each, each));
                }
            } else if (kind == Reduction::Max || kind == Reduction::Min) {
                kernels().extremes(kind == Reduction::Min, z.rows, z.width, to, x);
            } else if (z.width == 1) {
                *to = kernels().sum(z.rows, x);
            } else {
                std::memset(to, 0, sizeof(float) * z.width);
                kernels().sum_rows(z.rows, z.width, to, {const_cast<float *>(x), z.width}, nullptr);
            }
        }
        to = y.at + i * y.stride;
        for (int j = 0; kind == Reduction::Mean && j < s.width; j++) to[j] /= s.attr;
    }
}

void Runner::reduce_along_back(const Work &work, const Step &step, const Signature &s) {
    const Sizes z(s);
    const auto kind = static_cast<Reduction>(s.kind);
    float *joined = joined_of(s), *djoined = joined_of(s);
    Target target_{};
    if (!joined && !target(work, step.in[0], s.widths[0], target_)) return;
    const Rows from = values(work, step.in[0]);
    const Block y = value_of(work, step), dy = grad_of(work, step);
    float *scratch = scratch_.take(2 * static_cast<std::size_t>(z.rows));
    for (int i = 0; i < work.count; i++) {
        const float *x = joined ? join(work, s, i, joined) : from[i], *value = y.at + i * y.stride,
                    *d = dy.at + i * dy.stride;
        float *dx = joined ? djoined : target_.at.at + i * target_.at.stride;
        if (joined || !target_.add) std::memset(dx, 0, sizeof(float) * (joined ? s.width * s.nargs : s.widths[0]));
        for (int part = 0; part < z.parts; part++, x += z.size, dx += z.size, value += z.width, d += z.width) {
            for (int j = 0; j < z.width; j++) {
                if (kind == Reduction::LogSumExp) {
                    kernels().exp_sum(z.rows, scratch + z.rows, column(z, j, x, scratch), value[j]);
                    for (int k = 0; k < z.rows; k++) dx[k * z.width + j] += d[j] * scratch[z.rows + k];
                } else if (kind == Reduction::Deviation) {
                    column(z, j, x, scratch, true);
                    const float size = deviation(z.rows, scratch, s.attr),
                                each = size > 0 ? d[j] / (s.attr * size) : 0.0f;
                    for (int k = 0; k < z.rows; k++) dx[k * z.width + j] += each * scratch[k];
                } else if (kind == Reduction::Length) {
                    const float each = value[j] > 0 ? d[j] / value[j] : 0.0f;
                    for (int k = 0; each != 0 && k < z.rows; k++) dx[k * z.width + j] += each * x[k * z.width + j];
                } else if (kind == Reduction::Max || kind == Reduction::Min) {  // the first of them
                    int k = 0;
                    while (k + 1 < z.rows && !is_same(x[k * z.width + j], value[j])) k++;
                    dx[k * z.width + j] += d[j];
                } else {
                    const float each = kind == Reduction::Mean ? d[j] / s.attr : d[j];
                    for (int k = 0; k < z.rows; k++) dx[k * z.width + j] += each;
                }
            }
        }
        float *at = djoined;
        for (int k = 0; joined && k < s.nargs; k++) {
            for (int done = 0; done < s.width; done += s.widths[k], at += s.widths[k]) {
                scatter(graph_, work.run->nodes(k) + work.first + i, 1, s.widths[k], {at, 0});
            }
        }
    }
    if (!joined) done(work, target_, s.widths[0]);
}

}  // namespace dpmodule::autobatch
