#include "net.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/small.hpp"

namespace dpmodule::hogwild {
namespace {

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

}  // namespace

TableGradient::TableGradient(const Parameter &parameter)
    : parameter_(parameter), width_(static_cast<std::size_t>(parameter.width)), sum_(width_), squares_(width_),
      number_(static_cast<std::size_t>(parameter.rows), -1) {}

void TableGradient::add(std::size_t slot, Pool pool, bool squared, int rows, const std::vector<int> *winners) {
    lookups_.push_back({slot, pool, squared, rows_, rows, winners});
    rows_ += rows;
    has_squared_ |= squared;
    has_winners_ |= pool == Pool::Max;
}

void TableGradient::allocate() { gradients_.assign(static_cast<std::size_t>(rows_) * width_, 0.0f); }

bool TableGradient::is_finite(const Batch &batch) const {
    return std::all_of(lookups_.begin(), lookups_.end(), [&](const Lookup &lookup) {
        const int lines = lookup.pool == Pool::None ? batch.slots[lookup.slot].end(batch.lines - 1) : batch.lines;
        const float *at = gradients_.data() + static_cast<std::size_t>(lookup.first) * width_;
        return all_finite(at, static_cast<std::ptrdiff_t>(static_cast<std::size_t>(lines) * width_));
    });
}

void TableGradient::collect(const Batch &batch) {
    number_rows(batch);
    gather(batch, false, plain_);
    if (has_squared_) gather(batch, true, squared_);
    if (has_winners_) add_winners(batch);
}

void TableGradient::number_rows(const Batch &batch) {
    distinct_.clear();
    std::size_t total = 0;
    for (const Lookup &lookup : lookups_) total += batch.slots[lookup.slot].ids.size();
    numbers_.resize(total);
    int *out = numbers_.data();
    for (const Lookup &lookup : lookups_) {
        for (const int id : batch.slots[lookup.slot].ids) {
            int &number = number_[static_cast<std::size_t>(id)];
            if (number < 0) {
                number = static_cast<int>(distinct_.size());
                distinct_.push_back(id);
            }
            *out++ = number;
        }
    }
}

// Counting sort: count the terms of each row, compute their starts, then store each term.
void TableGradient::gather(const Batch &batch, bool squared, Terms &terms) {
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
void TableGradient::add_winners(const Batch &batch) {
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

const float *TableGradient::sum(std::size_t i, std::int64_t row) {
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

LookupLayer::LookupLayer(const Parameter &table, const LayerSpec &spec)
    : Layer(spec), table_(table), slot_(static_cast<std::size_t>(spec.step.ints[0])),
      pool_(spec.step.kind == StepKind::Pool ? static_cast<Pool>(spec.step.function) : Pool::None),
      squared_(pool_ != Pool::None && spec.step.ints[2] != 0), width_(static_cast<int>(table.width)) {
    if (pool_ == Pool::Max) {
        winners_.resize(static_cast<std::size_t>(spec.batch_size) * static_cast<std::size_t>(width_));
    }
}

void LookupLayer::join(TableGradient &table, int batch_size) const {
    table.add(slot_, pool_, squared_, batch_size * (output_.width / width_), &winners_);
}

void LookupLayer::forward(BatchContext &context) {
    const SlotBatch &slot = context.batch.slots[slot_];
    if (pool_ == Pool::None) return take_rows(slot, context.batch.lines);
    const bool are_short = slot.end(context.batch.lines - 1) < short_line * context.batch.lines;
    for (int line = 0; line < context.batch.lines; ++line) {
        if (are_short && line + ahead < context.batch.lines) prefetch_line(slot, line + ahead);
        pool_line(slot, line, output_.data + static_cast<std::ptrdiff_t>(line) * width_);
    }
}

void LookupLayer::prefetch_line(const SlotBatch &slot, int line) const {
    for (int i = slot.begin(line); i < slot.end(line); ++i)
        prefetch(row(slot.ids[static_cast<std::size_t>(i)]), width_);
}

void LookupLayer::take_rows(const SlotBatch &slot, int lines) {
    float *to = output_.data;
    for (int i = 0, end = slot.end(lines - 1); i < end; ++i, to += width_) {
        std::memcpy(to, row(slot.ids[static_cast<std::size_t>(i)]), sizeof(float) * static_cast<std::size_t>(width_));
        if (squared_) {
            for (int j = 0; j < width_; ++j) to[j] *= to[j];
        }
    }
}

void LookupLayer::pool_line(const SlotBatch &slot, int line, float *to) {
    const int begin = slot.begin(line), count = slot.end(line) - begin;
    if (count == 0) {
        std::fill(to, to + width_, 0.0f);
        if (pool_ == Pool::Max) std::fill_n(winners_.data() + static_cast<std::ptrdiff_t>(line) * width_, width_, -1);
        return;
    }
    if (pool_ == Pool::Max) return largest_of_line(slot, line, to);
    std::fill(to, to + width_, 0.0f);
    if (squared_) {
        square_line(slot, line, to);
    } else if (pool_ == Pool::First || pool_ == Pool::Last) {
        const int at = pool_ == Pool::First ? begin : begin + count - 1;
        std::memcpy(to, row(slot.ids[static_cast<std::size_t>(at)]), sizeof(float) * static_cast<std::size_t>(width_));
    } else {
        kernels_.sum_rows(count, width_, to, {table_.weight, width_}, slot.ids.data() + begin);
    }
    const float scale = factor(slot, line);
    if (scale != 1.0f) {
        for (int j = 0; j < width_; ++j) to[j] *= scale;
    }
}

void LookupLayer::square_line(const SlotBatch &slot, int line, float *to) const {
    const int first = pool_ == Pool::Last ? slot.end(line) - 1 : slot.begin(line);
    const int end = pool_ == Pool::First ? first + 1 : slot.end(line);
    for (int i = first; i < end; ++i) {
        const float *from = row(slot.ids[static_cast<std::size_t>(i)]);
        for (int j = 0; j < width_; ++j) to[j] += from[j] * from[j];
    }
}

void LookupLayer::largest_of_line(const SlotBatch &slot, int line, float *to) {
    int *winner = winners_.data() + static_cast<std::ptrdiff_t>(line) * width_;
    const int begin = slot.begin(line), end = slot.end(line);
    std::memcpy(to, row(slot.ids[static_cast<std::size_t>(begin)]), sizeof(float) * static_cast<std::size_t>(width_));
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

float LookupLayer::factor(const SlotBatch &slot, int line) const {
    const float count = static_cast<float>(std::max(slot.end(line) - slot.begin(line), 1));
    return pool_ == Pool::Mean ? 1.0f / count : pool_ == Pool::Sqrt ? 1.0f / std::sqrt(count) : 1.0f;
}

void LookupLayer::backward(BatchContext &context) {
    if (pool_ != Pool::Mean && pool_ != Pool::Sqrt) return;
    const SlotBatch &slot = context.batch.slots[slot_];
    for (int line = 0; line < context.batch.lines; ++line) {
        float *at = output_.gradient + static_cast<std::ptrdiff_t>(line) * width_;
        const float scale = factor(slot, line);
        for (int j = 0; j < width_; ++j) at[j] *= scale;
    }
}

}  // namespace dpmodule::hogwild
