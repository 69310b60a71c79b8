// One worker's network: lookup and pooling of table rows, the gradients of these rows, and the network itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "kernels/small.hpp"
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

inline bool starts_gradients(StepKind kind) {
    return kind == StepKind::SoftmaxOutput || kind == StepKind::Logistic || kind == StepKind::Linear ||
           kind == StepKind::MakeLoss;
}

// Number of a step's inputs that receive gradients; labels and similar inputs follow them.
inline std::size_t differentiable(const Step &step) {
    switch (step.kind) {
        case StepKind::Argmax: return 0;
        case StepKind::Unary: return step.function == static_cast<int>(vector::Unary::Stop) ? 0 : 1;
        case StepKind::Binary: return step.function == static_cast<int>(vector::Binary::Equal) ? 0 : 2;
        case StepKind::Pick:
        case StepKind::CrossEntropy:
        case StepKind::SoftmaxOutput:
        case StepKind::Logistic:
        case StepKind::Linear: return 1;
        default: return step.in.size();
    }
}

inline bool is_lookup(StepKind kind) { return kind == StepKind::Pool || kind == StepKind::Lookup; }

// Call term(index of the id in the slot, row of the lookup's gradient) for each id that contributes.
template <class Function>
void for_each_term(const Lookup &lookup, const Batch &batch, Function term) {
    const SlotBatch &slot = batch.slots[lookup.slot];
    for (int line = 0; line < batch.lines; ++line) {
        const int begin = slot.begin(line), end = slot.end(line);
        switch (lookup.pool) {
            case Pool::First:
                if (begin < end) term(begin, line);
                break;
            case Pool::Last:
                if (begin < end) term(end - 1, line);
                break;
            case Pool::Max: break;
            case Pool::None:
                for (int i = begin; i < end; ++i) term(i, i);
                break;
            default:
                for (int i = begin; i < end; ++i) term(i, line);
        }
    }
}

// One worker's gradient of a table, with each distinct row of the batch once, for all lookups together.
//
// In a pooled lookup, the gradient of a row is the sum of the gradients of the lines that contain it. The lines of each
// row are found by a counting sort (with an index for every distinct row, in an array as long as the parameter), so
// that no array of size ids times width is written.
class TableGradient {
  public:
    explicit TableGradient(const Parameter &parameter)
        : parameter_(parameter), width_(static_cast<std::size_t>(parameter.width)), sum_(width_), squares_(width_),
          number_(static_cast<int *>(std::calloc(static_cast<std::size_t>(parameter.rows), sizeof(int))), std::free) {
        if (!number_) throw std::bad_alloc();
    }

    // Add a lookup, and reserve memory for the gradient of its result.
    void add(std::size_t slot, Pool pool, bool squared, int rows, const std::vector<int> *winners) {
        lookups_.push_back({slot, pool, squared, rows_, rows, winners});
        rows_ += rows;
        has_squared_ |= squared;
        has_winners_ |= pool == Pool::Max;
    }
    void allocate() { gradients_.assign(static_cast<std::size_t>(rows_) * width_, 0.0f); }
    // Gradient of the result of the i-th lookup; valid after allocate().
    float *memory(std::size_t i) { return gradients_.data() + static_cast<std::size_t>(lookups_[i].first) * width_; }
    const Parameter &parameter() const { return parameter_; }

    bool is_finite(const Batch &batch) const {
        return std::all_of(lookups_.begin(), lookups_.end(), [&](const Lookup &lookup) {
            const int lines = lookup.pool == Pool::None ? batch.slots[lookup.slot].end(batch.lines - 1) : batch.lines;
            const float *at = gradients_.data() + static_cast<std::size_t>(lookup.first) * width_;
            return all_finite(at, static_cast<std::ptrdiff_t>(static_cast<std::size_t>(lines) * width_));
        });
    }

    // Call update(row, gradient) for each distinct row of the batch.
    template <class Update>
    void for_each_row(const Batch &batch, Update update) {
        collect(batch);
        for (std::size_t i = 0; i < distinct_.size(); ++i) {
            const std::int64_t row = distinct_[i];
            update(row, sum(i, row));
            number_.get()[row] = 0;
        }
    }

    // Distinct rows of the batch, valid within for_each_row; for prefetching.
    const std::vector<int> &rows() const { return distinct_; }

  private:
    // The rows of `gradients_` whose sum is the gradient of each distinct row.
    struct Terms {
        std::vector<int> starts, rows;
    };

