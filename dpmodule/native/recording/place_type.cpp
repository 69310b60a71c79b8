// The Python types RecordedPlace and RecordedMethod. Values are tensors without memory, of a subclass made in Python, so
// that torch and Python code accept them; their operators and methods are RecordedMethods.
#include "recording.hpp"
#include "setup.hpp"

#include <structmember.h>

#include <cstring>
#include <string>
#include <utility>

namespace dpmodule::recording {

static const char *memory_of(const PlaceObject *place);
static PyObject *list_of_numbers(const Spec &spec, int dim, const char *&data);

namespace {

PyTypeObject *place_type = nullptr, *method_type = nullptr;
PyObject *place_name = nullptr;
int item_function = -1;  // torch.Tensor.__getitem__

PlaceObject *as_place(PyObject *object) { return reinterpret_cast<PlaceObject *>(object); }

// The recording of a call: that of the first value which still has one.
RecorderObject *recorder_of(PyObject *const *args, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        if (Py_TYPE(args[i]) != setup.value) continue;
        const PlaceObject *place = place_of_value(args[i]);
        if (place && place->recorder) return place->recorder;
    }
    return nullptr;
}

PyObject *call_any(int function, PyObject *const *args, std::size_t count, PyObject *keywords) {
    if (function < 0) return nullptr;
    if (RecorderObject *recorder = recorder_of(args, count)) {
        return call_function(recorder, function, args, count, keywords);
    }
    const Reference positional = tuple_of_arguments(args, count);
    return positional ? PyObject_CallFunctionObjArgs(setup.outside, table.functions[function], positional.get(),
                                                     keywords ? keywords : Py_None, nullptr)
                      : nullptr;
}

// The description of a row of a tensor.
int row_spec(int number) {
    static std::vector<int> known;
    if (number >= static_cast<int>(known.size())) known.resize(number + 64, -1);
    if (known[number] < 0) {
        const Spec spec = table.specs[number];
        const Reference shape(PySequence_GetSlice(spec.shape, 1, spec.dims));
        auto *type = reinterpret_cast<PyObject *>(Py_TYPE(spec.shape));
        const Reference size(shape ? PyObject_CallOneArg(type, shape.get()) : nullptr);
        if (size) known[number] = spec_number(size.get(), spec.dtype, spec.device, spec.needs_grad);
    }
    return known[number];
}

bool is_grad_enabled() { return Reference(PyObject_CallNoArgs(setup.is_grad_enabled)).get() == Py_True; }

// value[row], which needs no call; nullptr, perhaps without an exception, if a call of torch must find it.
PyObject *row_of(PyObject *value, PyObject *index) {
    PlaceObject *place = Py_TYPE(value) == setup.value ? place_of_value(value) : nullptr;
    if (!place || !place->recorder || place->view || !PyLong_CheckExact(index)) return nullptr;
    if (place->place.node < 0 && !place->recorder->leaves[~place->place.node].is_contiguous) return nullptr;
    const Spec &spec = table.specs[place->place.spec];
    if (spec.dims == 0 || (spec.needs_grad && !is_grad_enabled())) return nullptr;
    const std::int64_t count = spec.first;
    int overflow;
    long long row = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (row < 0) row += count;
    if (overflow || row < 0 || row >= count) return nullptr;
    const int made = row_spec(place->place.spec);
    if (made < 0) return nullptr;
    const Operand &from = place->place;
    PyObject *found =
        make_value(place->recorder, {from.node, from.output, from.offset + row * table.specs[made].numel, made});
    if (found) place_of_value(found)->has_views = place->has_views = true;
    return found;
}

template <int which>
PyObject *described(PyObject *, PyObject *value) {
    const PlaceObject *place = place_of_value(value);
    if (!place || !place->recorder) {
        PyErr_Clear();
        return PyObject_CallFunctionObjArgs(setup.outside, Py_None, value, Py_None, nullptr);
    }
    const Spec &spec = table.specs[place->place.spec];
    switch (which) {
        case 0: return Py_NewRef(spec.shape);
        case 1: return Py_NewRef(spec.dtype);
        case 2: return Py_NewRef(spec.device);
        case 3: return PyBool_FromLong(spec.needs_grad);
        default: return PyLong_FromLong(spec.dims);
    }
}

void place_dealloc(PyObject *self) {
    unlink(as_place(self));
    free_object(self);
}

// Let a value refer to the result of another call, after a change in place.
PyObject *become(PyObject *self, PyObject *given) {
    PlaceObject *place = as_place(self), *other = place_of_value(given);
    if (!other || !other->recorder || other->recorder != place->recorder) {
        return PyErr_Format(PyExc_TypeError, "not a value of this recording");
    }
    auto &nodes = place->recorder->nodes;
    if (place->place.node >= 0) --nodes[place->place.node].handles;
    place->place = other->place;
    if (place->place.node >= 0) ++nodes[place->place.node].handles;
    set_view(place, nullptr);
    Py_RETURN_NONE;
}

// Let all values with the memory of a result of a call refer to a tensor with this result.
PyObject *move(PyObject *self, PyObject *given) {
    const PlaceObject *place = as_place(self), *other = place_of_value(given);
    if (!other || !other->recorder || other->recorder != place->recorder) {
        return PyErr_Format(PyExc_TypeError, "not a value of this recording");
    }
    const Operand from = place->place;
    for (PlaceObject *each = place->recorder->places; each; each = each->next) {
        if (each->place.node != from.node || each->place.output != from.output) continue;
        each->place.node = other->place.node;
        each->place.output = 0;
        if (from.node >= 0) --place->recorder->nodes[from.node].handles;
    }
    Py_RETURN_NONE;
}

PyObject *uses(PyObject *self, void *) {
    const PlaceObject *place = as_place(self);
    const bool is_node = place->recorder && place->place.node >= 0;
    return PyLong_FromLong(is_node ? place->recorder->nodes[place->place.node].uses : 0);
}

PyObject *has_views(PyObject *self, void *) { return PyBool_FromLong(as_place(self)->has_views); }

PyObject *is_leaf(PyObject *self, void *) { return PyBool_FromLong(as_place(self)->place.node < 0); }

PyObject *is_own(PyObject *self, void *) {
    const PlaceObject *place = as_place(self);
    const Operand &at = place->place;
    if (!place->recorder || at.node >= 0) Py_RETURN_FALSE;
    const Leaf &leaf = place->recorder->leaves[~at.node];
    return PyBool_FromLong(leaf.is_own && at.offset == 0 && at.spec == leaf.spec);
}

PyObject *is_shared(PyObject *self, void *) {
    const RecorderObject *from = as_place(self)->recorder;
    const int node = as_place(self)->place.node;
    if (from && node < 0) return PyBool_FromLong(from->leaves[~node].is_constant);
    const int batch = from ? from->nodes[node].batch : -1;
    return PyBool_FromLong(batch >= 0 && from->batches[batch].is_shared);
}

PyObject *view_of(PyObject *self, void *) { return Py_NewRef(as_place(self)->view ? as_place(self)->view : Py_None); }

PyObject *owner_of(PyObject *self, void *) {
    const PlaceObject *place = as_place(self);
    return Py_NewRef(place->recorder && place->recorder->owner ? place->recorder->owner : Py_None);
}

PyObject *source_at(const RecorderObject *from, const Operand &at) {
    const std::int64_t offset = from ? place_of(from, at) : -1;
    if (offset < 0) Py_RETURN_NONE;
    PyObject *source =
        at.node < 0 ? from->leaves[~at.node].tensor : from->batches[from->nodes[at.node].batch].outputs[at.output];
    return Py_BuildValue("OLO", source, static_cast<long long>(offset), table.specs[at.spec].shape);
}

PyObject *source_of(PyObject *self, void *) { return source_at(as_place(self)->recorder, as_place(self)->place); }

// The source of the whole result whose range a value is.
PyObject *whole_of(PyObject *self, void *) {
    const RecorderObject *from = as_place(self)->recorder;
    Operand at = as_place(self)->place;
    at.offset = 0;
    if (from) {
        at.spec = at.node < 0 ? from->leaves[~at.node].spec : from->nodes[at.node].call->results[at.output].spec;
    }
    return source_at(from, at);
}

PyMethodDef place_methods[] = {{"become", become, METH_O, "Refer to the result of another value."},
                               {"move", move, METH_O, "Refer to a tensor, with all that shares the memory."},
                               {nullptr, nullptr, 0, nullptr}};

PyGetSetDef place_attributes[] = {
    {"uses", uses, nullptr, "Number of recorded calls that read the value.", nullptr},
    {"has_views", has_views, nullptr, "True if another value shares, or shared, its memory.", nullptr},
    {"is_leaf", is_leaf, nullptr, "True if it is a range of a tensor of the program.", nullptr},
    {"is_own", is_own, nullptr, "True if it is a whole tensor that was made for it.", nullptr},
    {"is_shared", is_shared, nullptr, "True if other calls have the same result in memory.", nullptr},
    {"view", view_of, nullptr, "(base, function, args, kwargs, output) of a view that is not a range, or None.",
     nullptr},
    {"owner", owner_of, nullptr, "The object that computes it; None after the end of the recording.", nullptr},
    {"source", source_of, nullptr, "(tensor, offset, shape), or None if it is not computed.", nullptr},
    {"whole", whole_of, nullptr, "The source of the whole result whose range it is.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot place_slots[] = {{Py_tp_dealloc, slot(place_dealloc)},
                             {Py_tp_doc, const_cast<char *>("Where the value of a recorded call will be.")},
                             {Py_tp_getset, place_attributes},
                             {Py_tp_methods, place_methods},
                             {0, nullptr}};

PyType_Spec place_definition = {"dpmodule._native.RecordedPlace", sizeof(PlaceObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, place_slots};

// A method of values; a descriptor like those of Python functions.
struct MethodObject {
    PyObject_HEAD vectorcallfunc call;
    int function;
};

PyObject *method_call(PyObject *self, PyObject *const *args, std::size_t flags, PyObject *names) {
    const std::size_t count = PyVectorcall_NARGS(flags);
    if (count == 2 && reinterpret_cast<MethodObject *>(self)->function == item_function) {
        if (PyObject *row = row_of(args[0], args[1])) return row;
        if (PyErr_Occurred()) return nullptr;
    }
    const Reference keywords = keywords_of(names, args + count);
    if (PyErr_Occurred()) return nullptr;
    return call_any(reinterpret_cast<MethodObject *>(self)->function, args, count, keywords.get());
}

PyObject *method_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *function;
    if (!PyArg_ParseTuple(args, "O", &function)) return nullptr;
    const int number = function_number(function);
    PyObject *self = number < 0 ? nullptr : type->tp_alloc(type, 0);
    if (self) {
        reinterpret_cast<MethodObject *>(self)->call = method_call;
        reinterpret_cast<MethodObject *>(self)->function = number;
    }
    return self;
}

PyMemberDef method_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(MethodObject, call), READONLY, nullptr},
                                {nullptr, 0, 0, 0, nullptr}};

