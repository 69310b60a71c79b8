// What one operator computes for a batch, forwards and backwards.
#pragma once

#include <vector>

#include "batch.hpp"
#include "random.hpp"

namespace dpmodule::hogwild {

// A matrix of one batch, and the gradient of the loss with regard to it.
struct Value {
    int width = 1;
    bool single = false;  // one row, whatever the batch
    float *data = nullptr;
    float *gradient = nullptr;  // nullptr: nothing that learns depends on it, or no loss on it
    int lookup = -1;            // the table that owns the memory of its gradient

    int rows(const Batch &batch) const { return single ? 1 : batch.lines; }
    std::size_t count(const Batch &batch) const {
        return static_cast<std::size_t>(rows(batch)) * static_cast<std::size_t>(width);
    }
};

// Where a layer puts the gradient of one of its inputs.
struct Input {
    Value *value = nullptr;
    bool wanted = false;  // else nobody needs it
    bool add = false;     // another layer has put its own there before
};

struct Frame {
    const Batch &batch;
    bool train;
    Random &random;
};

class Layer {
  public:
    Layer(std::vector<Input> inputs, Value &output) : inputs_(std::move(inputs)), output_(output) {}
    Layer(const Layer &) = delete;
    Layer &operator=(const Layer &) = delete;
    virtual ~Layer() = default;

    virtual void forward(Frame &frame) = 0;
    virtual void backward(Frame &) {}

  protected:
    const Value &in(std::size_t i) const { return *inputs_[i].value; }

    std::vector<Input> inputs_;
    Value &output_;
};

}  // namespace dpmodule::hogwild