    void collect(const Batch &batch) {
        number_rows(batch);
        gather(batch, false, plain_);
        if (has_squared_) gather(batch, true, squared_);
        if (has_winners_) add_winners(batch);
    }
    void number_rows(const Batch &batch) {
        distinct_.clear();
        std::size_t total = 0;
        for (const Lookup &lookup : lookups_) total += batch.slots[lookup.slot].ids.size();
        numbers_.resize(total);
        int *out = numbers_.data();
        for (const Lookup &lookup : lookups_) {
            for (const int id : batch.slots[lookup.slot].ids) {
                int &number = number_.get()[id];
                if (number == 0) {
                    distinct_.push_back(id);
                    number = static_cast<int>(distinct_.size());
                }
                *out++ = number - 1;
            }
        }
    }
    // Counting sort: count the terms of each row, compute their starts, then store each term.
    void gather(const Batch &batch, bool squared, Terms &terms) {
        terms.starts.assign(distinct_.size() + 2, 0);
        int *const starts = terms.starts.data() + 2;
        const auto walk = [&](auto term) {
            const int *numbers = numbers_.data();
            for (const Lookup &lookup : lookups_) {
                if (lookup.squared == squared) {
                    for_each_term(lookup, batch, [&](int id, int row) { term(numbers[id], lookup.first + row); });
                }
                numbers += batch.slots[lookup.slot].ids.size();
            }
        };
        walk([&](int number, int) { ++starts[number]; });
        for (std::size_t i = 0; i < distinct_.size(); ++i) starts[i] += starts[static_cast<std::ptrdiff_t>(i) - 1];
        terms.rows.resize(static_cast<std::size_t>(starts[static_cast<std::ptrdiff_t>(distinct_.size()) - 1]));
        int *const places = terms.starts.data() + 1, *const rows = terms.rows.data();
        walk([&](int number, int row) { rows[places[number]++] = row; });
    }
    // The maximum of each column of a line comes from one id.
    void add_winners(const Batch &batch) {
        winners_.assign(distinct_.size() * width_, 0.0f);
        const int *numbers = numbers_.data();
        for (const Lookup &lookup : lookups_) {
            if (lookup.pool == Pool::Max) {
                const float *gradient = gradients_.data() + static_cast<std::size_t>(lookup.first) * width_;
                const std::size_t count = static_cast<std::size_t>(batch.lines) * width_;
                for (std::size_t i = 0; i < count; ++i) {
                    const int winner = (*lookup.winners)[i];
                    if (winner < 0) continue;  // the line has no values
                    const std::size_t number = static_cast<std::size_t>(numbers[winner]);
                    winners_[number * width_ + i % width_] += gradient[i];
                }
            }
            numbers += batch.slots[lookup.slot].ids.size();
        }
    }
    const float *sum(std::size_t i, std::int64_t row) {
        const vector::Kernels &kernels = vector::kernels();
        const int width = static_cast<int>(width_);
        const vector::Block gradients{gradients_.data(), width};
        const int begin = plain_.starts[i], count = plain_.starts[i + 1] - begin;
        if (count == 1 && !has_squared_ && !has_winners_) {
            return gradients_.data() + static_cast<std::size_t>(plain_.rows[static_cast<std::size_t>(begin)]) * width_;
        }
        std::fill(sum_.begin(), sum_.end(), 0.0f);
        kernels.sum_rows(count, width, sum_.data(), gradients, plain_.rows.data() + begin);
        if (has_squared_) {
            const int first = squared_.starts[i], terms = squared_.starts[i + 1] - first;
            std::fill(squares_.begin(), squares_.end(), 0.0f);
            kernels.sum_rows(terms, width, squares_.data(), gradients, squared_.rows.data() + first);
            const float *weight = parameter_.weight + row * parameter_.width;
            for (std::size_t j = 0; j < width_; ++j) sum_[j] += 2.0f * weight[j] * squares_[j];
        }
        if (has_winners_) kernels.accumulate(width, sum_.data(), winners_.data() + i * width_);
        return sum_.data();
    }

    const Parameter &parameter_;
    const std::size_t width_;
    int rows_ = 0;
    bool has_squared_ = false, has_winners_ = false;
    std::vector<Lookup> lookups_;
    std::vector<float> gradients_, sum_, squares_, winners_;
    std::unique_ptr<int, void (*)(void *)> number_;  // of each table row: index among the distinct rows from 1, or 0
    std::vector<int> distinct_;                      // rows
    std::vector<int> numbers_;                       // of all ids, by lookup
    Terms plain_, squared_;
};

