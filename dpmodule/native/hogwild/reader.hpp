// Reading the parts of files that a worker takes: their text in blocks, and batches.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <system_error>

#include "functors/zlib.hpp"
#include "gate.hpp"
#include "plan.hpp"

namespace dpmodule::hogwild {

// Sequential bytes of a plain or decompressed file.
class ByteSource {
  public:
    virtual ~ByteSource() = default;

    // Read up to `size` bytes; 0 only at the end. Throws Error, std::system_error.
    virtual std::size_t read(char *to, std::size_t size) = 0;
};

[[noreturn]] inline void fail_reading(const std::string &path) {
    throw std::system_error(errno ? errno : EIO, std::generic_category(), "cannot read " + path);
}

class PlainBytes final : public ByteSource {
  public:
    PlainBytes(const std::string &path, std::int64_t begin)
        : path_(path), file_(std::fopen(path.c_str(), "rb"), std::fclose) {
        if (!file_) fail_reading(path_);
        std::setvbuf(file_.get(), nullptr, _IONBF, 0);
        if (begin > 0 && std::fseek(file_.get(), static_cast<long>(begin), SEEK_SET) != 0) fail_reading(path_);
    }

    std::size_t read(char *to, std::size_t size) override {
        errno = 0;
        const std::size_t found = std::fread(to, 1, size, file_.get());
        if (found == 0 && std::ferror(file_.get())) fail_reading(path_);
        return found;
    }

  private:
    const std::string path_;
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file_;
};

// Concatenated gzip members.
class GzipBytes final : public ByteSource {
  public:
    explicit GzipBytes(const std::string &path) : path_(path), bytes_(path, 0), library_(*zlib()), input_(1 << 16) {}
    ~GzipBytes() override { close(); }

    std::size_t read(char *to, std::size_t size) override {
        stream_.next_out = reinterpret_cast<unsigned char *>(to);
        stream_.avail_out = static_cast<unsigned>(size);
        while (stream_.avail_out == size) {
            if (stream_.avail_in == 0 && !refill()) break;
            if (!open_ && *stream_.next_in == 0) {  // padding of tapes and block devices
                ++stream_.next_in;
                --stream_.avail_in;
                continue;
            }
            if (!open_) start();
            const int code = library_.inflate(&stream_, z_no_flush);
            if (code == z_memory_error) throw std::bad_alloc();
            if (code == z_stream_end) close();
            else if (code != z_ok && code != z_buffer_error) fail(stream_.message ? stream_.message : "damaged");
        }
        return size - stream_.avail_out;
    }

  private:
    bool refill() {
        const std::size_t found = bytes_.read(reinterpret_cast<char *>(input_.data()), input_.size());
        stream_.next_in = input_.data();
        stream_.avail_in = static_cast<unsigned>(found);
        if (found == 0 && open_) fail("truncated: the data continue");
        return found > 0;
    }

    void start() {
        constexpr int gzip_window = 31;
        if (library_.inflate_init(&stream_, gzip_window, library_.version(), sizeof(ZStream)) != z_ok)
            throw std::bad_alloc();
        open_ = true;
    }

    void close() {
        if (open_) library_.inflate_end(&stream_);
        open_ = false;
    }

    [[noreturn]] void fail(const char *text) {
        throw Error(Kind::file_format, path_ + ": not a complete gzip file: " + text);
    }

    const std::string path_;
    PlainBytes bytes_;
    const Zlib &library_;
    std::vector<unsigned char> input_;
    ZStream stream_;
    bool open_ = false;
};

inline bool is_compressed(const std::string &path) {
    return path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0;
}

// Open a file's bytes from `begin`, decompressed if its name ends with ".gz" (then `begin` is 0).
inline std::unique_ptr<ByteSource> open_bytes(const std::string &path, std::int64_t begin) {
    if (is_compressed(path)) return std::make_unique<GzipBytes>(path);
    return std::make_unique<PlainBytes>(path, begin);
}

// Blocks of whole lines of a part; an incomplete line is kept for the next block.
class TextBlocks {
  public:
    static constexpr std::size_t size = std::size_t{1} << 19;

    explicit TextBlocks(const Part &part)
        : source_(open_bytes(part.path, part.begin > 0 ? part.begin - 1 : 0)), end_(part.end),
          position_(part.begin > 0 ? part.begin - 1 : 0), text_(size) {
        if (end_ >= 0 && end_ <= part.begin) at_end_ = true;  // no line begins there
        else if (part.begin > 0) skip_first_line();
    }

