#include "lookup_layer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dpmodule::hogwild {

LookupLayer::LookupLayer(const Parameter &table, const Wiring &wiring)
    : Layer(wiring), table_(table), slot_(static_cast<std::size_t>(wiring.step.ints[0])),
      pool_(wiring.step.kind == StepKind::Pool ? static_cast<Pool>(wiring.step.function) : Pool::None),
      squared_(pool_ != Pool::None && wiring.step.ints[2] != 0), width_(static_cast<int>(table.width)) {
    if (pool_ == Pool::Max) {
        winners_.resize(static_cast<std::size_t>(wiring.batch_size) * static_cast<std::size_t>(width_));
    }
}

void LookupLayer::join(TableGradient &table, int batch_size) const {
    table.add(slot_, pool_, squared_, batch_size * (output_.width / width_), &winners_);
}

void LookupLayer::forward(Frame &frame) {
    const SlotBatch &slot = frame.batch.slots[slot_];
    if (pool_ == Pool::None) return take_rows(slot, frame.batch.lines);
    const bool are_short = slot.end(frame.batch.lines - 1) < short_line * frame.batch.lines;
    for (int line = 0; line < frame.batch.lines; ++line) {
        if (are_short && line + ahead < frame.batch.lines) prefetch(slot, line + ahead);
        pool_line(slot, line, output_.data + static_cast<std::ptrdiff_t>(line) * width_);
    }
}

void LookupLayer::prefetch(const SlotBatch &slot, int line) const {
#if defined(__GNUC__)
    constexpr int step = 16;
    for (int i = slot.begin(line); i < slot.end(line); ++i) {
        const float *at = row(slot.ids[static_cast<std::size_t>(i)]);
        for (int j = 0; j < width_; j += step) __builtin_prefetch(at + j);
    }
#else
    (void)slot, (void)line;
#endif
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

void LookupLayer::backward(Frame &frame) {
    if (pool_ != Pool::Mean && pool_ != Pool::Sqrt) return;
    const SlotBatch &slot = frame.batch.slots[slot_];
    for (int line = 0; line < frame.batch.lines; ++line) {
        float *at = output_.gradient + static_cast<std::ptrdiff_t>(line) * width_;
        const float scale = factor(slot, line);
        for (int j = 0; j < width_; ++j) at[j] *= scale;
    }
}

}  // namespace dpmodule::hogwild
