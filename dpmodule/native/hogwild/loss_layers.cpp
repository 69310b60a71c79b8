// Loss layers, from which gradients start; gradients of their outputs are ignored.
#include <algorithm>
#include <cmath>

#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

// Softmax with class labels: the probabilities, or their cross-entropy summed over the batch, with probabilities of at
// least 1e-8.
class SoftmaxLossLayer final : public Layer {
  public:
    explicit SoftmaxLossLayer(const LayerSpec &spec)
        : Layer(spec), is_summed_(spec.step.kind == StepKind::CrossEntropy),
          scale_(is_summed_ ? 1.0f : spec.step.floats[0]), per_batch_(!is_summed_ && spec.step.ints[0] != 0),
          own_(is_summed_ ? static_cast<std::size_t>(spec.batch_size) * static_cast<std::size_t>(in(0).width) : 0) {}

    void forward(BatchContext &context) override {
        const int width = in(0).width;
        float *to = probabilities();
        double sum = 0;
        for (int i = 0; i < context.batch.lines; ++i, to += width) {
            vector::softmax(false, width, in(0).data + static_cast<std::ptrdiff_t>(i) * width, to);
            const int right = class_of(i);
            if (is_summed_) sum -= std::log(std::max(right < 0 ? 0.0f : to[right], 1e-8f));
        }
        if (is_summed_) output_.data[0] = static_cast<float>(sum);
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        const int width = in(0).width;
        const float given = is_summed_ ? output_.gradient[0] : scale_;
        const float scale = per_batch_ ? given / static_cast<float>(context.batch.lines) : given;
        const float *from = probabilities();
        for (int i = 0; i < context.batch.lines; ++i, from += width) {
            const int right = class_of(i);
            inputs_[0].give(static_cast<std::ptrdiff_t>(i) * width, width,
                            [=](std::ptrdiff_t j) { return (from[j] - (j == right ? 1.0f : 0.0f)) * scale; });
        }
    }

  private:
    float *probabilities() { return is_summed_ ? own_.data() : output_.data; }

    // The class number of a row's label, truncated; -1 if invalid.
    int class_of(int row) const {
        const float label = in(1).data[row];
        return label > -1.0f && label < static_cast<float>(in(0).width) ? static_cast<int>(label) : -1;
    }

    const bool is_summed_;
    const float scale_;
    const bool per_batch_;
    std::vector<float> own_;
};

// Linear and logistic regression: the gradient is the output minus the label.
class RegressionLayer final : public Layer {
  public:
    explicit RegressionLayer(const LayerSpec &spec)
        : Layer(spec), kind_(spec.step.kind == StepKind::Logistic ? vector::Unary::Logistic : vector::Unary::Copy),
          scale_(spec.step.floats[0] / static_cast<float>(output_.width)) {}

    void forward(BatchContext &context) override {
        kernels_.unary(kind_, 0.0f, context.batch.lines, output_.width, output_.block(), in(0).block());
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        const float *found = output_.data, *label = in(1).data;
        inputs_[0].give(0, output_.count(context.batch),
                        [=](std::ptrdiff_t i) { return (found[i] - label[i]) * scale_; });
    }

  private:
    const vector::Unary kind_;
    const float scale_;
};

class LossLayer final : public Layer {
  public:
    explicit LossLayer(const LayerSpec &spec)
        : Layer(spec), scale_(spec.step.floats[0]), per_batch_(spec.step.ints[0] != 0) {}

    void forward(BatchContext &context) override {
        std::copy_n(in(0).data, output_.count(context.batch), output_.data);
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        const float found = per_batch_ ? scale_ / static_cast<float>(output_.rows(context.batch)) : scale_;
        inputs_[0].give(0, output_.count(context.batch), [found](std::ptrdiff_t) { return found; });
    }

  private:
    const float scale_;
    const bool per_batch_;
};

}  // namespace

LayerPointer make_loss(const LayerSpec &spec) {
    switch (spec.step.kind) {
        case StepKind::SoftmaxOutput:
        case StepKind::CrossEntropy: return std::make_unique<SoftmaxLossLayer>(spec);
        case StepKind::Logistic:
        case StepKind::Linear: return std::make_unique<RegressionLayer>(spec);
        case StepKind::MakeLoss: return std::make_unique<LossLayer>(spec);
        default: return nullptr;
    }
}

}  // namespace dpmodule::hogwild