// Looks up table rows for the ids of a slot, pooled over each line or concatenated.
class LookupLayer final : public Layer {
  public:
    LookupLayer(const Parameter &table, const LayerSpec &spec)
        : Layer(spec), table_(table), slot_(static_cast<std::size_t>(spec.step.ints[0])),
          pool_(spec.step.kind == StepKind::Pool ? static_cast<Pool>(spec.step.function) : Pool::None),
          squared_(pool_ != Pool::None && spec.step.ints[2] != 0), width_(static_cast<int>(table.width)) {
        if (pool_ == Pool::Max) {
            winners_.resize(static_cast<std::size_t>(spec.batch_size) * static_cast<std::size_t>(width_));
        }
    }

    void forward(BatchContext &context) override {
        const SlotBatch &slot = context.batch.slots[slot_];
        if (pool_ == Pool::None) return take_rows(slot, context.batch.lines);
        const bool are_short = slot.end(context.batch.lines - 1) < short_line * context.batch.lines;
        for (int line = 0; line < context.batch.lines; ++line) {
            if (are_short && line + ahead < context.batch.lines) prefetch_line(slot, line + ahead);
            pool_line(slot, line, output_.data + static_cast<std::ptrdiff_t>(line) * width_);
        }
    }
    // Only scales: the gradient is already in the memory of TableGradient.
    void backward(BatchContext &context) override {
        if (pool_ != Pool::Mean && pool_ != Pool::Sqrt) return;
        const SlotBatch &slot = context.batch.slots[slot_];
        for (int line = 0; line < context.batch.lines; ++line) {
            float *at = output_.gradient + static_cast<std::ptrdiff_t>(line) * width_;
            const float scale = factor(slot, line);
            for (int j = 0; j < width_; ++j) at[j] *= scale;
        }
    }

    // Registers this lookup with the gradient of its table.
    void join(TableGradient &table, int batch_size) const {
        table.add(slot_, pool_, squared_, batch_size * (output_.width / width_), &winners_);
    }

  private:
    // Lines with fewer ids are too short for hardware prefetching; `ahead` lines are then prefetched.
    static constexpr int short_line = 8, ahead = 8;

