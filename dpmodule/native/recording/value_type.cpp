// The Python types RecordedValue and RecordedMethod: operators, methods and cheap attributes of values.
// The other attributes are added in Python.
#include "recording.hpp"
#include "setup.hpp"

#include <structmember.h>

#include <string>

namespace dpmodule::recording {

PyTypeObject *value_type = nullptr;

namespace {

PyTypeObject *method_type = nullptr;

// Numbers of the functions of operators, and of those with the value on the right.
int forward_function[24], reflected_function[24];
enum Operator { add, sub, mul, truediv, floordiv, mod, matmul, pow_, and_, or_, xor_, lshift, rshift, neg, abs_, invert,
                lt, le, eq, ne, gt, ge, getitem, operators };
const char *const operator_names[] = {"add",    "sub",    "mul", "truediv", "floordiv", "mod", "matmul", "pow",
                                      "and",    "or",     "xor", "lshift",  "rshift",   "neg", "abs",    "invert",
                                      "lt",     "le",     "eq",  "ne",      "gt",       "ge",  "getitem"};

ValueObject *as_value(PyObject *object) { return reinterpret_cast<ValueObject *>(object); }

// The recording of a call: that of the first value which still has one.
RecorderObject *recorder_of(PyObject *const *args, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        if (Py_TYPE(args[i]) == value_type && as_value(args[i])->recorder) return as_value(args[i])->recorder;
    }
    return nullptr;
}

PyObject *call_any(int function, PyObject *const *args, std::size_t count, PyObject *keywords) {
    if (function < 0) return nullptr;
    if (RecorderObject *recorder = recorder_of(args, count)) {
        return call_function(recorder, function, args, count, keywords);
    }
    PyObject *positional = tuple_of(count, [&](std::size_t i) { return Py_NewRef(args[i]); });
    PyObject *found = positional ? PyObject_CallFunctionObjArgs(setup.outside, table.functions[function], positional,
                                                                keywords ? keywords : Py_None, nullptr)
                                 : nullptr;
    Py_XDECREF(positional);
    return found;
}

template <int which>
PyObject *binary(PyObject *a, PyObject *b) {
    if (Py_TYPE(a) == value_type) {
        PyObject *args[] = {a, b};
        return call_any(forward_function[which], args, 2, nullptr);
    }
    PyObject *args[] = {b, a};
    return call_any(reflected_function[which], args, 2, nullptr);
}

PyObject *power(PyObject *a, PyObject *b, PyObject *) { return binary<pow_>(a, b); }

template <int which>
PyObject *unary(PyObject *a) {
    return call_any(forward_function[which], &a, 1, nullptr);
}

PyObject *compare(PyObject *a, PyObject *b, int which) {
    static const int order[] = {lt, le, eq, ne, gt, ge};
    static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);
    PyObject *args[] = {a, b};
    return call_any(forward_function[order[which]], args, 2, nullptr);
}

// The description of a row of a tensor.
int row_spec(int number) {
    static std::vector<int> known;
    if (number >= static_cast<int>(known.size())) known.resize(number + 64, -1);
    if (known[number] < 0) {
        const Spec spec = table.specs[number];
        PyObject *shape = PySequence_GetSlice(spec.shape, 1, spec.dims);
        PyObject *size = shape ? PyObject_CallOneArg(reinterpret_cast<PyObject *>(Py_TYPE(spec.shape)), shape) : nullptr;
        if (size) known[number] = spec_number(size, spec.dtype, spec.device, spec.needs_grad);
        Py_XDECREF(shape);
        Py_XDECREF(size);
    }
    return known[number];
}

bool is_grad_enabled() {
    PyObject *found = PyObject_CallNoArgs(setup.is_grad_enabled);
    Py_XDECREF(found);
    return found == Py_True;
}

