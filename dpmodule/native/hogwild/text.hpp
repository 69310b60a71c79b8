// Reading the text of a part of a file in blocks.
#pragma once

#include <memory>
#include <string>

#include "plan.hpp"

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

}  // namespace dpmodule::hogwild
