#include "ranges.hpp"

#include <cstring>
#include <memory>
#include <utility>

#include "recording.hpp"

namespace dpmodule::recording {

PyTypeObject *ranges_type = nullptr;

namespace {

RangesObject *as_ranges(PyObject *object) { return reinterpret_cast<RangesObject *>(object); }

// The addresses of a list of integers; false with an exception.
bool addresses_of(PyObject *list, std::vector<char *> &found) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
        found.push_back(static_cast<char *>(PyLong_AsVoidPtr(PyList_GET_ITEM(list, i))));
    }
    return !PyErr_Occurred();
}

// gather(target, sources, item): copy the ranges, whose elements have `item` bytes, to an address.
PyObject *gather(PyObject *self, PyObject *args) {
    unsigned long long target;
    PyObject *list;
    Py_ssize_t item;
    std::vector<char *> sources;
    if (!PyArg_ParseTuple(args, "KO!n", &target, &PyList_Type, &list, &item) || !addresses_of(list, sources))
        return nullptr;
    char *out = reinterpret_cast<char *>(static_cast<std::uintptr_t>(target));
    for (const Range &range : as_ranges(self)->ranges) {
        const std::size_t bytes = static_cast<std::size_t>(range.size * item);
        std::memcpy(out, sources[range.source] + range.offset * item, bytes);
        out += bytes;
    }
    Py_RETURN_NONE;
}

template <class Number>
void add_ranges(const std::vector<Range> &ranges, const char *gradient, const std::vector<char *> &targets) {
    const auto *from = reinterpret_cast<const Number *>(gradient);
    for (const Range &range : ranges) {
        if (targets[range.source]) {
            auto *to = reinterpret_cast<Number *>(targets[range.source]) + range.offset;
            for (std::int64_t i = 0; i < range.size; ++i) to[i] += from[i];
        }
        from += range.size;
    }
}

// scatter(gradient, targets, is_double): add the gradient of the joined ranges to those of the sources (0: none).
PyObject *scatter(PyObject *self, PyObject *args) {
    unsigned long long gradient;
    PyObject *list;
    int is_double;
    std::vector<char *> targets;
    if (!PyArg_ParseTuple(args, "KO!p", &gradient, &PyList_Type, &list, &is_double) || !addresses_of(list, targets)) {
        return nullptr;
    }
    const char *from = reinterpret_cast<const char *>(static_cast<std::uintptr_t>(gradient));
    (is_double ? add_ranges<double> : add_ranges<float>)(as_ranges(self)->ranges, from, targets);
    Py_RETURN_NONE;
}

// The ranges as (source, offset, size).
PyObject *listed(PyObject *self, PyObject *) {
    const std::vector<Range> &ranges = as_ranges(self)->ranges;
    return list_of(ranges.size(), [&](std::size_t i) {
        return Py_BuildValue("iLL", ranges[i].source, static_cast<long long>(ranges[i].offset),
                             static_cast<long long>(ranges[i].size));
    });
}

PyObject *total(PyObject *self, void *) { return PyLong_FromLongLong(as_ranges(self)->total); }

void ranges_dealloc(PyObject *self) {
    std::destroy_at(&as_ranges(self)->ranges);
    free_object(self);
}

PyMethodDef ranges_methods[] = {{"gather", gather, METH_VARARGS, "Copy the ranges to an address."},
                                {"scatter", scatter, METH_VARARGS, "Add gradients to those of the sources."},
                                {"listed", listed, METH_NOARGS, "The ranges as (source, offset, size)."},
                                {nullptr, nullptr, 0, nullptr}};

PyGetSetDef ranges_attributes[] = {{"total", total, nullptr, "Number of elements.", nullptr},
                                   {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot ranges_slots[] = {{Py_tp_dealloc, slot(ranges_dealloc)},
                              {Py_tp_methods, ranges_methods},
                              {Py_tp_getset, ranges_attributes},
                              {Py_tp_doc, const_cast<char *>("Ranges of tensors that form an operand of a batch.")},
                              {0, nullptr}};

PyType_Spec ranges_definition = {"dpmodule._native.Ranges", sizeof(RangesObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, ranges_slots};

}  // namespace

PyObject *make_ranges(std::vector<Range> ranges) {
    auto *made = reinterpret_cast<RangesObject *>(ranges_type->tp_alloc(ranges_type, 0));
    if (!made) return nullptr;
    new (&made->ranges) std::vector<Range>(std::move(ranges));
    made->total = 0;
    for (const Range &range : made->ranges) made->total += range.size;
    return reinterpret_cast<PyObject *>(made);
}

}  // namespace dpmodule::recording

int dpmodule::add_ranges(PyObject *module) {
    return (dpmodule::recording::ranges_type = add_type(module, dpmodule::recording::ranges_definition)) ? 0 : -1;
}
