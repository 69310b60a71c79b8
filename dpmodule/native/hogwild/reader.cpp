#include "reader.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace dpmodule::hogwild {

std::uint64_t line_number(const Part &part, std::uint64_t line) {
    if (part.begin <= 0) return line + 1;
    const std::uint64_t before = count_lines(part.path, part.begin);
    const std::uint64_t until = count_lines(part.path, part.begin - 1);
    return before + line + 1 +
           (before == until ? 1 : 0);  // a line that continues into the part belongs to the previous one
}

BatchReader::BatchReader(const Plan &plan, PartQueue &queue, bool skip_bad_lines, ReaderProgress &progress)
    : plan_(plan), queue_(queue), skip_bad_lines_(skip_bad_lines), progress_(progress) {
    for (const SlotInput &input : plan.slots) slots_.push_back(input.slot);
}

bool BatchReader::next(Batch &batch) {
    begin_batch(batch);
    while (batch.lines < plan_.batch_size) {
        if (chunks_.empty()) {
            if (!read_block()) break;
            continue;
        }
        Chunk &chunk = chunks_.front();
        const int lines = std::min(plan_.batch_size - batch.lines, chunk.lines - chunk.given);
        append(batch, chunk, lines);
        if (chunk.given == chunk.lines) chunks_.pop_front();
    }
    return batch.lines > 0;
}

void BatchReader::begin_batch(Batch &batch) const {
    batch.lines = 0;
    batch.ends.clear();
    batch.slots.resize(slots_.size());
    for (SlotBatch &slot : batch.slots) {
        slot.ids.clear();
        slot.numbers.clear();
        slot.offsets.assign(1, 0);
    }
}

// Returns false if there is no part left.
bool BatchReader::read_block() {
    for (;;) {
        if (!part_) {
            part_ = queue_.take();
            if (!part_) return false;
            progress_.part.store(static_cast<std::size_t>(part_ - queue_.parts.data()) + 1, std::memory_order_relaxed);
            blocks_ = std::make_unique<TextBlocks>(*part_);
            lines_before_ = 0;
        }
        std::size_t passed = 0;
        bool more;
        {
            ScopedTimer watch(progress_.reading);
            more = blocks_->next();
            if (more) passed = pass_over(blocks_->data(), blocks_->length());
        }
        if (!more) {
            part_ = nullptr;
        } else if (passed < blocks_->length()) {
            ScopedTimer watch(progress_.parsing);
            parse_block(blocks_->data() + passed, blocks_->length() - passed);
            return true;
        }
    }
}

// Number of bytes in a block of lines that were already trained on.
std::size_t BatchReader::pass_over(const char *text, std::size_t size) {
    std::size_t at = 0;
    for (; lines_before_ < part_->skip && at < size; ++lines_before_) {
        const void *found = std::memchr(text + at, '\n', size - at);
        at = found ? static_cast<std::size_t>(static_cast<const char *>(found) - text) + 1 : size;
    }
    return at;
}

void BatchReader::parse_block(const char *text, std::size_t size) {
    MultiSlotParser parser(slots_, part_->path, lines_before_ + 1, {true, skip_bad_lines_});
    try {
        parser.parse(text, size, true);
    } catch (const Error &) {
        if (part_->begin <= 0) throw;
        // again, for the line numbers in the file
        MultiSlotParser(slots_, part_->path, line_number(*part_, lines_before_), {true, skip_bad_lines_})
            .parse(text, size, true);
        throw;
    }
    progress_.skipped.fetch_add(parser.bad_lines(), std::memory_order_relaxed);
    const std::uint64_t first_line = lines_before_;
    lines_before_ += parser.lines() + parser.passed().size();
    if (parser.lines() == 0) return;
    chunks_.push_back(Chunk{std::move(parser.columns()), std::move(parser.passed()), first_line, part_,
                            static_cast<int>(parser.lines())});
}

// The index in its part, from 0, of a chunk's line.
std::uint64_t BatchReader::Chunk::line(int row) const {
    const std::int64_t *const end = passed.data() + passed.size();
    const auto skipped = std::upper_bound(passed.data(), end, static_cast<std::int64_t>(row)) - passed.data();
    return first_line + static_cast<std::uint64_t>(row) + static_cast<std::uint64_t>(skipped);
}

void BatchReader::append(Batch &batch, Chunk &chunk, int lines) const {
    if (batch.lines == 0) {
        batch.part = chunk.part;
        batch.first_line = chunk.line(chunk.given);
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].is_used) append_slot(batch.slots[i], i, chunk, lines);
    }
    chunk.given += lines;
    batch.lines += lines;
    if (batch.ends.empty() || batch.ends.back().part != chunk.part) batch.ends.push_back({chunk.part, 0});
    batch.ends.back().lines = chunk.line(chunk.given - 1) + 1;
}

void BatchReader::append_slot(SlotBatch &to, std::size_t slot, Chunk &chunk, int lines) const {
    const SlotInput &input = plan_.slots[slot];
    const Column &column = chunk.columns[slot];
    const std::int64_t begin = column.offsets[static_cast<std::size_t>(chunk.given)];
    const std::int64_t end = column.offsets[static_cast<std::size_t>(chunk.given + lines)];
    if (end - begin > std::numeric_limits<int>::max() - to.offsets.back()) {
        throw Error(Kind::bounds, chunk.part->path + ": slot '" + input.slot.name +
                                      "' has more than 2147483647 values in one batch; make the batches smaller");
    }
    if (input.as_ids) {
        const std::size_t before = to.ids.size(), count = static_cast<std::size_t>(end - begin);
        to.ids.resize(before + count);
        const std::int64_t *from = column.integers.data() + begin;
        int *out = to.ids.data() + before;
        std::uint64_t largest = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t id = static_cast<std::uint64_t>(from[i]);
            largest = id > largest ? id : largest;
            out[i] = static_cast<int>(id);
        }
        if (largest >= input.rows) {
            for (std::int64_t i = begin;; ++i) {
                if (static_cast<std::uint64_t>(column.integers[static_cast<std::size_t>(i)]) >= input.rows)
                    fail_id(slot, chunk, i);
            }
        }
    }
    if (input.as_numbers) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::size_t at = static_cast<std::size_t>(i);
            to.numbers.push_back(input.slot.is_float
                                     ? column.floats[at]
                                     : static_cast<float>(static_cast<std::uint64_t>(column.integers[at])));
        }
    }
    const int shift = to.offsets.back() - static_cast<int>(begin);
    for (int i = 1; i <= lines; ++i)
        to.offsets.push_back(static_cast<int>(column.offsets[static_cast<std::size_t>(chunk.given + i)]) + shift);
}

void BatchReader::fail_id(std::size_t slot, const Chunk &chunk, std::int64_t value_at) const {
    const SlotInput &input = plan_.slots[slot];
    const Column &column = chunk.columns[slot];
    std::size_t row = 0;
    while (column.offsets[row + 1] <= value_at) ++row;
    throw Error(Kind::bounds,
                chunk.part->path + ": line " +
                    std::to_string(line_number(*chunk.part, chunk.line(static_cast<int>(row)))) + ", slot '" +
                    input.slot.name + "': found id " +
                    std::to_string(static_cast<std::uint64_t>(column.integers[static_cast<std::size_t>(value_at)])) +
                    ", expected 0 to " + std::to_string(input.rows - 1) + ", a row of the table '" + input.table + "'");
}

}  // namespace dpmodule::hogwild