PyObject *get_item(PyObject *self, PyObject *index) {
    ValueObject *value = as_value(self);
    const Spec *spec = value->recorder ? &table.specs[value->place.spec] : nullptr;
    // a row needs no call
    if (spec && spec->dims > 0 && PyLong_CheckExact(index) &&
        (!spec->needs_grad || is_grad_enabled())) {
        long row = PyLong_AsLong(index);
        if (row < 0) row += spec->first;
        if (row >= 0 && row < spec->first) {
            const int made = row_spec(value->place.spec);
            if (made < 0) return nullptr;
            const std::int64_t size = table.specs[made].numel;
            const Operand place = value->place;
            PyObject *found = make_value(value->recorder, {place.node, place.output, place.offset + row * size, made});
            if (found) as_value(found)->has_views = value->has_views = true;
            return found;
        }
    }
    PyErr_Clear();
    PyObject *args[] = {self, index};
    return call_any(forward_function[getitem], args, 2, nullptr);
}

Py_hash_t hash(PyObject *self) { return static_cast<Py_hash_t>(reinterpret_cast<std::intptr_t>(self) >> 4); }

void value_dealloc(PyObject *self) {
    ValueObject *value = as_value(self);
    unlink(value);
    Py_XDECREF(value->tensor);
    free_object(self);
}

template <int which>
PyObject *described(PyObject *self, void *) {
    ValueObject *value = as_value(self);
    if (!value->recorder) {
        static const char *const names[] = {"shape", "dtype", "device", "requires_grad", "ndim"};
        PyObject *tensor = tensor_of(value), *found = tensor ? PyObject_GetAttrString(tensor, names[which]) : nullptr;
        Py_XDECREF(tensor);
        return found;
    }
    const Spec &spec = table.specs[value->place.spec];
    switch (which) {
        case 0: return Py_NewRef(spec.shape);
        case 1: return Py_NewRef(spec.dtype);
        case 2: return Py_NewRef(spec.device);
        case 3: return PyBool_FromLong(spec.needs_grad);
        default: return PyLong_FromLong(spec.dims);
    }
}

PyObject *get_class(PyObject *, void *) { return Py_NewRef(reinterpret_cast<PyObject *>(setup.tensor)); }

PyObject *get_tensor(PyObject *self, void *) { return tensor_of(as_value(self)); }

