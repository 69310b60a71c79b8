// Operations along one dimension: softmax, greatest elements, cumulative sums. The operand is a sequence of matrices of
// `count` rows and `step` columns; a line is one column.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runner.hpp"

namespace dpmodule::autobatch {
namespace {

struct Lines {
    explicit Lines(const Signature &s) : count(s.params[0]), step(s.params[1]), size(count * step) {}
    int count, step, size;
};

void binary(Binary kind, const Lines &z, float *y, const float *a, const float *b, bool repeats) {
    kernels().binary(kind, z.count, z.step, {y, z.step}, {const_cast<float *>(a), z.step},
                     {const_cast<float *>(b), repeats ? 0 : z.step});
}

void sum_rows(const Lines &z, float *to, const float *x) {
    std::memset(to, 0, sizeof(float) * z.step);
    kernels().sum_rows(z.count, z.step, to, {const_cast<float *>(x), z.step}, nullptr);
}

// Softmax of columns: whole rows at a time.
void below_each_other(bool logarithm, const Lines &z, const float *x, float *y, float *scratch) {
    float *top = scratch, *total = scratch + z.step;
    kernels().extremes(false, z.count, z.step, top, x);
    binary(Binary::Sub, z, y, x, top, true);
    kernels().unary(Unary::Exp, 0, 1, z.size, {y, z.size}, {y, z.size});
    sum_rows(z, total, y);
    if (!logarithm) return binary(Binary::Div, z, y, y, total, true);
    for (int j = 0; j < z.step; j++) top[j] += std::log(total[j]);
    binary(Binary::Sub, z, y, x, top, true);
}

void below_each_other_back(bool logarithm, const Lines &z, const float *y, const float *dy, float *dx, float *scratch) {
    if (logarithm) {
        sum_rows(z, scratch, dy);
        kernels().unary(Unary::Exp, 0, 1, z.size, {dx, z.size}, {const_cast<float *>(y), z.size});
        binary(Binary::Mul, z, dx, dx, scratch, true);
        binary(Binary::Sub, z, dx, dy, dx, false);
    } else {
        binary(Binary::Mul, z, dx, y, dy, false);
        sum_rows(z, scratch, dx);
        binary(Binary::Sub, z, dx, dy, scratch, true);
        binary(Binary::Mul, z, dx, dx, y, false);
    }
}

}  // namespace

void Runner::softmax(const Work &work, const Step &step, const Signature &s) {
    const Block x = read(work, step.in[0], s.width), y = value_of(work, step);
    const Lines z(s);
    const bool logarithm = s.op == Op::LogSoftmax;
    const std::vector<int> places(s.params.begin() + 2, s.params.end());
    const int chosen = static_cast<int>(places.size());
    float *scratch = scratch_.take(2 * static_cast<std::size_t>(std::max(z.step, chosen)));
    for (int i = 0; i < work.count; i++) {
        for (int first = 0; first < s.width; first += z.size) {
            const float *from = x.at + i * x.stride + first;
            float *to = y.at + i * y.stride + first;
            if (chosen) {
                for (int k = 0; k < chosen; k++) scratch[k] = from[places[k]];
                vector::softmax(true, chosen, scratch, scratch + chosen);
                std::fill_n(to, z.size, -INFINITY);
                for (int k = 0; k < chosen; k++) to[places[k]] = scratch[chosen + k];
            } else if (z.step == 1) {
                vector::softmax(logarithm, z.count, from, to);
            } else {
                below_each_other(logarithm, z, from, to, scratch);
            }
        }
    }
}

void Runner::softmax_back(const Work &work, const Step &step, const Signature &s) {
    Target to;
    if (!target(work, step.in[0], s.width, to)) return;
    const Block y = value_of(work, step), dy = grad_of(work, step);
    const Lines z(s);
    const bool logarithm = s.op == Op::LogSoftmax;
    const std::vector<int> places(s.params.begin() + 2, s.params.end());
    const int chosen = static_cast<int>(places.size());
    float *part = scratch_.take(z.size), *scratch = scratch_.take(std::max(z.step, 3 * chosen));
    for (int i = 0; i < work.count; i++) {
        for (int first = 0; first < s.width; first += z.size) {
            const float *value = y.at + i * y.stride + first, *d = dy.at + i * dy.stride + first;
            float *dx = to.at.at + i * to.at.stride + first;
            if (chosen) {
                for (int k = 0; k < chosen; k++) scratch[k] = value[places[k]], scratch[chosen + k] = d[places[k]];
                vector::softmax_back(true, chosen, scratch, scratch + chosen, scratch + 2 * chosen);
                std::memset(part, 0, sizeof(float) * z.size);
                for (int k = 0; k < chosen; k++) part[places[k]] = scratch[2 * chosen + k];
            } else if (z.step == 1) {
                vector::softmax_back(logarithm, z.count, value, d, part);
            } else {
                below_each_other_back(logarithm, z, value, d, part, scratch);
            }
            if (to.add) kernels().accumulate(z.size, dx, part);
            else std::memcpy(dx, part, sizeof(float) * z.size);
        }
    }
    done(work, to, s.width);
}

namespace {

// Indices of the `count` greatest numbers of a line, in order; NaN counts as greatest, and the first of equals wins.
void find_greatest(const float *x, const Lines &z, int count, std::vector<int> &places) {
    const auto of = [&](int place) { return x[place * z.step]; };
    std::iota(places.begin(), places.end(), 0);
    std::partial_sort(places.begin(), places.begin() + count, places.end(), [&](int a, int b) {
        const bool odd = of(a) != of(a), other = of(b) != of(b);
        if (odd != other) return odd;
        return of(a) > of(b) || (!(of(a) < of(b)) && a < b);
    });
    std::sort(places.begin(), places.begin() + count);
}

}  // namespace

void Runner::greatest(const Work &work, const Step &step, const Signature &s) {
    const Lines z(s);
    std::vector<int> places(z.count);
    const Rows from = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        float *to = y.at + i * y.stride;
        for (int line = 0; line < s.widths[0] / z.count; line++) {
            const int part = line / z.step, column = line % z.step;
            const float *x = from[i] + part * z.size + column;
            find_greatest(x, z, s.kind, places);
            for (int k = 0; k < s.kind; k++) to[(part * s.kind + k) * z.step + column] = x[places[k] * z.step];
        }
    }
}