    // Read the next block; return false at the end. Every block except possibly the last ends with a complete line.
    bool next() {
        if (begin_ > 0 || stop_ > 0) {
            std::memmove(text_.data(), text_.data() + stop_, filled_ - stop_);
            filled_ -= stop_;
            begin_ = stop_ = 0;
        }
        for (;;) {
            if (!at_end_) {
                at_end_ = !fill();
                cut();
            }
            stop_ = filled_;
            if (at_end_) return filled_ > 0;
            while (stop_ > 0 && text_[stop_ - 1] != '\n') --stop_;
            if (stop_ > 0) return true;
        }
    }

    const char *data() const noexcept { return text_.data() + begin_; }
    std::size_t length() const noexcept { return stop_ - begin_; }

  private:
    // A line that continues into a part belongs to the previous part.
    void skip_first_line() {
        while (fill()) {
            const void *found = std::memchr(text_.data(), '\n', filled_);
            if (found) {
                begin_ = stop_ = static_cast<std::size_t>(static_cast<const char *>(found) - text_.data()) + 1;
                const std::int64_t line = position_ - static_cast<std::int64_t>(filled_ - begin_);
                if (end_ < 0 || line < end_) return;
                break;
            }
            filled_ = 0;
        }
        filled_ = begin_ = stop_ = 0;
        at_end_ = true;
    }
    bool fill() {
        if (filled_ == text_.size()) text_.resize(text_.size() * 2);
        const std::size_t found = source_->read(text_.data() + filled_, text_.size() - filled_);
        filled_ += found;
        position_ += static_cast<std::int64_t>(found);
        return found > 0;
    }
    // If a part ends before the file does, it ends after the line that contains its last byte.
    void cut() {
        if (end_ < 0 || position_ < end_) return;
        const std::size_t last = filled_ - static_cast<std::size_t>(position_ - end_ + 1);
        const void *found = std::memchr(text_.data() + last, '\n', filled_ - last);
        if (!found) return;
        filled_ = static_cast<std::size_t>(static_cast<const char *>(found) - text_.data()) + 1;
        at_end_ = true;
    }

    std::unique_ptr<ByteSource> source_;
    const std::int64_t end_;
    std::int64_t position_;  // file position of the next read
    std::vector<char> text_;
    std::size_t begin_ = 0, stop_ = 0, filled_ = 0;
    bool at_end_ = false;
};

// Number of lines that end before a byte of a file.
inline std::uint64_t count_lines(const std::string &path, std::int64_t until) {
    const auto bytes = open_bytes(path, 0);
    std::vector<char> text(TextBlocks::size);
    std::uint64_t lines = 0;
    while (until > 0) {
        const std::size_t wish =
            until < static_cast<std::int64_t>(text.size()) ? static_cast<std::size_t>(until) : text.size();
        const std::size_t found = bytes->read(text.data(), wish);
        if (found == 0) break;
        for (std::size_t i = 0; i < found; ++i) lines += text[i] == '\n';
        until -= static_cast<std::int64_t>(found);
    }
    return lines;
}

// Queue of parts shared by all workers; each part is taken once.
struct PartQueue {
    std::vector<Part> parts;
    std::atomic<std::size_t> next{0};

    const Part *take() {
        const std::size_t i = next.fetch_add(1);
        return i < parts.size() ? &parts[i] : nullptr;
    }
};

// Batches that another thread has read, for all workers; it gives more when all of them are done.
class BatchQueue {
  public:
    void give(std::vector<Batch> batches) {
        std::lock_guard<std::mutex> lock(mutex_);
        waiting_ += batches.size();
        for (Batch &batch : batches) batches_.push_back(std::move(batch));
        changed_.notify_all();
    }
    // No batches follow; drops those that have not begun if `now`.
    void end(bool now) noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        ended_ = true;
        if (now) batches_.clear();
        changed_.notify_all();
    }
    // Wait for a batch; return false at the end.
    bool next(Batch &batch) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return ended_ || !batches_.empty(); });
        if (batches_.empty()) return false;
        batch = std::move(batches_.front());
        batches_.pop_front();
        return true;
    }
    // Called by a worker that has trained on a batch; returns true if no other one is left.
    bool done() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        return --waiting_ == 0;
    }
    bool is_spent() noexcept {
        std::lock_guard<std::mutex> lock(mutex_);
        return waiting_ == 0;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Batch> batches_;
    std::size_t waiting_ = 0;  // batches that are not done
    bool ended_ = false;
};

