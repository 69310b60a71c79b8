// The layers of the engine: the forward and backward computation of each operator for a batch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/kernels.hpp"
#include "plan.hpp"

namespace dpmodule::hogwild {

using vector::Block;

// A matrix of one batch, and its gradient.
struct Value {
    int width = 1;
    bool single = false;  // one row for the whole batch
    float *data = nullptr;
    float *gradient = nullptr;  // nullptr: no gradient is needed

    int rows(const Batch &batch) const { return single ? 1 : batch.lines; }
    std::ptrdiff_t count(const Batch &batch) const { return static_cast<std::ptrdiff_t>(rows(batch)) * width; }
    Block block() const { return {data, width}; }
    Block slopes() const { return {gradient, width}; }
};

// Destination of the gradient of a layer's input.
struct Input {
    Value *value = nullptr;
    bool wanted = false;  // false: not needed
    bool add = false;     // add to the gradient of another layer

    // Writes or adds values(j), j = 0..count-1, from `begin` on.
    template <class Values>
    void give(std::ptrdiff_t begin, std::ptrdiff_t count, Values values) const {
        float *to = value->gradient + begin;
        if (add)
            for (std::ptrdiff_t j = 0; j < count; ++j) to[j] += values(j);
        else
            for (std::ptrdiff_t j = 0; j < count; ++j) to[j] = values(j);
    }
};

// One worker's gradient of a dense parameter.
struct DenseGradient {
    explicit DenseGradient(const Parameter &which)
        : parameter(which), values(static_cast<std::size_t>(which.rows * which.width)) {}

    const Parameter &parameter;
    std::vector<float> values;
    bool used = false;  // by a layer whose backward() runs earlier
};

// Destination of the gradient of a layer's parameter.
struct DenseInput {
    DenseGradient *gradient = nullptr;  // nullptr: no such parameter
    bool add = false;

    const float *weight() const { return gradient ? gradient->parameter.weight : nullptr; }
};

// Random bits of one worker (splitmix64), which depend only on seed and worker.
class Random {
  public:
    Random(std::uint64_t seed, std::uint64_t worker) noexcept
        : state_(mix(seed) ^ mix(worker + 0x51ed2701a3c5e96bull)) {}

    std::uint64_t next() noexcept { return mix(state_ += step); }

  private:
    static constexpr std::uint64_t step = 0x9e3779b97f4a7c15ull;

    static std::uint64_t mix(std::uint64_t x) noexcept {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
    }

    std::uint64_t state_;
};

struct BatchContext {
    const Batch &batch;
    bool train;
    Random &random;
};

// Arguments of a layer; attributes of the step are in the order of the functions in hogwild/native_operators.py.
struct LayerSpec {
    const Step &step;
    Value &output;
    int batch_size;
    std::vector<Input> inputs;
    DenseInput weight, bias;
    bool reached = false;  // the output has a gradient, or is a loss
};

// Load a row of a table into the cache.
inline void prefetch(const float *at, std::int64_t width) noexcept {
#if defined(__GNUC__)
    constexpr std::int64_t line = 16;
    for (std::int64_t i = 0; i < width; i += line) __builtin_prefetch(at + i);
#else
    (void)at, (void)width;
#endif
}

class Layer {
  public:
    explicit Layer(const LayerSpec &spec) : inputs_(spec.inputs), output_(spec.output) {}
    Layer(const Layer &) = delete;
    Layer &operator=(const Layer &) = delete;
    virtual ~Layer() = default;

    virtual void forward(BatchContext &context) = 0;
    virtual void backward(BatchContext &) {}

  protected:
    const Value &in(std::size_t i) const { return *inputs_[i].value; }

    const vector::Kernels &kernels_ = vector::kernels();
    const std::vector<Input> inputs_;
    Value &output_;
};

using LayerPointer = std::unique_ptr<Layer>;

// elementwise operators

class UnaryLayer final : public Layer {
  public:
    explicit UnaryLayer(const LayerSpec &spec)
        : Layer(spec), kind_(static_cast<vector::Unary>(spec.step.function)), attribute_(spec.step.floats[0]) {}

    void forward(BatchContext &context) override {
        kernels_.unary(kind_, attribute_, output_.rows(context.batch), output_.width, output_.block(), in(0).block());
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        kernels_.unary_back(kind_, attribute_, output_.rows(context.batch), output_.width, in(0).slopes(),
                            inputs_[0].add, output_.slopes(), in(0).block(), output_.block());
    }

  private:
    const vector::Unary kind_;
    const float attribute_;
};

// A function of two values; an operand of width 1 broadcasts over the row.
class BinaryLayer final : public Layer {
  public:
    explicit BinaryLayer(const LayerSpec &spec)
        : Layer(spec), kind_(static_cast<vector::Binary>(spec.step.function)), spreads_(in(0).width != in(1).width),
          rows_(spreads_ ? 2 * static_cast<std::size_t>(output_.width) : 0) {}

    void forward(BatchContext &context) override {
        const int rows = output_.rows(context.batch), width = output_.width;
        if (!spreads_) return kernels_.binary(kind_, rows, width, output_.block(), in(0).block(), in(1).block());
        for (int i = 0; i < rows; ++i) {
            kernels_.binary(kind_, 1, width, row_of(output_.block(), i), whole_row(in(0), i), whole_row(in(1), i));
        }
    }

    void backward(BatchContext &context) override {
        for (std::size_t which = 0; which < 2; ++which) {
            if (inputs_[which].wanted) give(output_.rows(context.batch), static_cast<int>(which), inputs_[which]);
        }
    }