PyGetSetDef value_attributes[] = {
    {"shape", described<0>, nullptr, "Shape of the tensor.", nullptr},
    {"dtype", described<1>, nullptr, "Dtype of the tensor.", nullptr},
    {"device", described<2>, nullptr, "Device of the tensor.", nullptr},
    {"requires_grad", described<3>, nullptr, "True if it has a gradient.", nullptr},
    {"ndim", described<4>, nullptr, "Number of dimensions.", nullptr},
    {"tensor", get_tensor, nullptr, "The tensor, which is computed if necessary.", nullptr},
    {"__class__", get_class, nullptr, "torch.Tensor.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyObject *torch_function(PyObject *, PyObject *args) {
    PyObject *function, *types, *positional = nullptr, *keywords = nullptr;
    if (!PyArg_ParseTuple(args, "OO|OO", &function, &types, &positional, &keywords)) return nullptr;
    return PyObject_CallFunctionObjArgs(setup.outside, function, positional, keywords ? keywords : Py_None, nullptr);
}

// Set the tensor of a value and end its part in the recording.
PyObject *settle(PyObject *self, PyObject *tensor) {
    unlink(as_value(self));
    Py_XSETREF(as_value(self)->tensor, Py_NewRef(tensor));
    Py_RETURN_NONE;
}

// Let a value stand for another one, after a change in place.
PyObject *become(PyObject *self, PyObject *given) {
    ValueObject *value = as_value(self), *other = as_value(given);
    if (!other->recorder || other->recorder != value->recorder) return PyErr_Format(PyExc_TypeError, "not of this recording");
    auto &nodes = value->recorder->nodes;
    if (value->place.node >= 0) --nodes[value->place.node].handles;
    value->place = other->place;
    if (value->place.node >= 0) ++nodes[value->place.node].handles;
    Py_CLEAR(value->tensor);
    return Py_NewRef(self);
}

PyObject *has_views(PyObject *self, PyObject *) { return PyBool_FromLong(as_value(self)->has_views); }

PyObject *owner_of(PyObject *self, PyObject *) {
    ValueObject *value = as_value(self);
    return Py_NewRef(value->recorder && value->recorder->owner ? value->recorder->owner : Py_None);
}

// (node or leaf, tensor or None)
PyObject *source_of(PyObject *self, PyObject *) {
    ValueObject *value = as_value(self);
    if (!value->recorder) return Py_BuildValue("OLO", value->tensor ? value->tensor : Py_None, 0ll, Py_None);
    const Operand &place = value->place;
    const std::int64_t offset = place_of(value->recorder, place);
    if (offset < 0) Py_RETURN_NONE;
    PyObject *source = place.node < 0 ? value->recorder->leaves[~place.node].tensor
                                      : value->recorder->batches[value->recorder->nodes[place.node].batch].outputs[place.output];
    return Py_BuildValue("OLO", source, static_cast<long long>(offset), table.specs[place.spec].shape);
}

PyMethodDef value_methods[] = {
    {"__torch_function__", torch_function, METH_VARARGS | METH_CLASS, "Record a call of torch."},
    {"_settle", settle, METH_O, "Set the tensor."},
    {"_become", become, METH_O, "Stand for another value."},
    {"_has_views", has_views, METH_NOARGS, "True if another value shares its memory."},
    {"_owner", owner_of, METH_NOARGS, "The object that computes it; None after the end of the recording."},
    {"_source", source_of, METH_NOARGS, "(tensor, offset, shape), or None if it is not computed."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot value_slots[] = {
    {Py_tp_dealloc, slot(value_dealloc)},
    {Py_tp_doc, const_cast<char *>("A tensor that a batching block has not computed yet.")},
    {Py_tp_getset, value_attributes},
    {Py_tp_methods, value_methods},
    {Py_tp_hash, slot(hash)},
    {Py_tp_richcompare, slot(compare)},
    {Py_mp_subscript, slot(get_item)},
    {Py_nb_add, slot(binary<add>)},
    {Py_nb_subtract, slot(binary<sub>)},
    {Py_nb_multiply, slot(binary<mul>)},
    {Py_nb_true_divide, slot(binary<truediv>)},
    {Py_nb_floor_divide, slot(binary<floordiv>)},
    {Py_nb_remainder, slot(binary<mod>)},
    {Py_nb_matrix_multiply, slot(binary<matmul>)},
    {Py_nb_power, slot(power)},
    {Py_nb_and, slot(binary<and_>)},
    {Py_nb_or, slot(binary<or_>)},
    {Py_nb_xor, slot(binary<xor_>)},
    {Py_nb_lshift, slot(binary<lshift>)},
    {Py_nb_rshift, slot(binary<rshift>)},
    {Py_nb_negative, slot(unary<neg>)},
    {Py_nb_absolute, slot(unary<abs_>)},
    {Py_nb_invert, slot(unary<invert>)},
    {0, nullptr}};

PyType_Spec value_definition = {"dpmodule._native.RecordedValue", sizeof(ValueObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, value_slots};

// A method of values; a descriptor like those of Python functions.
struct MethodObject {
    PyObject_HEAD vectorcallfunc call;
    int function;
};

PyObject *method_call(PyObject *self, PyObject *const *args, std::size_t flags, PyObject *names) {
    const std::size_t count = PyVectorcall_NARGS(flags);
    PyObject *keywords = nullptr;
    if (names && PyTuple_GET_SIZE(names)) {
        if (!(keywords = PyDict_New())) return nullptr;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
            if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]) < 0) {
                Py_DECREF(keywords);
                return nullptr;
            }
        }
    }
    PyObject *found = call_any(reinterpret_cast<MethodObject *>(self)->function, args, count, keywords);
    Py_XDECREF(keywords);
    return found;
}

PyObject *method_get(PyObject *self, PyObject *object, PyObject *) {
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
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
                              {Py_tp_descr_get, slot(method_get)},
                              {Py_tp_members, method_members},
                              {Py_tp_doc, const_cast<char *>("A function of torch as a method of values.")},
                              {0, nullptr}};

