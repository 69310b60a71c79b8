// Parsers of text and the way of pixels into a batch, for Python.
#include <algorithm>
#include <new>

#include "csv.hpp"
#include "libsvm.hpp"
#include "python.hpp"

namespace dpmodule {
namespace io {
namespace {

// What Python's objects hold, as long as they are lent.
class Lent {
public:
    Lent() = default;
    ~Lent() {
        if (view.obj) PyBuffer_Release(&view);
    }
    Lent(const Lent &) = delete;
    Lent &operator=(const Lent &) = delete;

    const char *begin() const noexcept { return static_cast<const char *>(view.buf); }
    const char *end() const noexcept { return begin() + view.len; }
    template <class Value>
    Value *as() const noexcept { return static_cast<Value *>(view.buf); }
    template <class Value>
    Py_ssize_t room() const noexcept { return view.len / static_cast<Py_ssize_t>(sizeof(Value)); }

    Py_buffer view{};
};

// Runs a function without the GIL; false, with Python's error, if there was no memory.
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
PyObject *parse_into(const Lent &text, Py_ssize_t columns, const Lent &table) {
    Py_ssize_t rows = 0;
    const Py_ssize_t room = table.room<Value>() / columns;
    if (!run_free([&] { rows = read_csv(text.begin(), text.end(), columns, table.as<Value>(), room); })) return nullptr;
    return PyLong_FromSsize_t(rows);
}

PyObject *parse_csv(PyObject *, PyObject *given) {
    Lent text, table;
    Py_ssize_t columns = 0;
    int kind = 0;
    if (!PyArg_ParseTuple(given, "y*nCw*", &text.view, &columns, &kind, &table.view)) return nullptr;
    if (columns < 1) {
        PyErr_SetString(PyExc_ValueError, "there is at least one column");
        return nullptr;
    }
    switch (kind) {
        case 'f': return parse_into<float>(text, columns, table);
        case 'd': return parse_into<double>(text, columns, table);
        case 'i': return parse_into<std::int32_t>(text, columns, table);
        case 'q': return parse_into<std::int64_t>(text, columns, table);
    }
    PyErr_SetString(PyExc_ValueError, "the kind is one of f, d, i, q");
    return nullptr;
}

PyObject *parse_libsvm(PyObject *, PyObject *given) {
    Lent text, labels, lengths, values, columns;
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

// Python keeps a pointer to this table
PyMethodDef text_functions[] = {
    {"parse_csv", parse_csv, METH_VARARGS,
     "parse_csv(text, columns, kind, table)\n--\n\n"
     "Read lines of numbers into an array of kind f, d, i or q; return the number of rows, -1 if the text has others."},
    {"parse_libsvm", parse_libsvm, METH_VARARGS,
     "parse_libsvm(text, columns, labels, lengths, values, columns)\n--\n\n"
     "Read sparse rows into arrays; return the numbers of rows and of entries, None if the text holds something else."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace io

int add_io(PyObject *module) { return PyModule_AddFunctions(module, io::text_functions); }

}  // namespace dpmodule
