// Operators on whole rows: dense layers, reductions, softmax, selection.
#include <algorithm>

#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

// A dense layer, as blocked matrix products.
class FullyConnectedLayer final : public Layer {
  public:
    explicit FullyConnectedLayer(const LayerSpec &spec)
        : Layer(spec), weight_(spec.weight), bias_(spec.bias), units_(output_.width), width_(in(0).width),
          packed_(vector::packed_size(kernels_, width_, units_)) {}

    void forward(BatchContext &context) override {
        vector::pack(kernels_, width_, units_, weight_.weight(), width_, true, packed_.data());
        kernels_.product({in(0).rows(context.batch), units_, width_, in(0).data, width_, 1, packed_.data(),
                          vector::Layout::Packed, 0, output_.data, units_, bias_.weight(), false});
    }

    void backward(BatchContext &context) override {
        const int rows = in(0).rows(context.batch);
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

// The numbers of a slot with a fixed count per line.
class NumbersLayer final : public Layer {
  public:
    explicit NumbersLayer(const LayerSpec &spec) : Layer(spec), slot_(static_cast<std::size_t>(spec.step.ints[0])) {}

    void forward(BatchContext &context) override {
        const std::vector<float> &from = context.batch.slots[slot_].numbers;
        std::copy(from.begin(), from.end(), output_.data);
    }

  private:
    const std::size_t slot_;
};

// Sums over the middle axis of rows (before, count, after), times a factor.
class ReduceLayer final : public Layer {
  public:
    explicit ReduceLayer(const LayerSpec &spec)
        : Layer(spec), before_(spec.step.ints[0]), count_(spec.step.ints[1]), behind_(spec.step.ints[2]),
          factor_(spec.step.floats[0]) {}

    void forward(BatchContext &context) override {
        const std::ptrdiff_t n = output_.count(context.batch);
        std::fill_n(output_.data, n, 0.0f);
        each_matrix(context, [&](std::ptrdiff_t to, std::ptrdiff_t from) {
            kernels_.sum_rows(count_, behind_, output_.data + to, {in(0).data + from, behind_}, nullptr);
        });
        for (std::ptrdiff_t i = 0; factor_ != 1.0f && i < n; ++i) output_.data[i] *= factor_;
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        each_matrix(context, [&](std::ptrdiff_t to, std::ptrdiff_t from) {
            const float *slopes = output_.gradient + to;
            for (int k = 0; k < count_; ++k) {
                inputs_[0].give(from + k * behind_, behind_, [=](std::ptrdiff_t j) { return slopes[j] * factor_; });
            }
        });
    }

  private:
    // Calls body(index of the sums, index of the input).
    template <class Body>
    void each_matrix(const BatchContext &context, Body body) {
        const std::ptrdiff_t matrices = static_cast<std::ptrdiff_t>(output_.rows(context.batch)) * before_;
        for (std::ptrdiff_t i = 0; i < matrices; ++i) body(i * behind_, i * behind_ * count_);
    }

    const int before_, count_, behind_;
    const float factor_;
};

class SoftmaxLayer final : public Layer {
  public:
    explicit SoftmaxLayer(const LayerSpec &spec)
        : Layer(spec), width_(spec.step.ints[0]), logarithm_(spec.step.ints[1] != 0),
          part_(static_cast<std::size_t>(width_)) {}

    void forward(BatchContext &context) override {
        for (std::ptrdiff_t at = 0, n = output_.count(context.batch); at < n; at += width_)
            vector::softmax(logarithm_, width_, in(0).data + at, output_.data + at);
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        for (std::ptrdiff_t at = 0, n = output_.count(context.batch); at < n; at += width_) {
            vector::softmax_back(logarithm_, width_, output_.data + at, output_.gradient + at, part_.data());
            inputs_[0].give(at, width_, [this](std::ptrdiff_t j) { return part_[static_cast<std::size_t>(j)]; });
        }
    }

  private:
    const int width_;
    const bool logarithm_;
    std::vector<float> part_;
};

// Selects the element of each row at the index of a second input, clipped to the row.
class PickLayer final : public Layer {
  public:
    using Layer::Layer;

    void forward(BatchContext &context) override {
        for (int i = 0; i < context.batch.lines; ++i) output_.data[i] = in(0).data[place(i)];
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        float *to = in(0).gradient;
        if (!inputs_[0].add) std::fill_n(to, in(0).count(context.batch), 0.0f);
        for (int i = 0; i < context.batch.lines; ++i) to[place(i)] += output_.gradient[i];
    }

  private:
    std::ptrdiff_t place(int i) const {
        const int width = in(0).width;
        const float wish = in(1).data[i];
        const int found = wish >= static_cast<float>(width) ? width - 1 : wish > 0 ? static_cast<int>(wish) : 0;
        return static_cast<std::ptrdiff_t>(i) * width + std::min(found, width - 1);
    }
};

// Sum or mean of all elements of a batch.
class TotalLayer final : public Layer {
  public:
    explicit TotalLayer(const LayerSpec &spec) : Layer(spec), mean_(spec.step.ints[0] != 0) {}

    void forward(BatchContext &context) override {
        const std::ptrdiff_t n = in(0).count(context.batch);
        output_.data[0] = kernels_.sum(static_cast<int>(n), in(0).data) * factor(n);
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        const std::ptrdiff_t n = in(0).count(context.batch);
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

    void forward(BatchContext &context) override {
        const int width = in(0).width;
        for (int i = 0; i < context.batch.lines; ++i) {
            const float *row = in(0).data + static_cast<std::ptrdiff_t>(i) * width;
            output_.data[i] = static_cast<float>(std::max_element(row, row + width) - row);
        }
    }
};

}  // namespace

LayerPointer make_of_rows(const LayerSpec &spec) {
    switch (spec.step.kind) {
        case StepKind::FullyConnected: return std::make_unique<FullyConnectedLayer>(spec);
        case StepKind::Numbers: return std::make_unique<NumbersLayer>(spec);
        case StepKind::Reduce: return std::make_unique<ReduceLayer>(spec);
        case StepKind::Softmax: return std::make_unique<SoftmaxLayer>(spec);
        case StepKind::Pick: return std::make_unique<PickLayer>(spec);
        case StepKind::Total: return std::make_unique<TotalLayer>(spec);
        case StepKind::Argmax: return std::make_unique<ArgmaxLayer>(spec);
        default: return nullptr;
    }
}

}  // namespace dpmodule::hogwild
