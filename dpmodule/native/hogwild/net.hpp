// One worker's network: its own buffers over parameters shared by all workers.
#pragma once

#include "tables.hpp"
#include "gate.hpp"

namespace dpmodule::hogwild {

class Net {
  public:
    // The plan must outlive the network. Throws std::bad_alloc.
    explicit Net(const Plan &plan);

    void forward(BatchContext &context);
    void backward(BatchContext &context);

    // Return true if the heads, or the gradients from backward(), are finite.
    bool outputs_are_finite(const Batch &batch) const;
    bool gradients_are_finite(const Batch &batch) const;

    // Update the parameters; `rate` is the learning rate without multipliers, `count` the number of this update.
    void update(const Batch &batch, double rate, std::uint64_t count);

    const Value &value(int i) const { return values_[static_cast<std::size_t>(i)]; }

  private:
    void find_learning();
    LayerSpec make_spec(const Step &step);
    void allocate();
    LayerPointer make(const LayerSpec &spec);
    TableGradient &table(std::size_t parameter);
    DenseGradient *dense(int parameter);
    void update_table(TableGradient &table, const Batch &batch, const vector::UpdateRule &rule);

    const Plan &plan_;
    std::vector<Value> values_;
    std::vector<char> learns_, reached_;  // of each value
    std::vector<std::vector<float>> memory_;
    std::vector<std::unique_ptr<TableGradient>> tables_;  // by parameter
    std::vector<std::unique_ptr<DenseGradient>> dense_;
    std::vector<LayerPointer> layers_;
    std::vector<Layer *> backward_order_;
};

}  // namespace dpmodule::hogwild
