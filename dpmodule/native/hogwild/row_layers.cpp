// Operators that look at whole rows: sums, softmax, one number of each.
#include <algorithm>
#include <cmath>

#include "kernels/kernels.hpp"
#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

// The numbers of a slot that has as many in each line.
class NumbersLayer final : public Layer {
  public:
    NumbersLayer(Value &output, std::size_t slot) : Layer({}, output), slot_(slot) {}

    void forward(Frame &frame) override {
        const std::vector<float> &from = frame.batch.slots[slot_].numbers;
        std::copy(from.begin(), from.end(), output_.data);
    }

  private:
    const std::size_t slot_;
};

// Rows of (before, count, behind) become (before, behind): the sums over the middle, times a factor.
class ReduceLayer final : public Layer {
  public:
    ReduceLayer(Inputs inputs, Value &output, const Step &step)
        : Layer(std::move(inputs), output), before_(step.ints[0]), count_(step.ints[1]), behind_(step.ints[2]),
          factor_(step.floats[0]) {}

    void forward(Frame &frame) override {
        std::fill(output_.data, output_.data + output_.count(frame.batch), 0.0f);
        walk(frame, [&](std::ptrdiff_t to, std::ptrdiff_t from) { output_.data[to] += in(0).data[from]; });
        if (factor_ == 1.0f) return;
        for (std::size_t i = 0, n = output_.count(frame.batch); i < n; ++i) output_.data[i] *= factor_;
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        float *gradient = in(0).gradient;
        const bool add = inputs_[0].add;
        walk(frame, [&](std::ptrdiff_t to, std::ptrdiff_t from) {
            const float found = output_.gradient[to] * factor_;
            gradient[from] = add ? gradient[from] + found : found;
        });
    }

  private:
    template <class Body>
    void walk(const Frame &frame, Body body) {
        const std::ptrdiff_t outer = static_cast<std::ptrdiff_t>(output_.rows(frame.batch)) * before_;
        for (std::ptrdiff_t i = 0, from = 0; i < outer; ++i) {
            for (int k = 0; k < count_; ++k) {
                for (int j = 0; j < behind_; ++j) body(i * behind_ + j, from++);
            }
        }
    }

    const int before_, count_, behind_;
    const float factor_;
};

class SoftmaxLayer final : public Layer {
  public:
    SoftmaxLayer(Inputs inputs, Value &output, int width, bool logarithm)
        : Layer(std::move(inputs), output), width_(width), logarithm_(logarithm) {}

    void forward(Frame &frame) override {
        const int rows = count(frame);
        if (!logarithm_) return softmax_rows(rows, width_, in(0).data, output_.data);
        for (int i = 0; i < rows; ++i) {
            const float *from = in(0).data + static_cast<std::ptrdiff_t>(i) * width_;
            float *to = output_.data + static_cast<std::ptrdiff_t>(i) * width_;
            const float top = kernels_.largest(width_, from), sum = kernels_.exp_sum(width_, to, from, top);
            const float shift = top + std::log(sum);
            for (int j = 0; j < width_; ++j) to[j] = from[j] - shift;
        }
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        for (int i = 0, rows = count(frame); i < rows; ++i) give(static_cast<std::ptrdiff_t>(i) * width_);
    }

  private:
    int count(const Frame &frame) const { return output_.rows(frame.batch) * (output_.width / width_); }

    void give(std::ptrdiff_t at) {
        const float *y = output_.data + at, *dy = output_.gradient + at;
        float *dx = in(0).gradient + at;
        const float sum = logarithm_ ? kernels_.sum(width_, dy) : kernels_.dot(width_, y, dy);
        for (int j = 0; j < width_; ++j) {
            const float found = logarithm_ ? dy[j] - std::exp(y[j]) * sum : y[j] * (dy[j] - sum);
            dx[j] = inputs_[0].add ? dx[j] + found : found;
        }
    }

    const vector::Kernels &kernels_ = vector::kernels();
    const int width_;
    const bool logarithm_;
};

// The number of each row that a second input numbers; numbers beyond the ends mean the ends.
class PickLayer final : public Layer {
  public:
    using Layer::Layer;

    void forward(Frame &frame) override {
        for (int i = 0; i < frame.batch.lines; ++i) output_.data[i] = in(0).data[place(i)];
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        float *to = in(0).gradient;
        if (!inputs_[0].add) std::fill(to, to + in(0).count(frame.batch), 0.0f);
        for (int i = 0; i < frame.batch.lines; ++i) to[place(i)] += output_.gradient[i];
    }

  private:
    std::ptrdiff_t place(int i) const {
        const int width = in(0).width;
        const float wish = in(1).data[i];
        const int found = wish >= static_cast<float>(width) ? width - 1 : wish > 0 ? static_cast<int>(wish) : 0;
        return static_cast<std::ptrdiff_t>(i) * width + std::min(found, width - 1);
    }
};

// Sum or mean of all numbers of a batch.
class TotalLayer final : public Layer {
  public:
    TotalLayer(Inputs inputs, Value &output, bool mean) : Layer(std::move(inputs), output), mean_(mean) {}

    void forward(Frame &frame) override {
        const std::size_t n = in(0).count(frame.batch);
        output_.data[0] = kernels_.sum(static_cast<int>(n), in(0).data) * factor(n);
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const std::size_t n = in(0).count(frame.batch);
        const float found = output_.gradient[0] * factor(n);
        float *to = in(0).gradient;
        for (std::size_t i = 0; i < n; ++i) to[i] = inputs_[0].add ? to[i] + found : found;
    }

  private:
    float factor(std::size_t n) const { return mean_ ? 1.0f / static_cast<float>(n) : 1.0f; }

    const vector::Kernels &kernels_ = vector::kernels();
    const bool mean_;
};

class ArgmaxLayer final : public Layer {
  public:
    using Layer::Layer;

    void forward(Frame &frame) override {
        const int width = in(0).width;
        for (int i = 0; i < frame.batch.lines; ++i) {
            const float *row = in(0).data + static_cast<std::ptrdiff_t>(i) * width;
            output_.data[i] = static_cast<float>(std::max_element(row, row + width) - row);
        }
    }
};

}  // namespace

void softmax_rows(int rows, int width, const float *scores, float *probabilities) {
    const vector::Kernels &kernels = vector::kernels();
    for (int i = 0; i < rows; ++i, scores += width, probabilities += width) {
        const float scale = 1.0f / kernels.exp_sum(width, probabilities, scores, kernels.largest(width, scores));
        for (int j = 0; j < width; ++j) probabilities[j] *= scale;
    }
}

LayerPointer make_numbers(Value &output, const Step &step) {
    return std::make_unique<NumbersLayer>(output, static_cast<std::size_t>(step.ints[0]));
}

LayerPointer make_reduce(Inputs inputs, Value &output, const Step &step) {
    return std::make_unique<ReduceLayer>(std::move(inputs), output, step);
}

LayerPointer make_softmax(Inputs inputs, Value &output, const Step &step) {
    return std::make_unique<SoftmaxLayer>(std::move(inputs), output, step.ints[0], step.ints[1] != 0);
}

LayerPointer make_pick(Inputs inputs, Value &output) { return std::make_unique<PickLayer>(std::move(inputs), output); }

LayerPointer make_total(Inputs inputs, Value &output, const Step &step) {
    return std::make_unique<TotalLayer>(std::move(inputs), output, step.ints[0] != 0);
}

LayerPointer make_argmax(Inputs inputs, Value &output) {
    return std::make_unique<ArgmaxLayer>(std::move(inputs), output);
}

}  // namespace dpmodule::hogwild
