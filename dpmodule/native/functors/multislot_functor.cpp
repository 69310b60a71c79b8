// The functor that parses MultiSlot text.
#include "multislot.hpp"
#include "python.hpp"
#include "ready.hpp"
#include "types.hpp"

namespace dpmodule {
namespace {

struct Parsed {
    std::size_t lines, consumed, bad_lines;
    Bytes passed;                                  // for each skipped line, the number of lines read before it
    std::vector<std::pair<Bytes, Bytes>> columns;  // values and offsets of the used slots
};

class MultiSlot final : public Ready<Parsed> {
  public:
    MultiSlot(Bytes text, std::vector<Slot> slots, std::string source, std::uint64_t first_line, bool final,
              MultiSlotParser::Lenience lenience, PyObject *finish)
        : Ready(finish), text_(std::move(text)), slots_(std::move(slots)), source_(std::move(source)),
          first_line_(first_line), final_(final), lenience_(lenience) {}

  private:
    Parsed work() const override {
        MultiSlotParser parser(slots_, source_, first_line_, lenience_);
        parser.parse(reinterpret_cast<const char *>(text_.begin()), text_.size, final_);
        Parsed parsed{parser.lines(), parser.consumed(), parser.bad_lines(), parser.passed().release(), {}};
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (!slots_[i].is_used) continue;
            Column &column = parser.columns()[i];
            Bytes values = slots_[i].is_float ? column.floats.release() : column.integers.release();
            parsed.columns.emplace_back(std::move(values), column.offsets.release());
        }
        return parsed;
    }

    // (lines, consumed, [values, offsets, values, offsets, ...], bad lines, skipped lines)
    PyObject *to_python(const Parsed &made) const override {
        PyObject *list = list_of(2 * made.columns.size(), [&](std::size_t i) {
            const auto &[values, offsets] = made.columns[i / 2];
            return make_memory(i % 2 ? offsets : values);
        });
        return Py_BuildValue("nnNnN", made.lines, made.consumed, list, made.bad_lines, make_memory(made.passed));
    }

    const Bytes text_;
    const std::vector<Slot> slots_;
    const std::string source_;
    const std::uint64_t first_line_;
    const bool final_;
    const MultiSlotParser::Lenience lenience_;
};

// Read slots from tuples (name, is_float, is_dense, is_used, width).
bool read_slots(PyObject *list, std::vector<Slot> &slots) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
        const char *name;
        int is_float, is_dense, is_used;
        unsigned long long width;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "spppK", &name, &is_float, &is_dense, &is_used, &width))
            return false;
        slots.push_back({name, is_float != 0, is_dense != 0, is_used != 0, width});
    }
    return true;
}

PyObject *make_multislot(PyObject *, PyObject *args) {
    PyObject *data, *list, *finish;
    const char *source;
    unsigned long long first_line;
    int final, skip_blank, skip_bad;
    if (!PyArg_ParseTuple(args, "OO!sKpppO", &data, &PyList_Type, &list, &source, &first_line, &final, &skip_blank,
                          &skip_bad, &finish)) {
        return nullptr;
    }
    return ready_from([&]() -> std::shared_ptr<Functor> {
        Bytes text;
        std::vector<Slot> slots;
        if (!bytes_of_any(data, text) || !read_slots(list, slots)) return nullptr;
        return std::make_shared<MultiSlot>(std::move(text), std::move(slots), source, first_line, final != 0,
                                           MultiSlotParser::Lenience{skip_blank != 0, skip_bad != 0}, finish);
    });
}

PyMethodDef multislot_functions[] = {
    {"multislot", make_multislot, METH_VARARGS,
     "multislot(data, slots, source, first_line, final, skip_blank, skip_bad, finish): a functor."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_multislot(PyObject *module) { return PyModule_AddFunctions(module, multislot_functions); }

}  // namespace dpmodule
