// Rows of a table for the ids of a slot, summed over each line or one beside the other.
#pragma once

#include "table_gradient.hpp"

namespace dpmodule::hogwild {

class LookupLayer final : public Layer {
  public:
    LookupLayer(const Parameter &table, const Wiring &wiring);

    void forward(Frame &frame) override;
    // Only scales: the gradient lies where the table's collects it.
    void backward(Frame &frame) override;

    // Lets the gradient of its table collect that of its rows.
    void join(TableGradient &table, int batch_size) const;

  private:
    // Lines of fewer ids are too short for the processor to look ahead itself, and so many lines before are fetched.
    static constexpr int short_line = 8, ahead = 8;

    void prefetch(const SlotBatch &slot, int line) const;
    void take_rows(const SlotBatch &slot, int lines);
    void pool_line(const SlotBatch &slot, int line, float *to);
    void square_line(const SlotBatch &slot, int line, float *to) const;
    void largest_of_line(const SlotBatch &slot, int line, float *to);
    float factor(const SlotBatch &slot, int line) const;
    const float *row(int id) const { return table_.weight + static_cast<std::int64_t>(id) * table_.width; }

    const Parameter &table_;
    const std::size_t slot_;
    const Pool pool_;
    const bool squared_;
    const int width_;
    std::vector<int> winners_;
};

}  // namespace dpmodule::hogwild