PyType_Slot method_slots[] = {{Py_tp_new, slot(method_new)},
                              {Py_tp_dealloc, slot(free_object)},
                              {Py_tp_call, slot(PyVectorcall_Call)},
                              {Py_tp_descr_get, slot(bound_to)},
                              {Py_tp_members, method_members},
                              {Py_tp_doc, const_cast<char *>("A function of torch as a method of values.")},
                              {0, nullptr}};

PyType_Spec method_definition = {"dpmodule._native.RecordedMethod", sizeof(MethodObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                 method_slots};

// recording_setup(...): give the objects of torch, once in a process.
PyObject *set_up(PyObject *, PyObject *args, PyObject *keywords) {
    if (PyTuple_GET_SIZE(args) || !keywords) return PyErr_Format(PyExc_TypeError, "takes keyword arguments");
    PyObject *tensor = nullptr, *parameter = nullptr, *value = nullptr;
    const std::pair<const char *, PyObject **> given[] = {{"tensor", &tensor},
                                                          {"parameter", &parameter},
                                                          {"value", &value},
                                                          {"strided", &setup.strided},
                                                          {"constant_types", &setup.constant_types},
                                                          {"make_value", &setup.make_value},
                                                          {"stand_in", &setup.stand_in},
                                                          {"is_wrapped", &setup.is_wrapped},
                                                          {"is_grad_enabled", &setup.is_grad_enabled},
                                                          {"is_autocast_enabled", &setup.is_autocast_enabled},
                                                          {"autocast_state", &setup.autocast_state},
                                                          {"default_dtype", &setup.default_dtype},
                                                          {"classify", &setup.classify},
                                                          {"outside", &setup.outside},
                                                          {"count_modes", &setup.count_modes},
                                                          {"disabled", &setup.disabled},
                                                          {"dtypes", &setup.dtypes},
                                                          {"comparisons", &setup.comparisons},
                                                          {"answers", &setup.answers},
                                                          {"module", &setup.module},
                                                          {"state_of_module", &setup.state_of_module},
                                                          {"store_of_module", &setup.store_of_module},
                                                          {"not_a_cell", &setup.not_a_cell}};
    for (const auto &[name, target] : given) {
        PyObject *found = PyDict_GetItemString(keywords, name);
        if (!found) return PyErr_Format(PyExc_TypeError, "%s is missing", name);
        *target = Py_NewRef(found);
    }
    setup.tensor = reinterpret_cast<PyTypeObject *>(tensor);
    setup.parameter = reinterpret_cast<PyTypeObject *>(parameter);
    setup.value = reinterpret_cast<PyTypeObject *>(value);
    for (PyObject **numbers : {&table.function_numbers, &table.constant_numbers, &table.spec_numbers}) {
        if (!*numbers && !(*numbers = PyDict_New())) return nullptr;
    }
    const Reference item(PyObject_GetAttrString(tensor, "__getitem__"));
    item_function = item ? function_number(item.get()) : -1;
    if (item_function < 0) return nullptr;
    Py_RETURN_NONE;
}

PyObject *spec(PyObject *, PyObject *args) {
    PyObject *shape, *dtype, *device;
    int needs_grad;
    if (!PyArg_ParseTuple(args, "O!OOp", &PyTuple_Type, &shape, &dtype, &device, &needs_grad)) return nullptr;
    const int number = spec_number(shape, dtype, device, needs_grad);
    return number < 0 ? nullptr : PyLong_FromLong(number);
}

PyObject *recorded_number(PyObject *, PyObject *value) {
    const PlaceObject *place = place_of_value(value);
    if (PyObject *found = place ? number_of(place) : nullptr) return found;
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
}

PyObject *recorded_list(PyObject *, PyObject *value) {
    const PlaceObject *place = place_of_value(value);
    const char *data = place ? memory_of(place) : nullptr;
    if (data) return list_of_numbers(table.specs[place->place.spec], 0, data);
    Py_RETURN_NONE;
}

// handle_torch_function(function, tensors, *args, **kwargs): as torch.overrides' function of this name, which is `self`.
PyObject *handle_function(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    RecorderObject *recorder = active_recorder();
    const Reference modes(recorder && count > 1 ? PyObject_CallNoArgs(setup.count_modes) : nullptr);
    const bool is_innermost = modes && PyLong_AsSsize_t(modes.get()) == recorder->modes;
    const int function = is_innermost ? function_number(args[0]) : -1;
    if (function < 0) {
        return PyErr_Occurred() ? nullptr : PyObject_Vectorcall(self, args, static_cast<std::size_t>(count), names);
    }
    const Reference keywords = keywords_of(names, args + count);
    if (PyErr_Occurred()) return nullptr;
    return call_function(recorder, function, args + 2, static_cast<std::size_t>(count - 2), keywords.get());
}

PyMethodDef handler = {"handle_torch_function",
                       reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(handle_function)),
                       METH_FASTCALL | METH_KEYWORDS, "Call a function of torch with tensors that override it."};

