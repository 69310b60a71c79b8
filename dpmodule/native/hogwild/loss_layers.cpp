// The heads from which gradients start; what comes from above them does not count.
#include <algorithm>
#include <cmath>

#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

// Softmax with class numbers: the probabilities; or their cross-entropy, summed over the batch, where a probability below
// 1e-8 counts as that.
class SoftmaxLossLayer final : public Layer {
  public:
    explicit SoftmaxLossLayer(const Wiring &wiring)
        : Layer(wiring), is_summed_(wiring.step.kind == StepKind::CrossEntropy),
          scale_(is_summed_ ? 1.0f : wiring.step.floats[0]), per_batch_(!is_summed_ && wiring.step.ints[0] != 0),
          own_(is_summed_ ? static_cast<std::size_t>(wiring.batch_size) * static_cast<std::size_t>(in(0).width) : 0) {}

    void forward(Frame &frame) override {
        const int width = in(0).width;
        float *to = probabilities();
        double sum = 0;
        for (int i = 0; i < frame.batch.lines; ++i, to += width) {
            vector::softmax(false, width, in(0).data + static_cast<std::ptrdiff_t>(i) * width, to);
            const int right = class_of(i);
            if (is_summed_) sum -= std::log(std::max(right < 0 ? 0.0f : to[right], 1e-8f));
        }
        if (is_summed_) output_.data[0] = static_cast<float>(sum);
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const int width = in(0).width;
        const float given = is_summed_ ? output_.gradient[0] : scale_;
        const float scale = per_batch_ ? given / static_cast<float>(frame.batch.lines) : given;
        const float *from = probabilities();
        for (int i = 0; i < frame.batch.lines; ++i, from += width) {
            const int right = class_of(i);
            inputs_[0].give(static_cast<std::ptrdiff_t>(i) * width, width,
                            [=](std::ptrdiff_t j) { return (from[j] - (j == right ? 1.0f : 0.0f)) * scale; });
        }
    }

  private:
    float *probabilities() { return is_summed_ ? own_.data() : output_.data; }

    // The label of a row as the number of a class, -1 if it is none. Fractions are cut off.
    int class_of(int row) const {
        const float label = in(1).data[row];
        return label > -1.0f && label < static_cast<float>(in(0).width) ? static_cast<int>(label) : -1;
    }

    const bool is_summed_;
    const float scale_;
    const bool per_batch_;
    std::vector<float> own_;
};

// Linear and logistic regression: the gradient is the difference to the label.
class RegressionLayer final : public Layer {
  public:
    explicit RegressionLayer(const Wiring &wiring)
        : Layer(wiring), kind_(wiring.step.kind == StepKind::Logistic ? vector::Unary::Logistic : vector::Unary::Copy),
          scale_(wiring.step.floats[0] / static_cast<float>(output_.width)) {}

    void forward(Frame &frame) override {
        kernels_.unary(kind_, 0.0f, frame.batch.lines, output_.width, output_.block(), in(0).block());
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const float *found = output_.data, *label = in(1).data;
        inputs_[0].give(0, output_.count(frame.batch),
                        [=](std::ptrdiff_t i) { return (found[i] - label[i]) * scale_; });
    }

  private:
    const vector::Unary kind_;
    const float scale_;
};

class LossLayer final : public Layer {
  public:
    explicit LossLayer(const Wiring &wiring)
        : Layer(wiring), scale_(wiring.step.floats[0]), per_batch_(wiring.step.ints[0] != 0) {}

    void forward(Frame &frame) override { std::copy_n(in(0).data, output_.count(frame.batch), output_.data); }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const float found = per_batch_ ? scale_ / static_cast<float>(output_.rows(frame.batch)) : scale_;
        inputs_[0].give(0, output_.count(frame.batch), [found](std::ptrdiff_t) { return found; });
    }

  private:
    const float scale_;
    const bool per_batch_;
};

}  // namespace

LayerPointer make_loss(const Wiring &wiring) {
    switch (wiring.step.kind) {
        case StepKind::SoftmaxOutput:
        case StepKind::CrossEntropy: return std::make_unique<SoftmaxLossLayer>(wiring);
        case StepKind::Logistic:
        case StepKind::Linear: return std::make_unique<RegressionLayer>(wiring);
        case StepKind::MakeLoss: return std::make_unique<LossLayer>(wiring);
        default: return nullptr;
    }
}

}  // namespace dpmodule::hogwild
