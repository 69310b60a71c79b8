// Sparsemax, constrained softmax and argmax.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "runner.hpp"

namespace dpmodule::autobatch {
namespace {

// The threshold above which the numbers, minus the threshold, sum to one; NaN for NaN.
float threshold_of(int width, const float *x, float *sorted) {
    if (std::any_of(x, x + width, [](float each) { return std::isnan(each); })) return NAN;
    std::copy_n(x, width, sorted);
    std::sort(sorted, sorted + width, std::greater<>());
    float sum = 0, found = 0;
    for (int k = 0; k < width; k++) {
        sum += sorted[k];
        if (k && static_cast<float>(k + 1) * sorted[k] + 1 <= sum) break;
        found = (sum - 1) / static_cast<float>(k + 1);
    }
    return found;
}

}  // namespace

void Runner::sparsemax(const Work &work, const Step &step, const Signature &s) {
    const Block x = read(work, step.in[0], s.width), y = value_of(work, step);
    const int width = s.kind;
    float *sorted = scratch_.take(width);
    for (int i = 0; i < work.count; i++) {
        for (int first = 0; first < s.width; first += width) {
            const float *from = x.at + i * x.stride + first;
            float *to = y.at + i * y.stride + first;
            const float threshold = threshold_of(width, from, sorted);
            for (int j = 0; j < width; j++) to[j] = from[j] <= threshold ? 0.0f : from[j] - threshold;
        }
    }
}

void Runner::sparsemax_back(const Work &work, const Step &step, const Signature &s) {
    Target to;
    if (!target(work, step.in[0], s.width, to)) return;
    const Block y = value_of(work, step), dy = grad_of(work, step);
    const int width = s.kind;
    for (int i = 0; i < work.count; i++) {
        for (int first = 0; first < s.width; first += width) {
            const float *value = y.at + i * y.stride + first, *d = dy.at + i * dy.stride + first;
            float *dx = to.at.at + i * to.at.stride + first, total = 0;
            int count = 0;
            for (int j = 0; j < width; j++) {
                if (value[j] > 0) total += d[j], count++;
            }
            for (int j = 0; j < width; j++) {
                const float part = value[j] > 0 ? d[j] - total / static_cast<float>(count) : 0.0f;
                dx[j] = to.add ? dx[j] + part : part;
            }
        }
    }
    done(work, to, s.width);
}

namespace {

// A softmax with upper bounds; probability above a bound is redistributed.
struct Bounded {
    int width;
    float *share;            // of each element
    std::vector<char> free;  // below its bound
    float mass = 1;          // of the free ones

    Bounded(int width, float *share) : width(width), share(share), free(width) {}
    void find(const float *x, const float *bound) {
        const float top = kernels().largest(width, x);
        std::fill(free.begin(), free.end(), 1);
        for (bool over = true; over;) {
            float total = 0;
            mass = 1;
            for (int j = 0; j < width; j++) {
                share[j] = std::exp(x[j] - top);
                if (free[j]) total += share[j];
                else mass -= bound[j];
            }
            over = false;
            for (int j = 0; j < width; j++) {
                share[j] = free[j] ? share[j] * mass / std::max(total, 1e-30f) : bound[j];
                if (free[j] && share[j] > bound[j]) free[j] = 0, over = true;
            }
        }
    }
};

}  // namespace

void Runner::constrained(const Work &work, const Step &step, const Signature &s) {
    const Block x = read(work, step.in[0], s.width), bound = read(work, step.in[1], s.width), y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        for (int first = 0; first < s.width; first += s.kind) {
            Bounded(s.kind, y.at + i * y.stride + first)
                .find(x.at + i * x.stride + first, bound.at + i * bound.stride + first);
        }
    }
}

void Runner::constrained_back(const Work &work, const Step &step, const Signature &s) {
    const Block x = read(work, step.in[0], s.width), bound = read(work, step.in[1], s.width), dy = grad_of(work, step);
    const int width = s.kind;
    float *part = scratch_.take(static_cast<std::size_t>(width));
    Bounded found(width, scratch_.take(static_cast<std::size_t>(width)));
    for (int k = 0; k < 2; k++) {
        Target to;
        if (!target(work, step.in[k], s.width, to)) continue;
        for (int i = 0; i < work.count; i++) {
            for (int first = 0; first < s.width; first += width) {
                const float *d = dy.at + i * dy.stride + first;
                float *dx = to.at.at + i * to.at.stride + first;
                found.find(x.at + i * x.stride + first, bound.at + i * bound.stride + first);
                float mean = 0;  // of the free elements' gradients, weighted by their shares
                for (int j = 0; j < width; j++) {
                    if (found.free[j] && found.share[j] != 0) mean += d[j] * found.share[j] / found.mass;
                }
                for (int j = 0; j < width; j++) {
                    part[j] = found.free[j] != (k == 0) ? 0.0f : (d[j] - mean) * (k == 0 ? found.share[j] : 1.0f);
                }
                if (to.add) kernels().accumulate(width, dx, part);
                else std::memcpy(dx, part, sizeof(float) * width);
            }
        }
        done(work, to, s.width);
    }
}

// One-hot of the maximum along the first dimension; the first of equals wins, and NaN counts as greatest.
void Runner::argmax(const Work &work, const Step &step, const Signature &s) {
    const int count = s.params[0], along = s.params[1];
    const Block x = read(work, step.in[0], s.width), y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        float *to = y.at + i * y.stride;
        std::fill_n(to, s.width, 0.0f);
        for (int line = 0; line < s.width / count; line++) {
            const int first = line / along * count * along + line % along;
            const float *from = x.at + i * x.stride + first;
            int best = 0;
            for (int k = 1; k < count && !std::isnan(from[best * along]); k++) {
                if (!(from[k * along] <= from[best * along])) best = k;
            }
            to[first + best * along] = 1.0f;
        }
    }
}

// The gradient passes through unchanged, or not at all.
void Runner::argmax_back(const Work &work, const Step &step, const Signature &s) {
    Target to;
    if (!s.params[2] || !target(work, step.in[0], s.width, to)) return;
    const Block dy = grad_of(work, step);
    kernels().unary_back(Unary::Copy, 0, work.count, s.width, to.at, to.add, dy, dy, dy);
    done(work, to, s.width);
}

}  // namespace dpmodule::autobatch