    void prefetch_line(const SlotBatch &slot, int line) const {
        for (int i = slot.begin(line); i < slot.end(line); ++i)
            prefetch(row(slot.ids[static_cast<std::size_t>(i)]), width_);
    }
    void take_rows(const SlotBatch &slot, int lines) {
        float *to = output_.data;
        for (int i = 0, end = slot.end(lines - 1); i < end; ++i, to += width_) {
            std::memcpy(to, row(slot.ids[static_cast<std::size_t>(i)]),
                        sizeof(float) * static_cast<std::size_t>(width_));
            if (squared_) {
                for (int j = 0; j < width_; ++j) to[j] *= to[j];
            }
        }
    }
    void pool_line(const SlotBatch &slot, int line, float *to) {
        const int begin = slot.begin(line), count = slot.end(line) - begin;
        if (count == 0) {
            std::fill(to, to + width_, 0.0f);
            if (pool_ == Pool::Max)
                std::fill_n(winners_.data() + static_cast<std::ptrdiff_t>(line) * width_, width_, -1);
            return;
        }
        if (pool_ == Pool::Max) return largest_of_line(slot, line, to);
        std::fill(to, to + width_, 0.0f);
        if (squared_) {
            square_line(slot, line, to);
        } else if (pool_ == Pool::First || pool_ == Pool::Last) {
            const int at = pool_ == Pool::First ? begin : begin + count - 1;
            std::memcpy(to, row(slot.ids[static_cast<std::size_t>(at)]),
                        sizeof(float) * static_cast<std::size_t>(width_));
        } else {
            kernels_.sum_rows(count, width_, to, {table_.weight, width_}, slot.ids.data() + begin);
        }
        const float scale = factor(slot, line);
        if (scale != 1.0f) {
            for (int j = 0; j < width_; ++j) to[j] *= scale;
        }
    }
    void square_line(const SlotBatch &slot, int line, float *to) const {
        const int first = pool_ == Pool::Last ? slot.end(line) - 1 : slot.begin(line);
        const int end = pool_ == Pool::First ? first + 1 : slot.end(line);
        for (int i = first; i < end; ++i) {
            const float *from = row(slot.ids[static_cast<std::size_t>(i)]);
            for (int j = 0; j < width_; ++j) to[j] += from[j] * from[j];
        }
    }
    void largest_of_line(const SlotBatch &slot, int line, float *to) {
        int *winner = winners_.data() + static_cast<std::ptrdiff_t>(line) * width_;
        const int begin = slot.begin(line), end = slot.end(line);
        std::memcpy(to, row(slot.ids[static_cast<std::size_t>(begin)]),
                    sizeof(float) * static_cast<std::size_t>(width_));
        std::fill(winner, winner + width_, begin);
        for (int i = begin + 1; i < end; ++i) {
            const float *from = row(slot.ids[static_cast<std::size_t>(i)]);
            for (int j = 0; j < width_; ++j) {
                if (!(from[j] > to[j])) continue;
                to[j] = from[j];
                winner[j] = i;
            }
        }
    }
    float factor(const SlotBatch &slot, int line) const {
        const float count = static_cast<float>(std::max(slot.end(line) - slot.begin(line), 1));
        return pool_ == Pool::Mean ? 1.0f / count : pool_ == Pool::Sqrt ? 1.0f / std::sqrt(count) : 1.0f;
    }
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
    explicit Net(const Plan &plan)
        : plan_(plan), values_(plan.values.size()), learns_(values_.size()), reached_(values_.size()),
          tables_(plan.parameters.size()), dense_(plan.parameters.size()) {
        for (std::size_t i = 0; i < values_.size(); ++i) {
            values_[i].width = plan.values[i].width;
            values_[i].single = plan.values[i].single;
        }
        find_learning();
        // From the losses down: the first layer with a value's gradient writes it, and others add to it.
        std::vector<LayerSpec> wirings;
        for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) wirings.push_back(make_spec(*step));
        allocate();
        for (auto spec = wirings.rbegin(); spec != wirings.rend(); ++spec) {
            layers_.push_back(make(*spec));
            if (spec->reached) backward_order_.push_back(layers_.back().get());
        }
        std::reverse(backward_order_.begin(), backward_order_.end());
        for (auto &table : tables_) {
            if (table) table->allocate();
        }
        std::vector<std::size_t> given(tables_.size(), 0);
        for (const Step &step : plan.steps) {
            const auto out = static_cast<std::size_t>(step.out);
            if (!is_lookup(step.kind) || !reached_[out]) continue;
            const auto parameter = static_cast<std::size_t>(step.ints[1]);
            values_[out].gradient = tables_[parameter]->memory(given[parameter]++);
        }
    }

    void forward(BatchContext &context) {
        for (const LayerPointer &layer : layers_) layer->forward(context);
    }
    void backward(BatchContext &context) {
        for (Layer *layer : backward_order_) layer->backward(context);
    }

    // Return true if the heads, or the gradients from backward(), are finite.
    bool outputs_are_finite(const Batch &batch) const {
        return std::all_of(plan_.outputs.begin(), plan_.outputs.end(),
                           [&](int i) { return all_finite(value(i).data, value(i).count(batch)); });
    }
    bool gradients_are_finite(const Batch &batch) const {
        for (std::size_t i = 0; i < tables_.size(); ++i) {
            if (tables_[i] && !tables_[i]->is_finite(batch)) return false;
            if (!dense_[i] || !dense_[i]->used) continue;
            if (!all_finite(dense_[i]->values.data(), static_cast<std::ptrdiff_t>(dense_[i]->values.size())))
                return false;
        }
        return true;
    }

    // Update the parameters; `rate` is the learning rate without multipliers, `count` the number of this update.
    void update(const Batch &batch, double rate, std::uint64_t count) {
        using Kind = vector::UpdateRule::Kind;
        for (std::size_t i = 0; i < plan_.parameters.size(); ++i) {
            const Parameter &parameter = plan_.parameters[i];
            if (!parameter.learns) continue;
            vector::UpdateRule rule = parameter.rule;
            rule.lr = rate * parameter.lr_mult;
            if (rule.kind == Kind::Adam || rule.kind == Kind::AmsGrad) {
                const double t = static_cast<double>(count);
                rule.lr *= std::sqrt(1 - std::pow(rule.beta2, t)) / (1 - std::pow(rule.beta1, t));
            }
            if (tables_[i]) update_table(*tables_[i], batch, rule);
            if (!dense_[i] || !dense_[i]->used) continue;
            vector::update(rule, parameter.weight, parameter.states, dense_[i]->values.data(),
                           dense_[i]->values.size());
        }
    }

    const Value &value(int i) const { return values_[static_cast<std::size_t>(i)]; }

  private:
    void find_learning() {
        for (const Step &step : plan_.steps) {
            bool learns = is_lookup(step.kind) || step.kind == StepKind::FullyConnected;
            for (std::size_t i = 0; i < differentiable(step); ++i)
                learns |= learns_[static_cast<std::size_t>(step.in[i])] != 0;
            learns_[static_cast<std::size_t>(step.out)] = learns;
        }
    }
    LayerSpec make_spec(const Step &step) {
        LayerSpec spec{step, values_[static_cast<std::size_t>(step.out)], plan_.batch_size, {}, {}, {}};
        spec.reached = starts_gradients(step.kind) || reached_[static_cast<std::size_t>(step.out)];
        for (std::size_t i = 0; i < step.in.size(); ++i) {
            const auto from = static_cast<std::size_t>(step.in[i]);
            Input input{&values_[from]};
            if (spec.reached && i < differentiable(step) && learns_[from]) {
                input.wanted = true;
                input.add = reached_[from] != 0;
                reached_[from] = true;
            }
            spec.inputs.push_back(input);
        }
        if (step.kind != StepKind::FullyConnected) return spec;
        for (int i = 0; i < 2; ++i) {
            DenseInput &to = i ? spec.bias : spec.weight;
            to.gradient = dense(step.ints[static_cast<std::size_t>(i)]);
            if (!to.gradient || !spec.reached) continue;
            to.add = to.gradient->used;
            to.gradient->used = true;
        }
        return spec;
    }
    void allocate() {
        std::vector<char> is_looked_up(values_.size());
        for (const Step &step : plan_.steps) is_looked_up[static_cast<std::size_t>(step.out)] = is_lookup(step.kind);
        for (std::size_t i = 0; i < values_.size(); ++i) {
            Value &value = values_[i];
            const std::size_t rows = value.single ? 1 : static_cast<std::size_t>(plan_.batch_size);
            const std::size_t count = rows * static_cast<std::size_t>(value.width);
            memory_.emplace_back(count);
            value.data = memory_.back().data();
            if (!reached_[i] || is_looked_up[i]) continue;
            memory_.emplace_back(count);
            value.gradient = memory_.back().data();
        }
    }
    LayerPointer make(const LayerSpec &spec) {
        if (is_lookup(spec.step.kind)) {
            const auto parameter = static_cast<std::size_t>(spec.step.ints[1]);
            auto made = std::make_unique<LookupLayer>(plan_.parameters[parameter], spec);
            if (spec.reached) made->join(table(parameter), plan_.batch_size);
            return made;
        }
        return make_layer(spec);
    }
    TableGradient &table(std::size_t parameter) {
        auto &found = tables_[parameter];
        if (!found) found = std::make_unique<TableGradient>(plan_.parameters[parameter]);
        return *found;
    }
    DenseGradient *dense(int parameter) {
        if (parameter < 0) return nullptr;
        auto &found = dense_[static_cast<std::size_t>(parameter)];
        if (!found) found = std::make_unique<DenseGradient>(plan_.parameters[static_cast<std::size_t>(parameter)]);
        return found.get();
    }
    void update_table(TableGradient &table, const Batch &batch, const vector::UpdateRule &rule) {
        const Parameter &parameter = table.parameter();
        const auto width = static_cast<std::size_t>(parameter.width);
        const int states = vector::state_count(rule.kind);
        const auto update = [&](std::int64_t row, const float *gradient) {
            float *here[vector::UpdateRule::max_states];
            for (int i = 0; i < states; ++i) here[i] = parameter.states[i] + row * parameter.width;
            vector::update(rule, parameter.weight + row * parameter.width, here, gradient, width);
        };
        const std::size_t ahead = width < 64 ? 16 : 3;
        std::size_t done = 0;
        table.for_each_row(batch, [&](std::int64_t row, const float *gradient) {
            const std::vector<int> &rows = table.rows();
            if (++done + ahead < rows.size()) {
                const std::int64_t next = rows[done + ahead] * parameter.width;
                prefetch(parameter.weight + next, parameter.width);
                for (int i = 0; i < states; ++i) prefetch(parameter.states[i] + next, parameter.width);
            }
            update(row, gradient);
        });
        if (!parameter.all_rows) return;
        std::vector<char> is_done(static_cast<std::size_t>(parameter.rows));
        for (const int row : table.rows()) is_done[static_cast<std::size_t>(row)] = true;
        const std::vector<float> zeros(width);
        for (std::int64_t row = 0; row < parameter.rows; ++row) {
            if (!is_done[static_cast<std::size_t>(row)]) update(row, zeros.data());
        }
    }

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
