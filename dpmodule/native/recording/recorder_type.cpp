// The Python type Recorder: a mode of torch that records calls, and batches for Python to run.
#include <map>
#include <memory>
#include <utility>

#include "ranges.hpp"
#include "recording.hpp"
#include "setup.hpp"

namespace dpmodule::recording {

namespace {

constexpr std::size_t most_calls = 1 << 17;  // programs of ever new shapes must not fill the memory

RecorderObject *as_recorder(PyObject *object) { return static_cast<RecorderObject *>(object); }

void forget_calls() {
    for (auto &[key, call] : table.calls) {
        Py_XDECREF(call.pack);
        Py_XDECREF(call.constant);
    }
    table.calls.clear();
    ++table.generation;
}

PyObject *recorder_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *owner;
    if (!PyArg_ParseTuple(args, "O", &owner)) return nullptr;
    auto *self = as_recorder(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    if (table.recorders++ == 0 && table.calls.size() > most_calls) forget_calls();
    new (static_cast<Recording *>(self)) Recording();
    self->owner = Py_NewRef(owner);
    self->thread = PyThread_get_thread_ident();
    const Reference modes(PyObject_CallNoArgs(setup.count_modes));
    self->modes = modes ? PyLong_AsSsize_t(modes.get()) + 1 : 0;
    active_recorders[self->thread] = self;
    return self;
}

// Let calls of the thread no longer reach a recording.
void end(const RecorderObject *self) {
    const auto active = active_recorders.find(self->thread);
    if (active != active_recorders.end() && active->second == self) active_recorders.erase(active);
}

void forget(RecorderObject *self) {
    const Recording former = std::exchange(static_cast<Recording &>(*self), Recording());
    forget_cells(self);
    for (const Leaf &leaf : former.leaves) Py_DECREF(leaf.tensor);
    for (const Batch &batch : former.batches) {
        for (PyObject *each : batch.outputs) Py_XDECREF(each);
    }
}

void recorder_dealloc(PyObject *object) {
    RecorderObject *self = as_recorder(object);
    end(self);
    --table.recorders;
    forget(self);
    Py_XDECREF(self->owner);
    std::destroy_at(static_cast<Recording *>(self));
    free_object(object);
}

// torch calls the recorder, as the innermost function mode, in place of the function.
PyObject *mode_function(PyObject *object, PyObject *args) {
    PyObject *function, *types, *positional = nullptr, *keywords = nullptr;
    if (!PyArg_ParseTuple(args, "OO|OO", &function, &types, &positional, &keywords)) return nullptr;
    const int number = function_number(function);
    if (number < 0) return nullptr;
    if (keywords && (keywords == Py_None || PyDict_GET_SIZE(keywords) == 0)) keywords = nullptr;
    const std::size_t count = positional ? static_cast<std::size_t>(PyTuple_GET_SIZE(positional)) : 0;
    std::vector<PyObject *> given(count);
    for (std::size_t i = 0; i < count; ++i) given[i] = PyTuple_GET_ITEM(positional, i);
    return call_function(as_recorder(object), number, given.data(), count, keywords);
}

// plan(values): choose the batches that compute values (None: all that the program still refers to). Their number.
PyObject *plan_values(PyObject *object, PyObject *values) {
    RecorderObject *self = as_recorder(object);
    std::vector<int> wanted;
    if (values == Py_None) {
        for (std::size_t i = 0; i < self->nodes.size(); ++i) {
            if (self->nodes[i].handles && self->nodes[i].batch < 0) wanted.push_back(static_cast<int>(i));
        }
    } else {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(values); ++i) {
            const PlaceObject *value = place_of_value(PySequence_Fast_GET_ITEM(values, i));
            if (value && value->recorder == self && value->place.node >= 0) wanted.push_back(value->place.node);
        }
    }
    plan(self, wanted);
    return PyLong_FromSize_t(self->planned.size());
}

PyObject *source_of(const RecorderObject *self, const Operand &operand) {
    return operand.node < 0 ? self->leaves[~operand.node].tensor
                            : self->batches[self->nodes[operand.node].batch].outputs[operand.output];
}

std::int64_t size_of(const RecorderObject *self, const Operand &operand) {
    return operand.node < 0 ? table.specs[self->leaves[~operand.node].spec].numel
                            : self->batches[self->nodes[operand.node].batch].sizes[operand.output];
}

PyObject *shape_of(const Operand &operand) { return table.specs[operand.spec].shape; }

// The operand at a position of all nodes of a batch; with position < 0, all operands of each node, one after another:
//   (0, source, offset, shape)              one range for all
//   (1, source, None, 0, 0, shape)          the whole source, in order
//   (2, source, width, row, column, shape)  a block of the source as rows of a width
//   (3, sources, ranges, 0, 0, shape)       ranges
PyObject *operand_of(const RecorderObject *self, const std::vector<int> &nodes, int position, bool repeats) {
    std::vector<const Operand *> all_operands;
    for (const int number : nodes) {
        const Operand *of_node = self->operands.data() + self->nodes[number].first;
        if (position >= 0) all_operands.push_back(of_node + position);
        for (int k = 0; position < 0 && k < self->nodes[number].count; ++k) all_operands.push_back(of_node + k);
    }
    const std::size_t count = all_operands.size();
    const auto at = [&](std::size_t i) -> const Operand & { return *all_operands[i]; };
    const Operand &first = at(0);
    PyObject *source = source_of(self, first);
    bool is_shared = true, is_one_source = true, is_even = true;
    const std::int64_t start = place_of(self, first), size = table.specs[first.spec].numel;
    const std::int64_t step = count > 1 ? place_of(self, at(1)) - start : size;
    for (std::size_t i = 1; i < count; ++i) {
        const Operand &each = at(i);
        const std::int64_t offset = place_of(self, each);
        is_one_source = is_one_source && source_of(self, each) == source;
        is_shared = is_shared && is_one_source && offset == start && each.spec == first.spec;
        is_even =
            is_even && offset == start + step * static_cast<std::int64_t>(i) && table.specs[each.spec].numel == size;
        if (!is_one_source) break;
    }
    if (is_shared && position >= 0)
        return Py_BuildValue("iOLO", 0, source, static_cast<long long>(start), shape_of(first));
    if (is_one_source && is_even && !repeats && size > 0 && step >= size) {
        const std::int64_t all = size_of(self, first);
        if (step == size && start == 0 && static_cast<std::int64_t>(count) * size == all)
            return Py_BuildValue("iOOiiO", 1, source, Py_None, 0, 0, shape_of(first));
        const std::int64_t row = start / step, column = start % step;
        if (position >= 0 && all % step == 0 && column + size <= step) {
            return Py_BuildValue("iOLLLO", 2, source, static_cast<long long>(step), static_cast<long long>(row),
                                 static_cast<long long>(column), shape_of(first));
        }
    }
    std::vector<Range> ranges;
    ranges.reserve(count);
    std::unordered_map<PyObject *, int> numbers;
    const Reference sources(PyList_New(0));
    PyObject *last = nullptr;
    int last_number = 0;
    for (std::size_t i = 0; sources && i < count; ++i) {
        const Operand &each = at(i);
        PyObject *from = source_of(self, each);
        if (from != last) {
            const auto [found, is_new] = numbers.emplace(from, static_cast<int>(numbers.size()));
            if (is_new && PyList_Append(sources.get(), from) < 0) return nullptr;
            last = from;
            last_number = found->second;
        }
        const std::int64_t rows = repeats ? table.specs[self->nodes[nodes[i]].call->results[0].spec].first : 1;
        for (std::int64_t row = 0; row < rows; ++row) {
            ranges.push_back({last_number, place_of(self, each), table.specs[each.spec].numel});
        }
    }
    const Reference made(sources ? make_ranges(std::move(ranges)) : nullptr);
    return made ? Py_BuildValue("iOOiiO", 3, sources.get(), made.get(), 0, 0, shape_of(first)) : nullptr;
}

// batch(number, repeated): (group, nodes, sizes of the first dimension of each operand or None if all shapes are equal,
// operands). `repeated[group]` is a tuple of the operands that are one row for all rows of a result; (-1,) for
// groups that only join their operands, which are given as one.
PyObject *batch(PyObject *object, PyObject *args) {
    RecorderObject *self = as_recorder(object);
    Py_ssize_t number;
    PyObject *repeated;
    if (!PyArg_ParseTuple(args, "nO!", &number, &PyDict_Type, &repeated)) return nullptr;
    const std::vector<int> &nodes = self->planned[number];
    const Node &first = self->nodes[nodes[0]];
    bool is_ragged = false;
    for (const int each : nodes) is_ragged = is_ragged || !equal_shapes(self, each, nodes[0]);
    const Reference group(PyLong_FromLong(first.call->group));
    PyObject *positions = group ? PyDict_GetItemWithError(repeated, group.get()) : nullptr;
    const bool is_joined =
        positions && PyTuple_GET_SIZE(positions) && PyLong_AsLong(PyTuple_GET_ITEM(positions, 0)) == -1;
    if (!is_ragged) positions = nullptr;
    const auto sizes_of = [&](std::size_t k) {
        return list_of(nodes.size(), [&](std::size_t i) {
            const Operand *operand = &self->operands[self->nodes[nodes[i]].first];
            return PyLong_FromLongLong(table.specs[operand[k].spec].first);
        });
    };
    const Reference sizes(is_ragged ? tuple_of(is_joined ? 0 : first.count, sizes_of) : Py_NewRef(Py_None));
    const Reference operands(tuple_of(is_joined ? 1 : first.count, [&](std::size_t i) {
        if (is_joined) return operand_of(self, nodes, -1, false);
        bool repeats = false;
        for (Py_ssize_t k = 0; positions && k < PyTuple_GET_SIZE(positions); ++k) {
            repeats = repeats || PyLong_AsSize_t(PyTuple_GET_ITEM(positions, k)) == i;
        }
        return operand_of(self, nodes, static_cast<int>(i), repeats);
    }));
    if (!group || !sizes || !operands) return nullptr;
    return Py_BuildValue("OnOO", group.get(), static_cast<Py_ssize_t>(nodes.size()), sizes.get(), operands.get());
}

// store(number, outputs, is_shared): save the results of a batch; with is_shared, they are those of every node.
PyObject *store(PyObject *object, PyObject *args) {
    RecorderObject *self = as_recorder(object);
    Py_ssize_t number;
    PyObject *outputs;
    int is_shared;
    if (!PyArg_ParseTuple(args, "nO!p", &number, &PyList_Type, &outputs, &is_shared)) return nullptr;
    const std::vector<int> &nodes = self->planned[number];
    Batch made;
    made.is_ragged = false;
    made.is_shared = is_shared && nodes.size() > 1;
    for (const int each : nodes) made.is_ragged = made.is_ragged || !equal_shapes(self, each, nodes[0]);
    std::int64_t row = 0;
    for (const int each : nodes) {
        Node &node = self->nodes[each];
        node.batch = static_cast<int>(self->batches.size());
        node.row = is_shared ? 0 : row;
        row += made.is_ragged ? table.specs[node.call->results[0].spec].first : 1;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(outputs); ++i) {
        made.outputs.push_back(Py_NewRef(PyList_GET_ITEM(outputs, i)));
        std::int64_t size = 0;
        for (const int each : nodes) {
            size += table.specs[self->nodes[each].call->results[i].spec].numel;
            if (is_shared) break;
        }
        made.sizes.push_back(size);
        const char *data = nullptr;
        if (table.specs[self->nodes[nodes[0]].call->results[i].spec].is_on_cpu) {
            static PyObject *name = PyUnicode_InternFromString("data_ptr");
            const Reference address(PyObject_CallMethodNoArgs(made.outputs.back(), name));
            if (address) data = static_cast<const char *>(PyLong_AsVoidPtr(address.get()));
            PyErr_Clear();  // a tensor without memory
        }
        made.data.push_back(data);
    }
    self->batches.push_back(std::move(made));
    Py_RETURN_NONE;
}

// The values of some places, latest first.
template <class Fits>
PyObject *values_of(const PlaceObject *each, Fits fits) {
    Reference found(PyList_New(0));
    for (; found && each; each = each->next) {
        if (fits(*each) && PyList_Append(found.get(), each->value) < 0) return nullptr;
    }
    return found.release();
}

// The values that the program still refers to.
PyObject *values(PyObject *object, PyObject *) {
    return values_of(as_recorder(object)->places, [](const PlaceObject &) { return true; });
}

// The values that are whole results with memory of their own, by batch: (source, shape of one, values, rows).
PyObject *rows(PyObject *object, PyObject *) {
    const RecorderObject *self = as_recorder(object);
    std::map<std::pair<int, int>, std::vector<const PlaceObject *>> groups;  // by batch and output
    for (const PlaceObject *each = self->places; each; each = each->next) {
        const Operand &at = each->place;
        if (at.node < 0 || each->has_views || at.offset || self->nodes[at.node].batch < 0) continue;
        const Node &node = self->nodes[at.node];
        const Batch &batch = self->batches[node.batch];
        if (!batch.is_ragged && !batch.is_shared && at.spec == node.call->results[at.output].spec)
            groups[{node.batch, at.output}].push_back(each);
    }
    Reference found(PyList_New(0));
    for (auto &[place, values] : groups) {
        if (!found || values.size() < 2) continue;
        const Reference group(Py_BuildValue(
            "OONN", self->batches[place.first].outputs[place.second], table.specs[values[0]->place.spec].shape,
            list_of(values.size(), [&](std::size_t i) { return Py_NewRef(values[i]->value); }),
            list_of(values.size(),
                    [&](std::size_t i) { return PyLong_FromLongLong(self->nodes[values[i]->place.node].row); })));
        if (!group || PyList_Append(found.get(), group.get()) < 0) return nullptr;
    }
    return found.release();
}

// The values that are views other than ranges, in the order in which they were made.
PyObject *views(PyObject *object, PyObject *) {
    const RecorderObject *self = as_recorder(object);
    const auto is_view = [](const PlaceObject &place) { return place.view != nullptr; };
    Reference found(values_of(self->views ? self->places : nullptr, is_view));
    return found && PyList_Reverse(found.get()) == 0 ? found.release() : nullptr;
}

// Read the shapes and dtypes of all tensors of the program again.
PyObject *refresh(PyObject *object, PyObject *) {
    RecorderObject *self = as_recorder(object);
    for (std::size_t i = 0; i < self->leaves.size(); ++i) {
        if (!refresh_leaf(self, static_cast<int>(i)) && PyErr_Occurred()) return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject *needs_tensor(PyObject *object, PyObject *tensor) {
    const RecorderObject *self = as_recorder(object);
    const auto found = self->leaf_numbers.find(tensor);
    return PyBool_FromLong(found != self->leaf_numbers.end() && self->leaves[found->second].has_grad_calls);
}

// A value for a tensor.
PyObject *leaf(PyObject *object, PyObject *tensor) {
    RecorderObject *self = as_recorder(object);
    const bool is_new = !self->leaf_numbers.count(tensor);
    const int number = leaf_number(self, tensor);
    if (number < 0) return PyErr_Occurred() ? nullptr : Py_NewRef(tensor);
    self->leaves[number].is_own = is_new || self->leaves[number].is_own;
    return make_value(self, {~number, 0, 0, self->leaves[number].spec});
}

PyObject *suspend(PyObject *object, PyObject *is_suspended) {
    as_recorder(object)->is_suspended = is_suspended == Py_True;
    Py_RETURN_NONE;
}

// Forget all calls; every value must be one of a tensor.
PyObject *restart(PyObject *object, PyObject *) {
    RecorderObject *self = as_recorder(object);
    for (PlaceObject *each = self->places; each; each = each->next) {
        if (each->place.node >= 0) return PyErr_Format(PyExc_ValueError, "a value is not computed");
    }
    std::vector<Leaf> kept;
    std::unordered_map<PyObject *, int> numbers;
    for (PlaceObject *each = self->places; each; each = each->next) {
        const Leaf &leaf = self->leaves[~each->place.node];
        const auto [found, is_new] = numbers.emplace(leaf.tensor, static_cast<int>(kept.size()));
        if (is_new) {
            Py_INCREF(leaf.tensor);
            kept.push_back(leaf);
        }
        each->place.node = ~found->second;
    }
    forget(self);
    self->leaves = std::move(kept);
    self->leaf_numbers = std::move(numbers);
    Py_RETURN_NONE;
}

// Forget everything and the owner; values that are not settled yet can no longer be computed.
PyObject *close(PyObject *object, PyObject *) {
    RecorderObject *self = as_recorder(object);
    end(self);
    while (self->places) unlink(self->places);
    forget(self);
    Py_CLEAR(self->owner);
    Py_RETURN_NONE;
}

PyObject *is_traced(PyObject *object, void *) { return PyBool_FromLong(as_recorder(object)->is_traced); }

PyObject *recorded(PyObject *object, void *) { return PyLong_FromSize_t(as_recorder(object)->recorded); }

PyMethodDef recorder_methods[] = {{"__torch_function__", mode_function, METH_VARARGS, "Record a call of torch."},
                                  {"plan", plan_values, METH_O, "Choose the batches that compute values."},
                                  {"batch", batch, METH_VARARGS, "The group and the operands of a batch."},
                                  {"store", store, METH_VARARGS, "Save the results of a batch."},
                                  {"values", values, METH_NOARGS, "The values that the program refers to."},
                                  {"rows", rows, METH_NOARGS, "The values that are whole results, by batch."},
                                  {"views", views, METH_NOARGS, "The values that are views, but not ranges."},
                                  {"refresh", refresh, METH_NOARGS, "Read the shapes of the program's tensors again."},
                                  {"needs_tensor", needs_tensor, METH_O, "True if a gradient may need a tensor."},
                                  {"leaf", leaf, METH_O, "A value for a tensor."},
                                  {"suspend", suspend, METH_O, "Let Python run every call."},
                                  {"restart", restart, METH_NOARGS, "Forget computed calls."},
                                  {"close", close, METH_NOARGS, "End the recording."},
                                  {nullptr, nullptr, 0, nullptr}};

PyGetSetDef recorder_attributes[] = {{"is_traced", is_traced, nullptr, "True in the body of a cell.", nullptr},
                                     {"recorded", recorded, nullptr, "Number of recorded calls.", nullptr},
                                     {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot recorder_slots[] = {{Py_tp_new, slot(recorder_new)},
                                {Py_tp_dealloc, slot(recorder_dealloc)},
                                {Py_tp_methods, recorder_methods},
                                {Py_tp_getset, recorder_attributes},
                                {Py_tp_doc, const_cast<char *>("A recording of calls of torch.")},
                                {0, nullptr}};

PyType_Spec recorder_definition = {"dpmodule._native.Recorder", sizeof(RecorderObject), 0, Py_TPFLAGS_DEFAULT,
                                   recorder_slots};

}  // namespace

std::int64_t place_of(const RecorderObject *self, const Operand &operand) {
    if (operand.node < 0) return operand.offset;
    const Node &node = self->nodes[operand.node];
    if (node.batch < 0) return -1;
    const Spec &spec = table.specs[node.call->results[operand.output].spec];
    const bool is_ragged = self->batches[node.batch].is_ragged;
    return node.row * (is_ragged && spec.first ? spec.numel / spec.first : spec.numel) + operand.offset;
}

}  // namespace dpmodule::recording

int dpmodule::add_recorder(PyObject *module) {
    return add_type(module, dpmodule::recording::recorder_definition) ? 0 : -1;
}
