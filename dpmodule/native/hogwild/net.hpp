// One worker's network: lookup and pooling of table rows, the gradients of these rows, and the network itself.
#pragma once

#include "layers.hpp"

namespace dpmodule::hogwild {

// One lookup in a table: the ids of a slot, and the rows of the result.
struct Lookup {
    std::size_t slot;
    Pool pool;
    bool squared;                     // rows are squared before pooling
    int first;                        // index of its first row among those of all lookups of the table
    int rows;                         // number of its rows for a full batch
    const std::vector<int> *winners;  // Pool::Max: index of the id of each maximum, -1 for none
};

// One worker's gradient of a table, with each distinct row of the batch once, for all lookups together.
//
// In a pooled lookup, the gradient of a row is the sum of the gradients of the lines that contain it. The lines of each
// row are found by a counting sort (with an index for every distinct row, in an array as long as the parameter), so
// that no array of size ids times width is written.
class TableGradient {
  public:
    explicit TableGradient(const Parameter &parameter);

    // Add a lookup, and reserve memory for the gradient of its result.
    void add(std::size_t slot, Pool pool, bool squared, int rows, const std::vector<int> *winners);
    void allocate();
    // Gradient of the result of the i-th lookup; valid after allocate().
    float *memory(std::size_t i) { return gradients_.data() + static_cast<std::size_t>(lookups_[i].first) * width_; }
    const Parameter &parameter() const { return parameter_; }

    bool is_finite(const Batch &batch) const;

    // Call update(row, gradient) for each distinct row of the batch.
    template <class Update>
    void for_each_row(const Batch &batch, Update update) {
        collect(batch);
        for (std::size_t i = 0; i < distinct_.size(); ++i) {
            const std::int64_t row = distinct_[i];
            update(row, sum(i, row));
            number_[static_cast<std::size_t>(row)] = -1;
        }
    }

    // Distinct rows of the batch, valid within for_each_row; for prefetching.
    const std::vector<int> &rows() const { return distinct_; }

  private:
    // The rows of `gradients_` whose sum is the gradient of each distinct row.
    struct Terms {
        std::vector<int> starts, rows;
    };

    void collect(const Batch &batch);
    void number_rows(const Batch &batch);
    void gather(const Batch &batch, bool squared, Terms &terms);
    void add_winners(const Batch &batch);
    const float *sum(std::size_t i, std::int64_t row);

    const Parameter &parameter_;
    const std::size_t width_;
    int rows_ = 0;
    bool has_squared_ = false, has_winners_ = false;
    std::vector<Lookup> lookups_;
    std::vector<float> gradients_, sum_, squares_, winners_;
    std::vector<int> number_;    // index among the distinct rows of each table row, or -1
    std::vector<int> distinct_;  // rows
    std::vector<int> numbers_;   // of all ids, by lookup
    Terms plain_, squared_;
};

// Looks up table rows for the ids of a slot, pooled over each line or concatenated.
class LookupLayer final : public Layer {
  public:
    LookupLayer(const Parameter &table, const LayerSpec &spec);

    void forward(BatchContext &context) override;
    // Only scales: the gradient is already in the memory of TableGradient.
    void backward(BatchContext &context) override;

    // Registers this lookup with the gradient of its table.
    void join(TableGradient &table, int batch_size) const;

  private:
    // Lines with fewer ids are too short for hardware prefetching; `ahead` lines are then prefetched.
    static constexpr int short_line = 8, ahead = 8;

    void prefetch_line(const SlotBatch &slot, int line) const;
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

// The network, with its own buffers over parameters shared by all workers.
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
