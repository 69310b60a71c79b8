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

Parsed parse_slots(const Bytes &text, const std::vector<Slot> &slots, MultiSlotParser parser, bool final) {
    parser.parse(reinterpret_cast<const char *>(text.begin()), text.size, final);
    Parsed parsed{parser.lines(), parser.consumed(), parser.bad_lines(), parser.passed().release(), {}};
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (!slots[i].is_used) continue;
        Column &column = parser.columns()[i];
        Bytes values = slots[i].is_float ? column.floats.release() : column.integers.release();
        parsed.columns.emplace_back(std::move(values), column.offsets.release());
    }
    return parsed;
}

// (lines, consumed, [values, offsets, values, offsets, ...], bad lines, skipped lines)
PyObject *parsed_to_python(const Parsed &made) {
    PyObject *list = list_of(2 * made.columns.size(), [&](std::size_t i) {
        const auto &[values, offsets] = made.columns[i / 2];
        return make_memory(i % 2 ? offsets : values);
    });
    return Py_BuildValue("nnNnN", made.lines, made.consumed, list, made.bad_lines, make_memory(made.passed));
}

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
    Bytes text;
    std::vector<Slot> slots;
    if (!bytes_of_any(data, text) || !read_slots(list, slots)) return nullptr;
    const MultiSlotParser::Lenience lenience{skip_blank != 0, skip_bad != 0};
    return ready_from(
        [text, slots = std::move(slots), source = std::string(source), first_line, final, lenience] {
            return parse_slots(text, slots, MultiSlotParser(slots, source, first_line, lenience), final != 0);
        },
        parsed_to_python, finish);
}

PyMethodDef multislot_functions[] = {
    {"multislot", guard<make_multislot>, METH_VARARGS,
     "multislot(data, slots, source, first_line, final, skip_blank, skip_bad, finish): a functor."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_multislot(PyObject *module) { return PyModule_AddFunctions(module, multislot_functions); }

}  // namespace dpmodule
