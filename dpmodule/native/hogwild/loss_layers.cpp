// The heads from which gradients start; what comes from above them does not count.
#include <algorithm>
#include <cmath>

#include "kernels/kernels.hpp"
#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

// A label as the number of a class of `width`, -1 if it is none. Fractions are cut off.
int class_of(float label, int width) {
    return label > -1.0f && label < static_cast<float>(width) ? static_cast<int>(label) : -1;
}

class SoftmaxOutputLayer final : public Layer {
  public:
    SoftmaxOutputLayer(Inputs inputs, Value &output, float scale, bool per_batch)
        : Layer(std::move(inputs), output), scale_(scale), per_batch_(per_batch) {}

    void forward(Frame &frame) override { softmax_rows(frame.batch.lines, output_.width, in(0).data, output_.data); }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const int width = output_.width, lines = frame.batch.lines;
        const float scale = per_batch_ ? scale_ / static_cast<float>(lines) : scale_;
        for (int i = 0; i < lines; ++i) {
            const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(i) * width;
            const int right = class_of(in(1).data[i], width);
            float *to = in(0).gradient + at;
            for (int j = 0; j < width; ++j) {
                const float found = (output_.data[at + j] - (j == right ? 1.0f : 0.0f)) * scale;
                to[j] = inputs_[0].add ? to[j] + found : found;
            }
        }
    }

  private:
    const float scale_;
    const bool per_batch_;
};

// Linear and logistic regression: the gradient is the difference to the label.
class RegressionLayer final : public Layer {
  public:
    RegressionLayer(Inputs inputs, Value &output, bool logistic, float scale)
        : Layer(std::move(inputs), output), logistic_(logistic), scale_(scale / static_cast<float>(output.width)) {}

    void forward(Frame &frame) override {
        const int rows = frame.batch.lines, width = output_.width;
        const auto kind = logistic_ ? vector::Unary::Logistic : vector::Unary::Copy;
        vector::kernels().unary(kind, 0.0f, rows, width, {output_.data, width}, {in(0).data, width});
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        float *to = in(0).gradient;
        for (std::size_t i = 0, n = output_.count(frame.batch); i < n; ++i) {
            const float found = (output_.data[i] - in(1).data[i]) * scale_;
            to[i] = inputs_[0].add ? to[i] + found : found;
        }
    }

  private:
    const bool logistic_;
    const float scale_;
};

class LossLayer final : public Layer {
  public:
    LossLayer(Inputs inputs, Value &output, float scale, bool per_batch)
        : Layer(std::move(inputs), output), scale_(scale), per_batch_(per_batch) {}

    void forward(Frame &frame) override {
        std::copy(in(0).data, in(0).data + output_.count(frame.batch), output_.data);
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const float found = per_batch_ ? scale_ / static_cast<float>(output_.rows(frame.batch)) : scale_;
        float *to = in(0).gradient;
        for (std::size_t i = 0, n = output_.count(frame.batch); i < n; ++i)
            to[i] = inputs_[0].add ? to[i] + found : found;
    }

  private:
    const float scale_;
    const bool per_batch_;
};

// The cross-entropy of softmax with class numbers, summed over the batch; a probability below 1e-8 counts as that.
class CrossEntropyLayer final : public Layer {
  public:
    CrossEntropyLayer(Inputs inputs, Value &output, int batch_size)
        : Layer(std::move(inputs), output),
          probabilities_(static_cast<std::size_t>(batch_size) * static_cast<std::size_t>(in(0).width)) {}

    void forward(Frame &frame) override {
        const int width = in(0).width;
        softmax_rows(frame.batch.lines, width, in(0).data, probabilities_.data());
        double sum = 0;
        for (int i = 0; i < frame.batch.lines; ++i) {
            const int right = class_of(in(1).data[i], width);
            const float found = right < 0 ? 0.0f : probabilities_[static_cast<std::size_t>(i * width + right)];
            sum -= std::log(std::max(found, 1e-8f));
        }
        output_.data[0] = static_cast<float>(sum);
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const int width = in(0).width;
        float *to = in(0).gradient;
        for (int i = 0; i < frame.batch.lines; ++i) {
            const int right = class_of(in(1).data[i], width);
            for (int j = 0; j < width; ++j) {
                const int at = i * width + j;
                const float found =
                    (probabilities_[static_cast<std::size_t>(at)] - (j == right ? 1.0f : 0.0f)) * output_.gradient[0];
                to[at] = inputs_[0].add ? to[at] + found : found;
            }
        }
    }

  private:
    std::vector<float> probabilities_;
};

}  // namespace

LayerPointer make_softmax_output(Inputs inputs, Value &output, const Step &step) {
    return std::make_unique<SoftmaxOutputLayer>(std::move(inputs), output, step.floats[0], step.ints[0] != 0);
}

LayerPointer make_regression(Inputs inputs, Value &output, const Step &step) {
    return std::make_unique<RegressionLayer>(std::move(inputs), output, step.kind == StepKind::Logistic,
                                             step.floats[0]);
}

LayerPointer make_loss(Inputs inputs, Value &output, const Step &step) {
    return std::make_unique<LossLayer>(std::move(inputs), output, step.floats[0], step.ints[0] != 0);
}

LayerPointer make_cross_entropy(Inputs inputs, Value &output, int batch_size) {
    return std::make_unique<CrossEntropyLayer>(std::move(inputs), output, batch_size);
}

}  // namespace dpmodule::hogwild
