// The functor that finds the records in a piece of a record file (MXNet's RecordIO).
//
//     part : u32 0xCED7230A, u32 (kind << 29 | length), payload, zeros up to a multiple of 4
//     kind : 0 a whole record, 1 the first part of a record, 2 a middle part, 3 the last part
//
// Whole records become slices of the data. Parts are copied and joined with the magic number between them.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "python.hpp"
#include "quoted.hpp"
#include "ready.hpp"
#include "types.hpp"

namespace dpmodule {
namespace {

constexpr std::uint32_t magic = 0xCED7230A;
constexpr unsigned whole = 0, middle = 2, last = 3;

struct ParsedRecords {
    std::vector<Bytes> records;
    std::size_t consumed = 0;
};

std::uint32_t little_endian(const unsigned char *at) noexcept {
    return std::uint32_t{at[0]} | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 | std::uint32_t{at[3]} << 24;
}

class RecordParser {
  public:
    RecordParser(const Bytes &data, const std::string &source, std::uint64_t offset, bool final)
        : data_(data), source_(source), offset_(offset), final_(final) {}

    ParsedRecords run() {
        while (result_.consumed < data_.size && record()) {
        }
        return std::move(result_);
    }

  private:
    struct Part {
        std::size_t begin, length;
    };

    // Read the next record; false if its end is not in the data.
    bool record() {
        std::size_t at = result_.consumed;
        parts_.clear();
        for (;;) {
            unsigned kind;
            Part part;
            if (!head(at, kind, part)) return false;
            parts_.push_back(part);
            const std::size_t padded = part.length + (4 - part.length % 4) % 4;
            const std::size_t left = data_.size - part.begin;
            // The last record of a file may lack its padding; before, more data may follow.
            if (left < (final_ ? part.length : padded)) return cut_short(at, part.length, left);
            at = part.begin + std::min(padded, left);
            if (kind == whole || kind == last) break;
        }
        result_.records.push_back(parts_.size() == 1 ? data_.slice(parts_[0].begin, parts_[0].length) : joined());
        result_.consumed = at;
        return true;
    }

    // Read and check the header of a part; false if it is incomplete.
    bool head(std::size_t at, unsigned &kind, Part &part) const {
        const std::size_t left = data_.size - at;
        const unsigned char *bytes = data_.begin() + at;
        for (std::size_t i = 0; i < std::min<std::size_t>(left, 4); ++i) {
            if (bytes[i] != (magic >> (8 * i) & 255)) fail_magic(at);
        }
        if (left < 8) {
            if (final_) fail(at, "the head of a record, 8 bytes, expected, but " + std::to_string(left) + " are left");
            return false;
        }
        const std::uint32_t word = little_endian(bytes + 4);
        kind = word >> 29;
        part = {at + 8, word & ((1u << 29) - 1)};
        const bool continues = kind == middle || kind == last;
        if (kind > last || continues != !parts_.empty()) {
            fail(at, "a part of kind " + std::to_string(kind) + " is not allowed here");
        }
        return true;
    }

    bool cut_short(std::size_t at, std::size_t length, std::size_t left) const {
        if (!final_) return false;
        fail(at, std::to_string(length) + " bytes of payload expected, but " + std::to_string(left) + " are left");
    }

    Bytes joined() const {
        std::size_t size = 4 * (parts_.size() - 1);
        for (const Part &part : parts_) size += part.length;
        std::string text;
        text.reserve(size);
        for (const Part &part : parts_) {
            if (&part != &parts_[0]) text.append("\x0A\x23\xD7\xCE", 4);
            text.append(data_.text().substr(part.begin, part.length));
        }
        return bytes_of(std::move(text));
    }

    [[noreturn]] void fail_magic(std::size_t at) const {
        const char *bytes = reinterpret_cast<const char *>(data_.begin()) + at;
        fail(at, "no record begins here: " + quoted(bytes, bytes + std::min<std::size_t>(data_.size - at, 4)) +
                     " in place of '\\x0a#\\xd7\\xce'");
    }

    [[noreturn]] void fail(std::size_t at, const std::string &text) const {
        throw Error(Kind::file_format, source_ + ": byte " + std::to_string(offset_ + at) + ": " + text +
                                           "; the file is damaged, cut short, or does not begin with a record");
    }

    const Bytes &data_;
    const std::string &source_;
    const std::uint64_t offset_;
    const bool final_;
    std::vector<Part> parts_;
    ParsedRecords result_;
};

// (records, consumed)
PyObject *records_to_python(const ParsedRecords &made) {
    PyObject *list = list_of(made.records.size(), [&](std::size_t i) { return make_handle(made.records[i]); });
    return list ? Py_BuildValue("Nn", list, made.consumed) : nullptr;
}

PyObject *make_records(PyObject *, PyObject *args) {
    PyObject *data, *finish;
    const char *source;
    unsigned long long offset;
    int final;
    Bytes bytes;
    if (!PyArg_ParseTuple(args, "OsKpO", &data, &source, &offset, &final, &finish) || !bytes_of_any(data, bytes)) {
        return nullptr;
    }
    return ready_from([bytes, source = std::string(source), offset,
                       final] { return RecordParser(bytes, source, offset, final != 0).run(); },
                      records_to_python, finish);
}

PyMethodDef records_functions[] = {
    {"records", guard<make_records>, METH_VARARGS, "records(data, source, offset, final, finish): a functor."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_records(PyObject *module) { return PyModule_AddFunctions(module, records_functions); }

}  // namespace dpmodule
