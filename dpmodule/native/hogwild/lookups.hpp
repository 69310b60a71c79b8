// Tables, rows of which are looked up and summed, and the gradients of these rows.
#pragma once

#include "layer.hpp"

namespace dpmodule::hogwild {

// In the order of _POOLS in hogwild/native_plan.py; None: a row for each id.
enum class Pool : int { Sum, Mean, Sqrt, Max, First, Last, None };

// One use of a table: the ids of a slot, and the rows of the result.
struct Lookup {
    std::size_t slot;
    Pool pool;
    bool squared;  // rows are squared before they are pooled
    int first;     // of its rows among those of all lookups of the table
    const std::vector<int> *winners;  // Pool::Max: for each number of the result which id it is from
};

// The gradient of a table for one worker: every row of the batch once, however often and by whatever lookups it was used.
//
// Of a pooled lookup, the gradient of each row is the sum of the gradients of the lines it stands in. They are collected
// line by line: which lines is found by counting (a number for every distinct row, kept in a table as long as the
// parameter), so that nothing of the size of all ids times the width is written.
class TableGradient {
public:
    TableGradient(const Parameter &parameter, int batch_size);

    // Make room for the results of a lookup with `rows` rows; memory() is theirs afterwards.
    int add(std::size_t slot, Pool pool, bool squared, int rows, const std::vector<int> *winners);
    float *memory(int first) { return gradients_.data() + static_cast<std::size_t>(first) * width_; }
    void allocate() { gradients_.assign(static_cast<std::size_t>(rows_) * width_, 0.0f); }
    const Parameter &parameter() const { return parameter_; }

    bool is_finite(const Batch &batch) const;

    // Call update(row, gradient) for each distinct row of the batch.
    template <class Update>
    void for_each_row(const Batch &batch, Update update);

private:
    void collect(const Batch &batch);
    void number_rows(const Batch &batch);
    void sort_lines(const Batch &batch, bool squared, std::vector<int> &starts, std::vector<int> &lines);
    void add_winners(const Batch &batch);
    const float *sum(std::size_t distinct, std::int64_t row);

    const Parameter &parameter_;
    const std::size_t width_;
    int rows_ = 0;
    bool has_squared_ = false, has_plain_ = false, has_winners_ = false;
    std::vector<Lookup> lookups_;
    std::vector<float> gradients_, sum_, squares_, winners_;
    std::vector<int> number_;    // of each row of the table: which distinct one it is, -1
    std::vector<int> distinct_;  // rows
    std::vector<int> numbers_;   // of all ids, one lookup after the other
    std::vector<int> starts_, lines_, square_starts_, square_lines_;
};

}  // namespace dpmodule::hogwild
