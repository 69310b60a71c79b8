// Losses with labels, row by row.
#include <cmath>
#include <cstring>

#include "runner.hpp"

namespace dpmodule::autobatch {

void Runner::loss(const Work &work, const Step &step, const Signature &s) {
    const int batch = s.width, width = s.widths[0] / batch;
    const Block x = read(work, step.in[0], s.widths[0]), out = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const int *labels = graph_.labels(root(work, i), batch);
        const float *scores = x.at + i * x.stride;
        float *kept = work.run->kept + static_cast<std::ptrdiff_t>(work.first + i) * s.widths[0];
        for (int k = 0; k < batch; k++, scores += width, kept += width) {
            const float top = kernels().largest(width, scores), own = scores[labels[k]];
            const float total = kernels().exp_sum(width, kept, scores, top), scale = 1.0f / total;
            for (int j = 0; j < width; j++) kept[j] *= scale;
            out.at[i * out.stride + k] = std::log(total) + top - own;
        }
    }
}

void Runner::loss_back(const Work &work, const Step &step, const Signature &s) {
    const int batch = s.width, width = s.widths[0] / batch;
    Target to;
    if (!target(work, step.in[0], s.widths[0], to)) return;
    const Block dout = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const int *labels = graph_.labels(root(work, i), batch);
        const float *kept = work.run->kept + static_cast<std::ptrdiff_t>(work.first + i) * s.widths[0];
        float *dx = to.at.at + i * to.at.stride;
        if (!to.add) std::memset(dx, 0, sizeof(float) * s.widths[0]);
        for (int k = 0; k < batch; k++, kept += width, dx += width) {
            const float d = dout.at[i * dout.stride + k];
            kernels().axpy(width, dx, d, kept);
            dx[labels[k]] -= d;
        }
    }
    done(work, to, s.widths[0]);
}

void Runner::hinge(const Work &work, const Step &step, const Signature &s) {
    const int batch = s.width, width = s.widths[0] / batch;
    const Block x = read(work, step.in[0], s.widths[0]), out = value_of(work, step);
    float *over = scratch_.take(width);
    for (int i = 0; i < work.count; i++) {
        const float *scores = x.at + i * x.stride;
        const int *labels = graph_.labels(root(work, i), batch);
        for (int k = 0; k < batch; k++, scores += width) {
            for (int j = 0; j < width; j++) {
                const float found = scores[j] - scores[labels[k]] + s.attr;
                over[j] = found <= 0 ? 0 : found;
            }
            over[labels[k]] = 0;
            out.at[i * out.stride + k] = kernels().sum(width, over);
        }
    }
}

void Runner::hinge_back(const Work &work, const Step &step, const Signature &s) {
    const int batch = s.width, width = s.widths[0] / batch;
    Target to;
    if (!target(work, step.in[0], s.widths[0], to)) return;
    const Block x = read(work, step.in[0], s.widths[0]), dout = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const float *scores = x.at + i * x.stride;
        float *dx = to.at.at + i * to.at.stride;
        const int *labels = graph_.labels(root(work, i), batch);
        for (int k = 0; k < batch; k++, scores += width, dx += width) {
            const float d = dout.at[i * dout.stride + k];
            const int label = labels[k];
            int count = 0;
            for (int j = 0; j < width; j++) {
                const bool is_over = j != label && scores[j] - scores[label] + s.attr > 0;
                count += is_over;
                dx[j] = (to.add ? dx[j] : 0.0f) + (is_over ? d : 0.0f);
            }
            dx[label] -= d * static_cast<float>(count);
        }
    }
    done(work, to, s.widths[0]);
}

}  // namespace dpmodule::autobatch
