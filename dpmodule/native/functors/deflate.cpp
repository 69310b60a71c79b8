// Functors that compress and decompress: gzip, zlib and raw deflate.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "array.hpp"
#include "errors.hpp"
#include "python.hpp"
#include "ready.hpp"
#include "types.hpp"
#include "zlib.hpp"

namespace dpmodule {
namespace {

// zlib counts in unsigned, so longer data are passed in pieces.
constexpr std::size_t piece = std::size_t{1} << 30;

unsigned cut(std::size_t size) noexcept { return static_cast<unsigned>(std::min(size, piece)); }

constexpr int window_of_raw = -15, window_of_zlib = 15, window_of_gzip = 31;

// zlib stream that ends with its scope.
struct Stream : ZStream {
    explicit Stream(int (*end)(ZStream *)) : end(end) {}
    ~Stream() { end(this); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    int (*const end)(ZStream *);
};

void check_start(int code) {
    if (code == z_memory_error) throw std::bad_alloc();
    if (code != z_ok) throw Error(Kind::functor, "zlib failed to start with code " + std::to_string(code));
}

Bytes deflate(const Bytes &input, int window, int level) {
    const Zlib &z = *zlib();
    Stream stream(z.deflate_end);
    check_start(
        z.deflate_init(&stream, level, z_deflated, window, 8, z_default_strategy, z.version(), sizeof(ZStream)));
    Array<unsigned char> output;
    output.reserve(z.deflate_bound(&stream, input.size));
    const unsigned char *at = input.begin();
    int code = z_ok;
    while (code != z_stream_end) {
        if (output.room() == output.size()) output.grow(output.size() / 2 + 64);
        const unsigned given = cut(static_cast<std::size_t>(input.end() - at));
        const unsigned room = cut(output.room() - output.size());
        stream.next_in = at;
        stream.avail_in = given;
        stream.next_out = output.data() + output.size();
        stream.avail_out = room;
        code = z.deflate(&stream, at + given == input.end() ? z_finish : z_no_flush);
        if (code != z_ok && code != z_stream_end && code != z_buffer_error) check_start(code);
        at += given - stream.avail_in;
        output.resize(output.size() + (room - stream.avail_out));
    }
    return output.release();
}

// Decompressor of one input; messages count bytes from its beginning.
class Inflater {
  public:
    Inflater(const Bytes &input, const std::string &format, std::size_t most)
        : input_(input), auto_(format == "auto"), format_(format), most_(most) {}

    Bytes run() {
        if (auto_) format_ = starts_member(0) ? "gzip" : "zlib";
        output_.reserve(expected_size());
        std::size_t at = member(0);
        while (format_ == "gzip") {
            while (at < input_.size && input_.begin()[at] == 0) ++at;  // padding of tapes and block devices
            if (at == input_.size || !starts_member(at)) break;
            at = member(at);
        }
        if (at < input_.size) fail(at, "the data end here, but " + std::to_string(input_.size - at) + " bytes follow");
        return output_.release();
    }

  private:
    bool starts_member(std::size_t at) const noexcept {
        const std::size_t left = input_.size - at;
        return left > 0 && input_.begin()[at] == 0x1F && (left == 1 || input_.begin()[at + 1] == 0x8B);
    }

    // Estimate the output size: the last four bytes of gzip, or four times the input. At most `most` plus one byte, which
    // detects longer output.
    std::size_t expected_size() const {
        std::size_t size = input_.size * 4 + 64;
        if (format_ == "gzip" && input_.size > 18) {
            std::uint32_t said = 0;
            for (int i = 0; i < 4; ++i) said |= std::uint32_t{input_.end()[i - 4]} << (8 * i);
            if (said / 1100 <= input_.size) size = said;  // deflate cannot shrink more
        }
        return most_ > size ? size + 1 : most_ + (most_ < std::numeric_limits<std::size_t>::max());
    }

    // Decompress one stream from `begin` on; returns its end.
    std::size_t member(std::size_t begin) {
        const Zlib &z = *zlib();
        Stream stream(z.inflate_end);
        const int window = format_ == "gzip" ? window_of_gzip : format_ == "zlib" ? window_of_zlib : window_of_raw;
        check_start(z.inflate_init(&stream, window, z.version(), sizeof(ZStream)));
        std::size_t at = begin;
        for (;;) {
            if (output_.room() == output_.size()) output_.grow(output_.size() / 2 + 64);
            const unsigned given = cut(input_.size - at), room = cut(output_.room() - output_.size());
            stream.next_in = input_.begin() + at;
            stream.avail_in = given;
            stream.next_out = output_.data() + output_.size();
            stream.avail_out = room;
            const int code = z.inflate(&stream, z_no_flush);
            at += given - stream.avail_in;
            output_.resize(output_.size() + (room - stream.avail_out));
            if (code != z_memory_error && output_.size() > most_) {
                fail(at, "the data expand to more than max_bytes=" + std::to_string(most_) +
                             "; raise the limit if you trust them");
            }
            if (code == z_stream_end) return at;
            check(code, stream, at);
        }
    }

    void check(int code, const Stream &stream, std::size_t at) const {
        if (code == z_memory_error) throw std::bad_alloc();
        if (code == z_need_dictionary) fail(at, "the data need a preset dictionary, which is not supported");
        if (code != z_ok && code != z_buffer_error) {
            fail(at, std::string("damaged, or not ") + format_ + ": " +
                         (stream.message ? stream.message : "unknown error"));
        }
        if (at == input_.size && stream.avail_out > 0) fail(at, "cut short: the data continue");
    }

    [[noreturn]] void fail(std::size_t at, const std::string &text) const {
        throw Error(Kind::file_format, format_ + " data: byte " + std::to_string(at) + ": " + text);
    }

    const Bytes &input_;
    const bool auto_;
    std::string format_;
    const std::size_t most_;
    Array<unsigned char> output_;
};

PyObject *compress(PyObject *, PyObject *args) {
    PyObject *data;
    const char *format;
    int level;
    Bytes input;
    if (!PyArg_ParseTuple(args, "Osi", &data, &format, &level) || !bytes_of_any(data, input)) return nullptr;
    const std::string_view name(format);
    const int window = name == "gzip" ? window_of_gzip : name == "zlib" ? window_of_zlib : window_of_raw;
    return ready_from([=] { return deflate(input, window, level); }, make_handle);
}

PyObject *decompress(PyObject *, PyObject *args) {
    PyObject *data;
    const char *format;
    Py_ssize_t most;  // -1: no limit
    Bytes input;
    if (!PyArg_ParseTuple(args, "Osn", &data, &format, &most) || !bytes_of_any(data, input)) return nullptr;
    const std::size_t limit = most < 0 ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(most);
    return ready_from([=, format = std::string(format)] { return Inflater(input, format, limit).run(); }, make_handle);
}

PyObject *zlib_version(PyObject *, PyObject *) {
    if (!zlib()) Py_RETURN_NONE;
    return PyUnicode_FromString(zlib()->version());
}

PyMethodDef deflate_functions[] = {
    {"compress", guard<compress>, METH_VARARGS,
     "compress(data, format, level): a functor; only with a zlib_version()."},
    {"decompress", guard<decompress>, METH_VARARGS,
     "decompress(data, format, most): a functor; only with a zlib_version()."},
    {"zlib_version", zlib_version, METH_NOARGS, "Return the version of libz, or None if there is none."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_deflate(PyObject *module) { return PyModule_AddFunctions(module, deflate_functions); }

}  // namespace dpmodule
