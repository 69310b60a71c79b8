// Elementwise operators.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

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

}  // namespace

LayerPointer make_pointwise(const LayerSpec &spec) {
    switch (spec.step.kind) {
        case StepKind::Unary: return std::make_unique<UnaryLayer>(spec);
        case StepKind::Binary: return std::make_unique<BinaryLayer>(spec);
        case StepKind::Concat: return std::make_unique<ConcatLayer>(spec);
        case StepKind::Dropout: return std::make_unique<DropoutLayer>(spec);
        default: return nullptr;
    }
}

}  // namespace dpmodule::hogwild
