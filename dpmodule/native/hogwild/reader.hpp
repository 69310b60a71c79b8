// Reading the parts of files that a worker takes: their text in blocks, and batches.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include "plan.hpp"
#include "gate.hpp"

namespace dpmodule::hogwild {

// Sequential bytes of a plain or decompressed file.
class ByteSource {
  public:
    virtual ~ByteSource() = default;

    // Read up to `size` bytes; 0 only at the end. Throws Error, std::system_error.
    virtual std::size_t read(char *to, std::size_t size) = 0;
};

// Open a file's bytes from `begin`, decompressed if its name ends with ".gz" (then `begin` is 0).
std::unique_ptr<ByteSource> open_bytes(const std::string &path, std::int64_t begin);

// Blocks of whole lines of a part; an incomplete line is kept for the next block.
class TextBlocks {
  public:
    static constexpr std::size_t size = std::size_t{1} << 19;

    explicit TextBlocks(const Part &part);

    // Read the next block; return false at the end. Every block except possibly the last ends with a complete line.
    bool next();

    const char *data() const noexcept { return text_.data() + begin_; }
    std::size_t length() const noexcept { return stop_ - begin_; }
    bool is_last() const noexcept { return at_end_ && stop_ == filled_; }

  private:
    void skip_first_line();
    bool fill();
    void cut();

    std::unique_ptr<ByteSource> source_;
    const std::int64_t end_;
    std::int64_t position_;  // file position of the next read
    std::vector<char> text_;
    std::size_t begin_ = 0, stop_ = 0, filled_ = 0;
    bool at_end_ = false;
};

// Number of lines that end before a byte of a file.
std::uint64_t count_lines(const std::string &path, std::int64_t until);

// Queue of parts shared by all workers; each part is taken once.
struct PartQueue {
    std::vector<Part> parts;
    std::atomic<std::size_t> next{0};

    const Part *take() {
        const std::size_t i = next.fetch_add(1);
        return i < parts.size() ? &parts[i] : nullptr;
    }
    bool has_more() const { return next.load() < parts.size(); }
};

// Progress of a reader, which other threads may read.
struct ReaderProgress {
    std::atomic<std::size_t> part{0};  // its number in the queue, from 1; 0: none yet
    std::atomic<std::uint64_t> skipped{0};
    SharedSum reading, parsing;
};

// The line number in the file, from 1, of a part's line, from 0.
std::uint64_t line_number(const Part &part, std::uint64_t line);

class BatchReader {
  public:
    BatchReader(const Plan &plan, PartQueue &queue, bool skip_bad_lines, ReaderProgress &progress);

    // Fill a batch; return false at the end. Only the last batch is short. Throws Error, which names file, line and
    // slot of an invalid line, and std::system_error.
    bool next(Batch &batch);

  private:
    // Parsed lines, some of which are already in batches.
    struct Chunk {
        std::vector<Column> columns;
        Array<std::int64_t> passed;  // number of valid lines before each skipped line
        std::uint64_t first_line;    // of the part, from 0
        const Part *part;
        int lines, given = 0;

        std::uint64_t line(int row) const;
    };

    bool read_block();
    std::size_t pass_over(const char *text, std::size_t size);
    void parse_block(const char *text, std::size_t size);
    void begin_batch(Batch &batch) const;
    void append(Batch &batch, Chunk &chunk, int lines) const;
    void append_slot(SlotBatch &to, std::size_t slot, Chunk &chunk, int lines) const;
    [[noreturn]] void fail_id(std::size_t slot, const Chunk &chunk, std::int64_t value_at) const;

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
