#include "reader.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "functors/zlib.hpp"

namespace dpmodule::hogwild {
namespace {

[[noreturn]] void fail_reading(const std::string &path) {
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

bool is_compressed(const std::string &path) { return path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0; }

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string &path, std::int64_t begin) {
    if (is_compressed(path)) return std::make_unique<GzipBytes>(path);
    return std::make_unique<PlainBytes>(path, begin);
}

TextBlocks::TextBlocks(const Part &part)
    : source_(open_bytes(part.path, part.begin > 0 ? part.begin - 1 : 0)), end_(part.end),
      position_(part.begin > 0 ? part.begin - 1 : 0), text_(size) {
    if (end_ >= 0 && end_ <= part.begin) at_end_ = true;  // no line begins there
    else if (part.begin > 0) skip_first_line();
}

// A line that continues into a part belongs to the previous part.
void TextBlocks::skip_first_line() {
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

bool TextBlocks::fill() {
    if (filled_ == text_.size()) text_.resize(text_.size() * 2);
    const std::size_t found = source_->read(text_.data() + filled_, text_.size() - filled_);
    filled_ += found;
    position_ += static_cast<std::int64_t>(found);
    return found > 0;
}

// If a part ends before the file does, it ends after the line that contains its last byte.
void TextBlocks::cut() {
    if (end_ < 0 || position_ < end_) return;
    const std::size_t last = filled_ - static_cast<std::size_t>(position_ - end_ + 1);
    const void *found = std::memchr(text_.data() + last, '\n', filled_ - last);
    if (!found) return;
    filled_ = static_cast<std::size_t>(static_cast<const char *>(found) - text_.data()) + 1;
    at_end_ = true;
}

bool TextBlocks::next() {
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

std::uint64_t count_lines(const std::string &path, std::int64_t until) {
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

}  // namespace dpmodule::hogwild
