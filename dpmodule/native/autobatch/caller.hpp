// How the engine runs an operation that it has no kernel for: by somebody else, a whole batch at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dpmodule::autobatch {

struct CallBatch {
    std::int64_t key;  // the same for both directions of one batch
    int kind;          // which operation: Signature::kind
    int rows;
    struct Argument {
        float *at;  // rows one after the other, or a single one that all share
        bool shared;
        float *grad;  // where the gradient is wanted, laid out alike; nullptr: not wanted
    };
    std::vector<Argument> arguments;
    std::vector<int> aux;     // forward only
    std::vector<int> counts;  // operations of any number of operands: how many each row has
    float *out;               // value or, backward, gradient of the result
};

class Caller {
  public:
    virtual ~Caller() = default;
    // Both may throw; what they throw passes through the engine.
    virtual void forward(const CallBatch &batch) = 0;
    virtual void backward(const CallBatch &batch) = 0;
    // Random numbers of a kind, which has one or two numbers of its own.
    virtual void draw(int kind, const double *numbers, float *to, std::size_t count) = 0;
};

}  // namespace dpmodule::autobatch