  private:
    void give(int rows, int which, const Input &to) {
        const int width = output_.width;
        if (!spreads_) {
            kernels_.binary_back(kind_, which, rows, width, to.value->slopes(), to.add, output_.slopes(), in(0).block(),
                                 in(1).block(), output_.block());
            return;
        }
        const bool sums = to.value->width < width;
        for (int i = 0; i < rows; ++i) {
            Block slopes = sums ? Block{rows_.data() + width, width} : row_of(to.value->slopes(), i);
            kernels_.binary_back(kind_, which, 1, width, slopes, to.add && !sums, row_of(output_.slopes(), i),
                                 whole_row(in(0), i), whole_row(in(1), i), row_of(output_.block(), i));
            if (sums) to.give(i, 1, [&](std::ptrdiff_t) { return kernels_.sum(width, slopes.at); });
        }
    }

    static Block row_of(Block block, int i) { return {vector::row_of(block, i), block.stride}; }

    // A row of an operand, broadcast to the result's width.
    Block whole_row(const Value &from, int i) {
        if (from.width == output_.width) return row_of(from.block(), i);
        std::fill_n(rows_.data(), output_.width, from.data[i]);
        return {rows_.data(), output_.width};
    }

    const vector::Binary kind_;
    const bool spreads_;
    std::vector<float> rows_;  // an operand and a gradient
};

class ConcatLayer final : public Layer {
  public:
    using Layer::Layer;

    void forward(BatchContext &context) override {
        walk(context, output_.data, [](const Input &from, float *row, std::ptrdiff_t i) {
            std::memcpy(row, from.value->data + i, sizeof(float) * static_cast<std::size_t>(from.value->width));
        });
    }

    void backward(BatchContext &context) override {
        walk(context, output_.gradient, [&](const Input &to, float *row, std::ptrdiff_t i) {
            if (to.wanted) to.give(i, to.value->width, [row](std::ptrdiff_t j) { return row[j]; });
        });
    }

  private:
    template <class Body>
    void walk(const BatchContext &context, float *whole, Body body) {
        for (int line = 0; line < context.batch.lines; ++line) {
            for (const Input &input : inputs_) {
                body(input, whole, static_cast<std::ptrdiff_t>(line) * input.value->width);
                whole += input.value->width;
            }
        }
    }
};

class DropoutLayer final : public Layer {
  public:
    explicit DropoutLayer(const LayerSpec &spec)
        : Layer(spec), keep_(1.0f - spec.step.floats[0]),
          bound_(static_cast<std::uint64_t>(std::ldexp(1.0 - double(spec.step.floats[0]), 32))),
          always_(spec.step.ints[0] != 0), factors_(static_cast<std::size_t>(output_.single ? 1 : spec.batch_size) *
                                                    static_cast<std::size_t>(output_.width)) {}

    void forward(BatchContext &context) override {
        const auto n = static_cast<std::size_t>(output_.count(context.batch));
        on_ = bound_ < (std::uint64_t{1} << 32) && (context.train || always_);
        const float kept = 1.0f / keep_;
        std::uint64_t bits = 0;
        for (std::size_t i = 0; on_ && i < n; ++i) {
            bits = i % 2 ? bits >> 32 : context.random.next();
            factors_[i] = (bits & 0xffffffffu) < bound_ ? kept : 0.0f;
            output_.data[i] = in(0).data[i] * factors_[i];
        }
        if (!on_) std::copy_n(in(0).data, n, output_.data);
    }

    void backward(BatchContext &context) override {
        if (!inputs_[0].wanted) return;
        const float *slopes = output_.gradient, *factors = factors_.data();
        inputs_[0].give(0, output_.count(context.batch),
                        [=](std::ptrdiff_t i) { return on_ ? slopes[i] * factors[i] : slopes[i]; });
    }

  private:
    const float keep_;
    const std::uint64_t bound_;
    const bool always_;
    bool on_ = false;
    std::vector<float> factors_;
};

// operators on whole rows: dense layers, reductions, softmax, selection

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

// losses, from which gradients start; gradients of their outputs are ignored

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

// Make the layer of a step; lookups in tables are made by `Net`.
inline LayerPointer make_layer(const LayerSpec &spec) {
    switch (spec.step.kind) {
        case StepKind::Unary: return std::make_unique<UnaryLayer>(spec);
        case StepKind::Binary: return std::make_unique<BinaryLayer>(spec);
        case StepKind::Concat: return std::make_unique<ConcatLayer>(spec);
        case StepKind::Dropout: return std::make_unique<DropoutLayer>(spec);
        case StepKind::FullyConnected: return std::make_unique<FullyConnectedLayer>(spec);
        case StepKind::Numbers: return std::make_unique<NumbersLayer>(spec);
        case StepKind::Reduce: return std::make_unique<ReduceLayer>(spec);
        case StepKind::Softmax: return std::make_unique<SoftmaxLayer>(spec);
        case StepKind::Pick: return std::make_unique<PickLayer>(spec);
        case StepKind::Total: return std::make_unique<TotalLayer>(spec);
        case StepKind::Argmax: return std::make_unique<ArgmaxLayer>(spec);
        case StepKind::SoftmaxOutput:
        case StepKind::CrossEntropy: return std::make_unique<SoftmaxLossLayer>(spec);
        case StepKind::Logistic:
        case StepKind::Linear: return std::make_unique<RegressionLayer>(spec);
        case StepKind::MakeLoss: return std::make_unique<LossLayer>(spec);
        default: return nullptr;
    }
}

}  // namespace dpmodule::hogwild
