// Python functions for the text parsers and the pixel conversion.
#include <algorithm>
#include <new>

#include "addresses.hpp"
#include "csv.hpp"
#include "libsvm.hpp"
#include "pixels.hpp"

namespace dpmodule {
namespace io {

auto fields(Pixels &p) {
    return std::tie(p.channels, p.height, p.width, p.from, p.row_gap, p.pixel_gap, p.mirrored, p.center, p.factor,
                    p.to);
}

namespace {

// Buffer of a Python object, released with its scope.
class HeldBuffer {
  public:
    HeldBuffer() = default;
    ~HeldBuffer() {
        if (view.obj) PyBuffer_Release(&view);
    }
    HeldBuffer(const HeldBuffer &) = delete;
    HeldBuffer &operator=(const HeldBuffer &) = delete;

    const char *begin() const noexcept { return static_cast<const char *>(view.buf); }
    const char *end() const noexcept { return begin() + view.len; }
    template <class Value>
    Value *as() const noexcept {
        return static_cast<Value *>(view.buf);
    }
    template <class Value>
    Py_ssize_t room() const noexcept {
        return view.len / static_cast<Py_ssize_t>(sizeof(Value));
    }

    Py_buffer view{};
};

// Run a function without the GIL; false, with a Python exception, if it runs out of memory.
template <class Run>
bool run_free(Run run) {
    bool had_memory = true;
    Py_BEGIN_ALLOW_THREADS
    try {
        run();
    } catch (const std::bad_alloc &) {
        had_memory = false;
    }
    Py_END_ALLOW_THREADS
    if (!had_memory) PyErr_NoMemory();
    return had_memory;
}

template <class Value>
PyObject *parse_into(const HeldBuffer &text, Py_ssize_t columns, const HeldBuffer &table) {
    Py_ssize_t rows = 0;
    const Py_ssize_t room = table.room<Value>() / columns;
    if (!run_free([&] { rows = read_csv(text.begin(), text.end(), columns, table.as<Value>(), room); })) return nullptr;
    return PyLong_FromSsize_t(rows);
}

PyObject *parse_csv(PyObject *, PyObject *given) {
    HeldBuffer text, table;
    Py_ssize_t columns = 0;
    int kind = 0;
    if (!PyArg_ParseTuple(given, "y*nCw*", &text.view, &columns, &kind, &table.view)) return nullptr;
    if (columns < 1) {
        PyErr_SetString(PyExc_ValueError, "expected at least one column");
        return nullptr;
    }
    switch (kind) {
        case 'f': return parse_into<float>(text, columns, table);
        case 'd': return parse_into<double>(text, columns, table);
        case 'i': return parse_into<std::int32_t>(text, columns, table);
        case 'q': return parse_into<std::int64_t>(text, columns, table);
    }
    PyErr_SetString(PyExc_ValueError, "expected a kind of f, d, i or q");
    return nullptr;
}

PyObject *parse_libsvm(PyObject *, PyObject *given) {
    HeldBuffer text, labels, lengths, values, columns;
    unsigned long long limit = 0;
    if (!PyArg_ParseTuple(given, "y*Kw*w*w*w*", &text.view, &limit, &labels.view, &lengths.view, &values.view,
                          &columns.view)) {
        return nullptr;
    }
    SparseRows rows{};
    rows.labels = labels.as<float>();
    rows.lengths = lengths.as<std::int64_t>();
    rows.row_room = std::min(labels.room<float>(), lengths.room<std::int64_t>());
    rows.values = values.as<float>();
    rows.columns = columns.as<std::int64_t>();
    rows.entry_room = std::min(values.room<float>(), columns.room<std::int64_t>());
    bool good = false;
    if (!run_free([&] { good = read_libsvm(text.begin(), text.end(), limit, rows); })) return nullptr;
    if (!good) Py_RETURN_NONE;
    return Py_BuildValue("nn", rows.rows, rows.entries);
}

// Structure of the Arrow C data interface.
struct ArrowArray {
    std::int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    ArrowArray **children;
    ArrowArray *dictionary;
    void (*release)(ArrowArray *);
    void *private_data;
};

// Read an Arrow capsule of fixed-length lists, the form in which Pillow exports an image of several channels.
PyObject *arrow_items(PyObject *, PyObject *capsule) {
    const auto *array = static_cast<const ArrowArray *>(PyCapsule_GetPointer(capsule, "arrow_array"));
    if (!array) return nullptr;
    const bool fits = array->release && array->offset == 0 && array->n_children == 1 &&
                      array->children[0]->n_buffers == 2 && array->children[0]->offset == 0;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "expected an array of lists of fixed length");
        return nullptr;
    }
    const ArrowArray &items = *array->children[0];
    return Py_BuildValue("NL", PyLong_FromVoidPtr(const_cast<void *>(items.buffers[1])),
                         static_cast<long long>(items.length));
}

// Python keeps a pointer to this table
PyMethodDef io_functions[] = {
    {"parse_csv", parse_csv, METH_VARARGS,
     "parse_csv(text, columns, kind, table)\n--\n\n"
     "Read lines of numbers into an array of kind f, d, i or q; return the number of rows, -1 if it has other text."},
    {"parse_libsvm", parse_libsvm, METH_VARARGS,
     "parse_libsvm(text, columns, labels, lengths, values, columns)\n--\n\n"
     "Read sparse rows into arrays; return the numbers of rows and of entries, None if it has other text."},
    method("put_pixels", Call<put_pixels>::run,
           "Write an image into a batch as float32; arguments are sizes, strides and addresses, see pixels.hpp."),
    {"arrow_items", arrow_items, METH_O,
     "arrow_items(capsule)\n--\n\n"
     "Return address and number of the items of an Arrow array of lists; the capsule keeps them alive."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace io

int add_io(PyObject *module) { return PyModule_AddFunctions(module, io::io_functions); }

}  // namespace dpmodule