void Runner::greatest_back(const Work &work, const Step &step, const Signature &s) {
    const Lines z(s);
    std::vector<int> places(z.count);
    const Rows from = values(work, step.in[0]), to = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const float *d = dy.at + i * dy.stride;
        for (int line = 0; to[i] && line < s.widths[0] / z.count; line++) {
            const int part = line / z.step, column = line % z.step, first = part * z.size + column;
            find_greatest(from[i] + first, z, s.kind, places);
            for (int k = 0; k < s.kind; k++)
                to[i][first + places[k] * z.step] += d[(part * s.kind + k) * z.step + column];
        }
    }
}

void Runner::sums(const Work &work, const Step &step, const Signature &s) {
    const Lines z(s);
    const Rows from = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        for (int line = 0; line < s.width / z.count; line++) {
            const int first = line / z.step * z.size + line % z.step;
            const float *x = from[i] + first;
            float *to = y.at + i * y.stride + first;
            double sum = 0;
            for (int k = 0; k < z.count; k++) to[k * z.step] = static_cast<float>(sum += x[k * z.step]);
        }
    }
}

void Runner::sums_back(const Work &work, const Step &step, const Signature &s) {
    const Lines z(s);
    const Rows to = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        for (int line = 0; to[i] && line < s.width / z.count; line++) {
            const int first = line / z.step * z.size + line % z.step;
            const float *d = dy.at + i * dy.stride + first;
            double sum = 0;
            for (int k = z.count - 1; k >= 0; k--)
                to[i][first + k * z.step] += static_cast<float>(sum += d[k * z.step]);
        }
    }
}

}  // namespace dpmodule::autobatch
