// Operators that look at whole rows: dense layers, sums, softmax, one number of each.
#include <algorithm>

#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

// A dense layer: products of matrices in blocks.
class FullyConnectedLayer final : public Layer {
  public:
    explicit FullyConnectedLayer(const Wiring &wiring)
        : Layer(wiring), weight_(wiring.weight), bias_(wiring.bias), units_(output_.width), width_(in(0).width),
          packed_(vector::packed_size(kernels_, width_, units_)) {}

    void forward(Frame &frame) override {
        vector::pack(kernels_, width_, units_, weight_.weight(), width_, true, packed_.data());
        kernels_.product({in(0).rows(frame.batch), units_, width_, in(0).data, width_, 1, packed_.data(),
                          vector::Layout::Packed, 0, output_.data, units_, bias_.weight(), false});
    }

    void backward(Frame &frame) override {
        const int rows = in(0).rows(frame.batch);
        const float *slopes = output_.gradient;
        kernels_.product({units_, width_, rows, slopes, 1, units_, in(0).data, vector::Layout::Rows, width_,
                          weight_.gradient->values.data(), width_, nullptr, weight_.add});
        if (bias_.gradient) {
            std::vector<float> &values = bias_.gradient->values;
            if (!bias_.add) std::fill(values.begin(), values.end(), 0.0f);
            kernels_.sum_rows(rows, units_, values.data(), output_.slopes(), nullptr);
        }
        if (inputs_[0].wanted) {
            kernels_.product({rows, width_, units_, slopes, units_, 1, weight_.weight(), vector::Layout::Rows, width_,
                              in(0).gradient, width_, nullptr, inputs_[0].add});
        }
    }

  private:
    const DenseInput weight_, bias_;
    const int units_, width_;
    std::vector<float> packed_;
};

// The numbers of a slot that has as many in each line.
class NumbersLayer final : public Layer {
  public:
    explicit NumbersLayer(const Wiring &wiring) : Layer(wiring), slot_(static_cast<std::size_t>(wiring.step.ints[0])) {}

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
    explicit ReduceLayer(const Wiring &wiring)
        : Layer(wiring), before_(wiring.step.ints[0]), count_(wiring.step.ints[1]), behind_(wiring.step.ints[2]),
          factor_(wiring.step.floats[0]) {}

    void forward(Frame &frame) override {
        const std::ptrdiff_t n = output_.count(frame.batch);
        std::fill_n(output_.data, n, 0.0f);
        each_matrix(frame, [&](std::ptrdiff_t to, std::ptrdiff_t from) {
            kernels_.sum_rows(count_, behind_, output_.data + to, {in(0).data + from, behind_}, nullptr);
        });
        for (std::ptrdiff_t i = 0; factor_ != 1.0f && i < n; ++i) output_.data[i] *= factor_;
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        each_matrix(frame, [&](std::ptrdiff_t to, std::ptrdiff_t from) {
            const float *slopes = output_.gradient + to;
            for (int k = 0; k < count_; ++k) {
                inputs_[0].give(from + k * behind_, behind_, [=](std::ptrdiff_t j) { return slopes[j] * factor_; });
            }
        });
    }

  private:
    // Calls body(where its sums lie, where it lies).
    template <class Body>
    void each_matrix(const Frame &frame, Body body) {
        const std::ptrdiff_t matrices = static_cast<std::ptrdiff_t>(output_.rows(frame.batch)) * before_;
        for (std::ptrdiff_t i = 0; i < matrices; ++i) body(i * behind_, i * behind_ * count_);
    }

    const int before_, count_, behind_;
    const float factor_;
};

class SoftmaxLayer final : public Layer {
  public:
    explicit SoftmaxLayer(const Wiring &wiring)
        : Layer(wiring), width_(wiring.step.ints[0]), logarithm_(wiring.step.ints[1] != 0),
          part_(static_cast<std::size_t>(width_)) {}

    void forward(Frame &frame) override {
        for (std::ptrdiff_t at = 0, n = output_.count(frame.batch); at < n; at += width_)
            vector::softmax(logarithm_, width_, in(0).data + at, output_.data + at);
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        for (std::ptrdiff_t at = 0, n = output_.count(frame.batch); at < n; at += width_) {
            vector::softmax_back(logarithm_, width_, output_.data + at, output_.gradient + at, part_.data());
            inputs_[0].give(at, width_, [this](std::ptrdiff_t j) { return part_[static_cast<std::size_t>(j)]; });
        }
    }

  private:
    const int width_;
    const bool logarithm_;
    std::vector<float> part_;
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
        if (!inputs_[0].add) std::fill_n(to, in(0).count(frame.batch), 0.0f);
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
    explicit TotalLayer(const Wiring &wiring) : Layer(wiring), mean_(wiring.step.ints[0] != 0) {}

    void forward(Frame &frame) override {
        const std::ptrdiff_t n = in(0).count(frame.batch);
        output_.data[0] = kernels_.sum(static_cast<int>(n), in(0).data) * factor(n);
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const std::ptrdiff_t n = in(0).count(frame.batch);
        const float found = output_.gradient[0] * factor(n);
        inputs_[0].give(0, n, [found](std::ptrdiff_t) { return found; });
    }

  private:
    float factor(std::ptrdiff_t n) const { return mean_ ? 1.0f / static_cast<float>(n) : 1.0f; }

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

LayerPointer make_of_rows(const Wiring &wiring) {
    switch (wiring.step.kind) {
        case StepKind::FullyConnected: return std::make_unique<FullyConnectedLayer>(wiring);
        case StepKind::Numbers: return std::make_unique<NumbersLayer>(wiring);
        case StepKind::Reduce: return std::make_unique<ReduceLayer>(wiring);
        case StepKind::Softmax: return std::make_unique<SoftmaxLayer>(wiring);
        case StepKind::Pick: return std::make_unique<PickLayer>(wiring);
        case StepKind::Total: return std::make_unique<TotalLayer>(wiring);
        case StepKind::Argmax: return std::make_unique<ArgmaxLayer>(wiring);
        default: return nullptr;
    }
}

}  // namespace dpmodule::hogwild
