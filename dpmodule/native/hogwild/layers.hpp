// The layers of the engine: the forward and backward computation of each operator for a batch.
#pragma once

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

// Make the layer of a step; lookups in tables are made by `Net`.
LayerPointer make_layer(const LayerSpec &spec);

}  // namespace dpmodule::hogwild