// Progress of a reader, which other threads may read.
struct ReaderProgress {
    std::atomic<std::size_t> part{0};  // its number in the queue, from 1; 0: none yet
    std::atomic<std::uint64_t> skipped{0};
    SharedSum reading, parsing;
};

// The line number in the file, from 1, of a part's line, from 0.
inline std::uint64_t line_number(const Part &part, std::uint64_t line) {
    if (part.begin <= 0) return line + 1;
    const std::uint64_t before = count_lines(part.path, part.begin);
    const std::uint64_t until = count_lines(part.path, part.begin - 1);
    return before + line + 1 +
           (before == until ? 1 : 0);  // a line that continues into the part belongs to the previous one
}

class BatchReader {
  public:
    BatchReader(const Plan &plan, PartQueue &queue, bool skip_bad_lines, ReaderProgress &progress)
        : plan_(plan), queue_(queue), skip_bad_lines_(skip_bad_lines), progress_(progress) {
        for (const SlotInput &input : plan.slots) slots_.push_back(input.slot);
    }

    // Fill a batch; return false at the end. Only the last batch is short. Throws Error, which names file, line and
    // slot of an invalid line, and std::system_error.
    bool next(Batch &batch) {
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

  private:
    // Parsed lines, some of which are already in batches.
    struct Chunk {
        std::vector<Column> columns;
        Array<std::int64_t> passed;  // number of valid lines before each skipped line
        std::uint64_t first_line;    // of the part, from 0
        const Part *part;
        int lines, given = 0;

        // The index in its part, from 0, of a chunk's line.
        std::uint64_t line(int row) const {
            const std::int64_t *const end = passed.data() + passed.size();
            const auto skipped = std::upper_bound(passed.data(), end, static_cast<std::int64_t>(row)) - passed.data();
            return first_line + static_cast<std::uint64_t>(row) + static_cast<std::uint64_t>(skipped);
        }
    };

    // Returns false after the last part.
    bool read_block() {
        for (;;) {
            if (!part_) {
                part_ = queue_.take();
                if (!part_) return false;
                progress_.part.store(static_cast<std::size_t>(part_ - queue_.parts.data()) + 1,
                                     std::memory_order_relaxed);
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
    std::size_t pass_over(const char *text, std::size_t size) {
        std::size_t at = 0;
        for (; lines_before_ < part_->skip && at < size; ++lines_before_) {
            const void *found = std::memchr(text + at, '\n', size - at);
            at = found ? static_cast<std::size_t>(static_cast<const char *>(found) - text) + 1 : size;
        }
        return at;
    }
    void parse_block(const char *text, std::size_t size) {
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
    void begin_batch(Batch &batch) const {
        batch.lines = 0;
        batch.ends.clear();
        batch.slots.resize(slots_.size());
        for (SlotBatch &slot : batch.slots) {
            slot.ids.clear();
            slot.numbers.clear();
            slot.offsets.assign(1, 0);
        }
    }
    void append(Batch &batch, Chunk &chunk, int lines) const {
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
    void append_slot(SlotBatch &to, std::size_t slot, Chunk &chunk, int lines) const {
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
    [[noreturn]] void fail_id(std::size_t slot, const Chunk &chunk, std::int64_t value_at) const {
        const SlotInput &input = plan_.slots[slot];
        const Column &column = chunk.columns[slot];
        std::size_t row = 0;
        while (column.offsets[row + 1] <= value_at) ++row;
        throw Error(
            Kind::bounds,
            chunk.part->path + ": line " + std::to_string(line_number(*chunk.part, chunk.line(static_cast<int>(row)))) +
                ", slot '" + input.slot.name + "': found id " +
                std::to_string(static_cast<std::uint64_t>(column.integers[static_cast<std::size_t>(value_at)])) +
                ", expected 0 to " + std::to_string(input.rows - 1) + ", a row of the table '" + input.table + "'");
    }

    const Plan &plan_;
    PartQueue &queue_;
    const bool skip_bad_lines_;
    ReaderProgress &progress_;
    std::vector<Slot> slots_;
    const Part *part_ = nullptr;
    std::unique_ptr<TextBlocks> blocks_;
    std::uint64_t lines_before_ = 0;  // of the part
    std::deque<Chunk> chunks_;
};

}  // namespace dpmodule::hogwild