PyType_Spec method_definition = {"dpmodule._native.RecordedMethod", sizeof(MethodObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                 method_slots};

// recording_setup(...): give the objects of torch, once in a process.
PyObject *set_up(PyObject *, PyObject *args, PyObject *keywords) {
    static const char *names[] = {"tensor",         "parameter", "strided", "is_wrapped", "is_grad_enabled", "is_autocast_enabled",
                                  "autocast_state", "classify",  "outside", nullptr};
    PyObject *tensor, *parameter;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!OOOOOOO", const_cast<char **>(names), &PyType_Type, &tensor,
                                     &PyType_Type, &parameter, &setup.strided, &setup.is_wrapped, &setup.is_grad_enabled,
                                     &setup.is_autocast_enabled, &setup.autocast_state, &setup.classify, &setup.outside)) {
        return nullptr;
    }
    setup.tensor = reinterpret_cast<PyTypeObject *>(tensor);
    setup.parameter = reinterpret_cast<PyTypeObject *>(parameter);
    for (PyObject *each : {tensor, parameter, setup.strided, setup.is_wrapped, setup.is_grad_enabled,
                           setup.is_autocast_enabled, setup.autocast_state, setup.classify, setup.outside}) {
        Py_INCREF(each);
    }
    for (PyObject **numbers : {&table.function_numbers, &table.constant_numbers, &table.spec_numbers}) {
        if (!*numbers && !(*numbers = PyDict_New())) return nullptr;
    }
    for (int i = 0; i < operators; ++i) {
        PyObject *function = PyObject_GetAttrString(tensor, ("__" + std::string(operator_names[i]) + "__").c_str());
        forward_function[i] = function ? function_number(function) : -1;
        Py_XDECREF(function);
        if (forward_function[i] < 0) return nullptr;
        function = PyObject_GetAttrString(tensor, ("__r" + std::string(operator_names[i]) + "__").c_str());
        reflected_function[i] = function ? function_number(function) : forward_function[i];
        Py_XDECREF(function);
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

PyObject *spec(PyObject *, PyObject *args) {
    PyObject *shape, *dtype, *device;
    int needs_grad;
    if (!PyArg_ParseTuple(args, "O!OOp", &PyTuple_Type, &shape, &dtype, &device, &needs_grad)) return nullptr;
    const int number = spec_number(shape, dtype, device, needs_grad);
    return number < 0 ? nullptr : PyLong_FromLong(number);
}

PyMethodDef functions[] = {
    {"recording_setup", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(set_up)), METH_VARARGS | METH_KEYWORDS,
     "Give the objects of torch that recording needs."},
    {"recording_spec", spec, METH_VARARGS, "Number of a shape, dtype, device and need of a gradient."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject *make_value(RecorderObject *self, Operand place) {
    auto *made = as_value(value_type->tp_alloc(value_type, 0));
    if (!made) return nullptr;
    made->recorder = reinterpret_cast<RecorderObject *>(Py_NewRef(reinterpret_cast<PyObject *>(self)));
    made->place = place;
    made->next = self->values;
    if (self->values) self->values->previous = made;
    self->values = made;
    if (place.node >= 0) ++self->nodes[place.node].handles;
    return reinterpret_cast<PyObject *>(made);
}

void unlink(ValueObject *value) {
    RecorderObject *recorder = value->recorder;
    if (!recorder) return;
    if (value->previous) value->previous->next = value->next;
    else recorder->values = value->next;
    if (value->next) value->next->previous = value->previous;
    if (value->place.node >= 0) --recorder->nodes[value->place.node].handles;
    value->recorder = nullptr;
    value->next = value->previous = nullptr;
    Py_DECREF(reinterpret_cast<PyObject *>(recorder));
}

PyObject *tensor_of(ValueObject *value) {
    if (value->tensor) return Py_NewRef(value->tensor);
    if (!value->recorder || !value->recorder->owner) {
        return PyObject_CallFunctionObjArgs(setup.outside, Py_None, reinterpret_cast<PyObject *>(value), Py_None, nullptr);
    }
    PyObject *found = PyObject_CallMethod(value->recorder->owner, "tensor_of", "O", value);
    if (found) Py_XSETREF(value->tensor, Py_NewRef(found));
    return found;
}

}  // namespace dpmodule::recording

int dpmodule::add_recorded_value(PyObject *module) {
    using namespace dpmodule::recording;
    if (!(value_type = add_type(module, value_definition)) || !(method_type = add_type(module, method_definition))) return -1;
    return PyModule_AddFunctions(module, functions);
}