PyObject *function_handler(PyObject *, PyObject *function) { return PyCFunction_NewEx(&handler, function, nullptr); }

PyMethodDef functions[] = {
    {"function_handler", function_handler, METH_O, "A faster form of torch's handle_torch_function."},
    {"recorded_list", recorded_list, METH_O, "The numbers of a computed value in lists, or None if it is to be read."},
    {"recorded_number", recorded_number, METH_O, "The number of a computed value, or None if it is to be read."},
    {"recording_setup", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(set_up)), METH_VARARGS | METH_KEYWORDS,
     "Give the objects of torch that recording needs."},
    {"recorded_shape", described<0>, METH_O, "Shape of a value."},
    {"recorded_dtype", described<1>, METH_O, "Dtype of a value."},
    {"recorded_device", described<2>, METH_O, "Device of a value."},
    {"recorded_requires_grad", described<3>, METH_O, "True if a value has a gradient."},
    {"recorded_ndim", described<4>, METH_O, "Number of dimensions of a value."},
    {"recording_spec", spec, METH_VARARGS, "Number of a shape, dtype, device and need of a gradient."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

Reference keywords_of(PyObject *names, PyObject *const *items) {
    Reference made(names && PyTuple_GET_SIZE(names) ? PyDict_New() : nullptr);
    for (Py_ssize_t i = 0; made && i < PyTuple_GET_SIZE(names); ++i) {
        if (PyDict_SetItem(made.get(), PyTuple_GET_ITEM(names, i), items[i]) < 0) made = Reference();
    }
    return made;
}

PyObject *bound_to(PyObject *self, PyObject *object, PyObject *) {
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

// The memory of a computed value; nullptr if it is not on the CPU, or of another kind of numbers, or if it is to become
// a part of a cell.
static const char *memory_of(const PlaceObject *place) {
    const RecorderObject *from = place->recorder;
    const Operand &at = place->place;
    if (!from || from->is_traced || at.node < 0 || from->nodes[at.node].batch < 0 ||
        from->thread != PyThread_get_thread_ident())
        return nullptr;
    const char *data = from->batches[from->nodes[at.node].batch].data[at.output];
    const Spec &spec = table.specs[at.spec];
    return data && spec.number ? data + place_of(from, at) * spec.item_size : nullptr;
}

static PyObject *read_number(char kind, const char *data) {
    const auto read = [&](auto number) {
        std::memcpy(&number, data, sizeof number);
        return number;
    };
    switch (kind) {
        case 'f': return PyFloat_FromDouble(read(float()));
        case 'd': return PyFloat_FromDouble(read(double()));
        case 'l': return PyLong_FromLongLong(read(std::int64_t()));
        case 'i': return PyLong_FromLong(read(std::int32_t()));
        default: return PyBool_FromLong(read(char()));
    }
}

PyObject *number_of(const PlaceObject *place) {
    const RecorderObject *from = place->recorder;
    const Operand &at = place->place;
    for (int i = 0; from && !from->is_traced && i < 2 && at.node < 0; ++i) {
        if (from->leaves[~at.node].tensor == PyTuple_GET_ITEM(setup.answers, i)) return PyBool_FromLong(i);
    }
    const char *data = table.specs[at.spec].numel == 1 ? memory_of(place) : nullptr;
    return data ? read_number(table.specs[at.spec].number, data) : nullptr;
}

static PyObject *list_of_numbers(const Spec &spec, int dim, const char *&data) {
    if (dim == spec.dims) {
        PyObject *found = read_number(spec.number, data);
        data += spec.item_size;
        return found;
    }
    const Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GET_ITEM(spec.shape, dim));
    return list_of(static_cast<std::size_t>(count), [&](std::size_t) { return list_of_numbers(spec, dim + 1, data); });
}

PyObject *make_value(RecorderObject *self, Operand place) {
    const Spec &spec = table.specs[place.spec];
    PyObject *args[] = {reinterpret_cast<PyObject *>(setup.value), spec.stand_in, spec.needs_grad ? Py_True : Py_False};
    Reference value(PyObject_Vectorcall(setup.make_value, args, 3, nullptr));
    const Reference owned(value ? place_type->tp_alloc(place_type, 0) : nullptr);  // by the value
    if (!owned || PyObject_GenericSetAttr(value.get(), place_name, owned.get()) < 0) return nullptr;
    PlaceObject *made = as_place(owned.get());
    made->recorder = static_cast<RecorderObject *>(Py_NewRef(self));
    made->place = place;
    made->value = value.get();
    PyObject_GC_UnTrack(value.get());  // the collector need not walk the recording
    made->next = self->places;
    if (self->places) self->places->previous = made;
    self->places = made;
    if (place.node >= 0) ++self->nodes[place.node].handles;
    return value.release();
}

PlaceObject *place_of_value(PyObject *value) {
    const Reference found(PyObject_GenericGetAttr(value, place_name));
    if (!found) PyErr_Clear();
    return found && Py_TYPE(found.get()) == place_type ? as_place(found.get()) : nullptr;
}

void set_view(PlaceObject *place, PyObject *view) {
    if (place->recorder) place->recorder->views += (view ? 1 : 0) - (place->view ? 1 : 0);
    const Reference former(std::exchange(place->view, view));
}

void unlink(PlaceObject *place) {
    RecorderObject *recorder = place->recorder;
    if (!recorder) return;
    const Reference owned(recorder), view(std::exchange(place->view, nullptr));
    if (view) --recorder->views;
    if (place->previous) place->previous->next = place->next;
    else recorder->places = place->next;
    if (place->next) place->next->previous = place->previous;
    if (place->place.node >= 0) --recorder->nodes[place->place.node].handles;
    place->recorder = nullptr;
    place->next = place->previous = nullptr;
}

}  // namespace dpmodule::recording

int dpmodule::add_recorded_place(PyObject *module) {
    using namespace dpmodule::recording;
    if (!(place_name = PyUnicode_InternFromString("_place"))) return -1;
    if (!(place_type = add_type(module, place_definition)) || !(method_type = add_type(module, method_definition)))
        return -1;
    return PyModule_AddFunctions(module, functions);
}
