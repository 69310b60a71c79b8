// Operators that look at each number alone, or at numbers in the same place.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernels.hpp"
#include "layers.hpp"

namespace dpmodule::hogwild {
namespace {

using vector::Block;

Block block_of(const float *at, int stride) { return {const_cast<float *>(at), stride}; }

class UnaryLayer final : public Layer {
  public:
    UnaryLayer(Inputs inputs, Value &output, vector::Unary kind, float attribute)
        : Layer(std::move(inputs), output), kind_(kind), attribute_(attribute) {}

    void forward(Frame &frame) override {
        const int width = output_.width;
        kernels_.unary(kind_, attribute_, output_.rows(frame.batch), width, {output_.data, width},
                       block_of(in(0).data, width));
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const int width = output_.width;
        kernels_.unary_back(kind_, attribute_, output_.rows(frame.batch), width, {in(0).gradient, width},
                            inputs_[0].add, {output_.gradient, width}, block_of(in(0).data, width),
                            {output_.data, width});
    }

  private:
    const vector::Kernels &kernels_ = vector::kernels();
    const vector::Unary kind_;
    const float attribute_;
};

// Functions that the kernels of autobatch do not have.
struct Softrelu {
    static float value(float x, float, float) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }
    static float slope(float x, float, float) { return 1.0f / (1.0f + std::exp(-x)); }
};

struct Leaky {
    static float value(float x, float slope, float) { return x > 0 ? x : slope * x; }
    static float slope(float x, float slope, float) { return x > 0 ? 1.0f : slope; }
};

struct Clip {
    static float value(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
    static float slope(float x, float low, float high) { return x >= low && x <= high ? 1.0f : 0.0f; }
};

struct Gelu {
    static float value(float x, float, float) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678f)); }
    static float slope(float x, float, float) {
        return 0.5f * (1.0f + std::erf(x * 0.70710678f)) + x * 0.39894228f * std::exp(-0.5f * x * x);
    }
};

struct Whole {
    static float value(float x, float, float) { return std::trunc(x); }
    static float slope(float, float, float) { return 0.0f; }
};

template <class Function>
class NumberLayer final : public Layer {
  public:
    NumberLayer(Inputs inputs, Value &output, float first, float second)
        : Layer(std::move(inputs), output), first_(first), second_(second) {}

    void forward(Frame &frame) override {
        const float *from = in(0).data;
        for (std::size_t i = 0, n = output_.count(frame.batch); i < n; ++i)
            output_.data[i] = Function::value(from[i], first_, second_);
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        const float *from = in(0).data;
        float *to = in(0).gradient;
        for (std::size_t i = 0, n = output_.count(frame.batch); i < n; ++i) {
            const float found = output_.gradient[i] * Function::slope(from[i], first_, second_);
            to[i] = inputs_[0].add ? to[i] + found : found;
        }
    }

  private:
    const float first_, second_;
};

// Sum, difference, product or quotient of two values, or of more: then only their sum. An operand of width 1 stands for a
// whole row.
class BinaryLayer final : public Layer {
  public:
    BinaryLayer(Inputs inputs, Value &output, vector::Binary kind) : Layer(std::move(inputs), output), kind_(kind) {}

    void forward(Frame &frame) override {
        const int rows = output_.rows(frame.batch);
        run(rows, output_.data, in(0), in(1));
    }

    void backward(Frame &frame) override {
        for (std::size_t which = 0; which < 2; ++which) {
            if (inputs_[which].wanted) give(output_.rows(frame.batch), which);
        }
    }

  private:
    void run(int rows, float *to, const Value &a, const Value &b) {
        const int width = output_.width;
        if (a.width == width && b.width == width) {
            kernels_.binary(kind_, rows, width, {to, width}, block_of(a.data, width), block_of(b.data, width));
            return;
        }
        for (int i = 0; i < rows; ++i) {
            for (int j = 0; j < width; ++j) to[i * width + j] = combine(number(a, i, j), number(b, i, j));
        }
    }

    void give(int rows, std::size_t which) {
        const Value &to = in(which);
        const int width = output_.width;
        if (in(0).width == width && in(1).width == width) {
            kernels_.binary_back(kind_, static_cast<int>(which), rows, width, {to.gradient, width}, inputs_[which].add,
                                 {output_.gradient, width}, block_of(in(0).data, width), block_of(in(1).data, width),
                                 {output_.data, width});
            return;
        }
        if (!inputs_[which].add)
            std::fill(to.gradient, to.gradient + static_cast<std::ptrdiff_t>(rows) * to.width, 0.0f);
        for (int i = 0; i < rows; ++i) {
            for (int j = 0; j < width; ++j) {
                to.gradient[i * to.width + (to.width == 1 ? 0 : j)] +=
                    output_.gradient[i * width + j] * slope(which, number(in(0), i, j), number(in(1), i, j));
            }
        }
    }

    static float number(const Value &from, int i, int j) {
        return from.data[i * from.width + (from.width == 1 ? 0 : j)];
    }

    float combine(float a, float b) const {
        switch (kind_) {
            case vector::Binary::Add: return a + b;
            case vector::Binary::Sub: return a - b;
            case vector::Binary::Mul: return a * b;
            default: return a / b;
        }
    }

