// Tables, rows of which are looked up and summed, and the gradients of these rows.
#pragma once

#include "layers.hpp"

namespace dpmodule::hogwild {

// One use of a table: the ids of a slot, and the rows of the result.
struct Lookup {
    std::size_t slot;
    Pool pool;
    bool squared;                     // rows are squared before they are pooled
    int first;                        // of its rows among those of all lookups of the table
    int rows;                         // of these, for a whole batch
    const std::vector<int> *winners;  // Pool::Max: for each number of the result which id it is from, -1 for none
};

// The gradient of a table for one worker: every row of the batch once, however often and by whatever lookups it was used.
//
// Of a pooled lookup, the gradient of each row is the sum of the gradients of the lines it stands in. They are collected
// line by line: which lines is found by counting (a number for every distinct row, kept in a table as long as the
// parameter), so that nothing of the size of all ids times the width is written.
class TableGradient {
  public:
    explicit TableGradient(const Parameter &parameter);

    // Add a lookup, and make room for the gradient of its result.
    void add(std::size_t slot, Pool pool, bool squared, int rows, const std::vector<int> *winners);
    void allocate();
    // The gradient of the result of the i-th lookup; after allocate().
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

    // Rows of the batch, after for_each_row began; for prefetching.
    const std::vector<int> &rows() const { return distinct_; }

  private:
    // Which rows of `gradients_` add up to the gradient of each distinct row.
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
    std::vector<int> number_;    // of each row of the table: which distinct one it is, -1
    std::vector<int> distinct_;  // rows
    std::vector<int> numbers_;   // of all ids, one lookup after the other
    Terms plain_, squared_;
};

// Rows of a table for the ids of a slot, summed over each line or one beside the other.
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
