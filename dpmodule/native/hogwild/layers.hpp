// The operators of the engine: what each computes for a batch, forwards and backwards.
#pragma once

#include <memory>
#include <vector>

#include "kernels/kernels.hpp"
#include "plan.hpp"

namespace dpmodule::hogwild {

using vector::Block;

// A matrix of one batch, and the gradient of the loss with regard to it.
struct Value {
    int width = 1;
    bool single = false;  // one row, whatever the batch
    float *data = nullptr;
    float *gradient = nullptr;  // nullptr: nothing that learns depends on it, or no loss on it

    int rows(const Batch &batch) const { return single ? 1 : batch.lines; }
    std::ptrdiff_t count(const Batch &batch) const { return static_cast<std::ptrdiff_t>(rows(batch)) * width; }
    Block block() const { return {data, width}; }
    Block slopes() const { return {gradient, width}; }
};

// Where a layer puts the gradient of one of its inputs.
struct Input {
    Value *value = nullptr;
    bool wanted = false;  // else nobody needs it
    bool add = false;     // another layer has put its own there before

    // Puts found(j) for `count` numbers from `begin` on, j from 0.
    template <class Found>
    void give(std::ptrdiff_t begin, std::ptrdiff_t count, Found found) const {
        float *to = value->gradient + begin;
        if (add)
            for (std::ptrdiff_t j = 0; j < count; ++j) to[j] += found(j);
        else
            for (std::ptrdiff_t j = 0; j < count; ++j) to[j] = found(j);
    }
};

// The gradient of a parameter that every batch uses whole, for one worker.
struct DenseGradient {
    explicit DenseGradient(const Parameter &which)
        : parameter(which), values(static_cast<std::size_t>(which.rows * which.width)) {}

    const Parameter &parameter;
    std::vector<float> values;
    bool used = false;  // by a layer whose backward() runs before
};

// Where a layer puts the gradient of one of its parameters.
struct DenseInput {
    DenseGradient *gradient = nullptr;  // nullptr: there is no such parameter
    bool add = false;

    const float *weight() const { return gradient ? gradient->parameter.weight : nullptr; }
};

// Random bits of one worker: splitmix64, whose numbers depend on seed and worker only.
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

struct Frame {
    const Batch &batch;
    bool train;
    Random &random;
};

// What a layer is made of; attributes of the step come in the order of the functions in hogwild/native_operators.py.
struct Wiring {
    const Step &step;
    Value &output;
    int batch_size;
    std::vector<Input> inputs;
    DenseInput weight, bias;
    bool reached = false;  // a gradient comes to the output, or starts here
};

class Layer {
  public:
    explicit Layer(const Wiring &wiring) : inputs_(wiring.inputs), output_(wiring.output) {}
    Layer(const Layer &) = delete;
    Layer &operator=(const Layer &) = delete;
    virtual ~Layer() = default;

    virtual void forward(Frame &frame) = 0;
    virtual void backward(Frame &) {}

  protected:
    const Value &in(std::size_t i) const { return *inputs_[i].value; }

    const vector::Kernels &kernels_ = vector::kernels();
    const std::vector<Input> inputs_;
    Value &output_;
};

using LayerPointer = std::unique_ptr<Layer>;

// Each makes the layers of its file; nullptr for a step of another kind.
LayerPointer make_pointwise(const Wiring &wiring);
LayerPointer make_of_rows(const Wiring &wiring);
LayerPointer make_loss(const Wiring &wiring);

}  // namespace dpmodule::hogwild