    float slope(std::size_t which, float a, float b) const {
        switch (kind_) {
            case vector::Binary::Add: return 1;
            case vector::Binary::Sub: return which == 0 ? 1.0f : -1.0f;
            case vector::Binary::Mul: return which == 0 ? b : a;
            default: return which == 0 ? 1 / b : -a / (b * b);
        }
    }

    const vector::Kernels &kernels_ = vector::kernels();
    const vector::Binary kind_;
};

class EqualLayer final : public Layer {
  public:
    using Layer::Layer;

    void forward(Frame &frame) override {
        for (std::size_t i = 0, n = output_.count(frame.batch); i < n; ++i)
            output_.data[i] = in(0).data[i] == in(1).data[i];
    }
};

class ConcatLayer final : public Layer {
  public:
    using Layer::Layer;

    void forward(Frame &frame) override {
        walk(
            frame,
            [](const Input &from, float *row, std::ptrdiff_t i) {
                std::memcpy(row, from.value->data + i, sizeof(float) * static_cast<std::size_t>(from.value->width));
            },
            output_.data);
    }

    void backward(Frame &frame) override {
        const vector::Kernels &kernels = vector::kernels();
        walk(
            frame,
            [&](const Input &to, float *row, std::ptrdiff_t i) {
                if (!to.wanted) return;
                if (to.add) kernels.accumulate(to.value->width, to.value->gradient + i, row);
                else
                    std::memcpy(to.value->gradient + i, row, sizeof(float) * static_cast<std::size_t>(to.value->width));
            },
            output_.gradient);
    }

  private:
    template <class Body>
    void walk(const Frame &frame, Body body, float *whole) {
        for (int line = 0; line < frame.batch.lines; ++line) {
            for (const Input &input : inputs_) {
                body(input, whole, static_cast<std::ptrdiff_t>(line) * input.value->width);
                whole += input.value->width;
            }
        }
    }
};

class DropoutLayer final : public Layer {
  public:
    DropoutLayer(Inputs inputs, Value &output, float share, bool always, int batch_size)
        : Layer(std::move(inputs), output), keep_(1.0f - share),
          bound_(static_cast<std::uint64_t>(std::ldexp(1.0 - double(share), 32))), always_(always),
          factors_(static_cast<std::size_t>(output.single ? 1 : batch_size) * static_cast<std::size_t>(output.width)) {}

    void forward(Frame &frame) override {
        const std::size_t n = output_.count(frame.batch);
        on_ = bound_ < (std::uint64_t{1} << 32) && (frame.train || always_);
        if (!on_) {
            std::copy(in(0).data, in(0).data + n, output_.data);
            return;
        }
        const float kept = 1.0f / keep_;
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < n; ++i) {
            bits = i % 2 ? bits >> 32 : frame.random.next();
            factors_[i] = (bits & 0xffffffffu) < bound_ ? kept : 0.0f;
            output_.data[i] = in(0).data[i] * factors_[i];
        }
    }

    void backward(Frame &frame) override {
        if (!inputs_[0].wanted) return;
        float *to = in(0).gradient;
        for (std::size_t i = 0, n = output_.count(frame.batch); i < n; ++i) {
            const float found = output_.gradient[i] * (on_ ? factors_[i] : 1.0f);
            to[i] = inputs_[0].add ? to[i] + found : found;
        }
    }

  private:
    const float keep_;
    const std::uint64_t bound_;
    const bool always_;
    bool on_ = false;
    std::vector<float> factors_;
};

class StopLayer final : public Layer {
  public:
    using Layer::Layer;

    void forward(Frame &frame) override {
        std::copy(in(0).data, in(0).data + output_.count(frame.batch), output_.data);
    }
};

}  // namespace

LayerPointer make_unary(Inputs inputs, Value &output, const Step &step) {
    const float first = step.floats[0], second = step.floats[1];
    switch (step.ints[0]) {
        case 100: return std::make_unique<NumberLayer<Softrelu>>(std::move(inputs), output, first, second);
        case 101: return std::make_unique<NumberLayer<Leaky>>(std::move(inputs), output, first, second);
        case 102: return std::make_unique<NumberLayer<Clip>>(std::move(inputs), output, first, second);
        case 103: return std::make_unique<NumberLayer<Gelu>>(std::move(inputs), output, first, second);
        case 104: return std::make_unique<NumberLayer<Whole>>(std::move(inputs), output, first, second);
        default:
            return std::make_unique<UnaryLayer>(std::move(inputs), output, static_cast<vector::Unary>(step.ints[0]),
                                                first);
    }
}

LayerPointer make_binary(Inputs inputs, Value &output, const Step &step) {
    constexpr int equal = 100;
    if (step.ints[0] == equal) return std::make_unique<EqualLayer>(std::move(inputs), output);
    return std::make_unique<BinaryLayer>(std::move(inputs), output, static_cast<vector::Binary>(step.ints[0]));
}

LayerPointer make_concat(Inputs inputs, Value &output) {
    return std::make_unique<ConcatLayer>(std::move(inputs), output);
}

LayerPointer make_dropout(Inputs inputs, Value &output, const Step &step, int batch_size) {
    return std::make_unique<DropoutLayer>(std::move(inputs), output, step.floats[0], step.ints[0] != 0, batch_size);
}

LayerPointer make_stop(Inputs inputs, Value &output) { return std::make_unique<StopLayer>(std::move(inputs), output); }

}  // namespace dpmodule::hogwild
