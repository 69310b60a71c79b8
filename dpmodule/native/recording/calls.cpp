// Keys of calls, and the nodes that record them.
#include <memory>
#include <utility>

#include "../errors.hpp"
#include "arguments.hpp"
#include "recording.hpp"
#include "setup.hpp"

namespace dpmodule::recording {

Table table;
Setup setup;

namespace {

// The call of a key, described by Python when it is first seen; nullptr with an exception.
Call *call_of(RecorderObject *self, int function, PyObject *const *args, std::size_t count, PyObject *keywords,
              Arguments &arguments) {
    const auto found = table.calls.find(arguments.key);
    if (found != table.calls.end()) return &found->second;
    const Reference positional = tuple_of_arguments(args, count),
                    operands = tuple_of_arguments(arguments.given.data(), arguments.given.size());
    if (!positional || !operands) return nullptr;
    const Reference described(PyObject_CallMethod(self->owner, "describe", "OOOO", table.functions[function],
                                                  positional.get(), keywords ? keywords : Py_None, operands.get()));
    if (!described) return nullptr;
    Call call;
    PyObject *results, *pack, *constant;
    int is_constant, is_single;
    if (described.get() != Py_None) {
        if (!PyArg_ParseTuple(described.get(), "pOiO!pO", &is_constant, &constant, &call.group, &PyTuple_Type, &results,
                              &is_single, &pack))
            return nullptr;
        call.kind = is_constant ? Call::Kind::constant : Call::Kind::values;
        call.is_single = is_single;
        if (is_constant) call.constant = Py_NewRef(constant);
        if (pack != Py_None) call.pack = Py_NewRef(pack);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); ++i) {
            long long offset;
            Result result;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(results, i), "iiLi", &result.spec, &result.source, &offset,
                                  &result.base))
                return nullptr;
            result.offset = offset;
            call.results.push_back(result);
        }
    }
    return &table.calls.emplace(arguments.key, std::move(call)).first->second;
}

}  // namespace

int partition_of(RecorderObject *self, const Call &call, const Operand *operands, int count) {
    Key key{call.group};
    for (int i = 0; i < count; ++i) {
        const Operand &operand = operands[i];
        // rows of a table may run together
        if (operand.node >= 0 || operand.spec != self->leaves[~operand.node].spec) continue;
        if (self->leaves[~operand.node].is_parameter) key.push_back(operand.node);
    }
    const auto [found, is_new] = self->partition_numbers.emplace(key, static_cast<int>(self->partition_numbers.size()));
    return found->second;
}

namespace {

// Whether a call makes a number without a gradient from computed values: a condition, such as `await score > 0`.
bool is_soon_read(const RecorderObject *self, const Call &call, const std::vector<Operand> &operands) {
    if (call.group < 0 || !call.is_single) return false;
    const Spec &spec = table.specs[call.results[0].spec];
    if (spec.numel != 1 || spec.needs_grad) return false;
    bool has_value = false;
    for (const Operand &operand : operands) {
        if (operand.node < 0) continue;
        if (self->nodes[operand.node].batch < 0) return false;
        has_value = true;
    }
    return has_value;
}

PyObject *run_in_python(RecorderObject *self, const char *method, int function, PyObject *const *args,
                        std::size_t count, PyObject *keywords) {
    const Reference positional = tuple_of_arguments(args, count);
    return positional ? PyObject_CallMethod(self->owner, method, "OOO", table.functions[function], positional.get(),
                                            keywords ? keywords : Py_None)
                      : nullptr;
}

// While it lives, torch's attributes and functions are called without the modes of the thread.
class Undispatched {
  public:
    Undispatched() : guard_(PyObject_CallNoArgs(setup.disabled)) {
        Py_XDECREF(guard_ ? PyObject_CallMethod(guard_, "__enter__", nullptr) : nullptr);
    }
    ~Undispatched() {
        PyObject *kind, *error, *traceback;
        PyErr_Fetch(&kind, &error, &traceback);
        if (guard_) Py_XDECREF(PyObject_CallMethod(guard_, "__exit__", "OOO", Py_None, Py_None, Py_None));
        Py_XDECREF(guard_);
        PyErr_Restore(kind, error, traceback);
    }

  private:
    PyObject *guard_;
};

// A call of torch, to be made again for views.
struct Made {
    int function;
    PyObject *const *args;
    std::size_t count;
    PyObject *keywords;
};

// A tensor that several values share.
PyObject *shared_value(RecorderObject *self, PyObject *tensor) {
    const int known = leaf_number(self, tensor);
    if (known < 0) return nullptr;
    Leaf leaf = self->leaves[known];  // one for each value: a change gives only this value other memory
    leaf.is_constant = true;
    Py_INCREF(leaf.tensor);
    const int number = static_cast<int>(self->leaves.size());
    self->leaves.push_back(leaf);
    return make_value(self, {~number, 0, 0, leaf.spec});
}

PyObject *call_torch(int function, PyObject *const *args, std::size_t count, PyObject *keywords) {
    const Undispatched guard;
    const Reference positional = tuple_of_arguments(args, count);
    return positional ? PyObject_Call(table.functions[function], positional.get(), keywords) : nullptr;
}

// The result of a call that depends only on numbers of Python and on the description of a tensor.
PyObject *constant_value(RecorderObject *self, int function, PyObject *const *args, std::size_t count,
                         PyObject *keywords) {
    Arguments arguments(self);
    arguments.key.push_back(function);
    const Reference dtype(PyObject_CallNoArgs(setup.default_dtype));
    bool fits = dtype && arguments.add(dtype.get()) && arguments.add_all(args, count, keywords);
    if (PyErr_Occurred()) return nullptr;
    fits = fits && arguments.operands.size() == (table.treatments[function] == Treatment::like);
    const auto known = fits ? self->constants.find(arguments.key) : self->constants.end();
    if (known != self->constants.end()) return shared_value(self, self->leaves[known->second].tensor);
    Reference found(run_in_python(self, fits ? "constant" : "eager", function, args, count, keywords));
    if (!fits || !found || !PyTuple_Check(found.get())) return found.release();
    PyObject *tensor = PyTuple_GET_ITEM(found.get(), 0), *made = shared_value(self, tensor);
    if (made) self->constants.emplace(arguments.key, ~place_of_value(made)->place.node);
    return made || PyErr_Occurred() ? made : Py_NewRef(tensor);
}

// The answer of a comparison of a computed number with one of Python; nullptr, perhaps with an exception, for others.
PyObject *compared(RecorderObject *self, int function, PyObject *const *args, std::size_t count, PyObject *keywords) {
    if (count != 2 || keywords || Py_TYPE(args[0]) != setup.value) return nullptr;
    PyObject *comparison = PyDict_GetItemWithError(setup.comparisons, table.functions[function]);
    const PlaceObject *place = comparison ? place_of_value(args[0]) : nullptr;
    const char kind = place ? table.specs[place->place.spec].number : 0;
    const bool is_real = kind == 'f' || kind == 'd', is_float = PyFloat_CheckExact(args[1]);
    if (!(is_real && is_float) && !((is_real || kind == 'l') && PyLong_CheckExact(args[1]))) return nullptr;
    const Reference left(number_of(place));
    Reference right;
    if (left && kind == 'l') right = Reference(Py_NewRef(args[1]));
    if (left && is_real) {  // torch compares in the dtype of the tensor
        const double number = PyFloat_AsDouble(args[1]);
        right = Reference(PyFloat_FromDouble(kind == 'f' ? static_cast<double>(static_cast<float>(number)) : number));
    }
    const int answer =
        right && !PyErr_Occurred()
            ? PyObject_RichCompareBool(left.get(), right.get(), static_cast<int>(PyLong_AsLong(comparison)))
            : -1;
    if (answer >= 0) return shared_value(self, PyTuple_GET_ITEM(setup.answers, answer));
    PyErr_Clear();  // an integer of more than 64 bits
    return nullptr;
}

// The value of one result of a node, or of a range of an operand.
PyObject *value_of(RecorderObject *self, const Result &result, int node, int output, const Arguments &arguments,
                   const Made &made_by) {
    Operand place{node, output, 0, result.spec};
    PyObject *given = result.base >= 0 ? arguments.given[result.base] : nullptr;
    const bool is_value = given && Py_TYPE(given) == setup.value;
    bool is_range = result.source >= 0;
    if (is_range) {
        if (!given) return Py_NewRef(arguments.given[result.source]);
        const Operand &source = arguments.operands[result.source];
        place = {source.node, source.output, source.offset + result.offset, result.spec};
        is_range = source.node >= 0 || self->leaves[~source.node].is_contiguous;
        is_range = is_range && !(is_value && place_of_value(given)->view);
    }
    Reference made(make_value(self, place));
    if (!made || !given) return made.release();
    place_of_value(made.get())->has_views = true;
    if (is_value) place_of_value(given)->has_views = true;
    if (is_range) return made.release();
    const Reference args = tuple_of_arguments(made_by.args, made_by.count);
    PyObject *view = args ? Py_BuildValue("OOOOi", given, table.functions[made_by.function], args.get(),
                                          made_by.keywords ? made_by.keywords : Py_None, output)
                          : nullptr;
    if (!view) return nullptr;
    set_view(place_of_value(made.get()), view);
    return made.release();
}

}  // namespace

int spec_number(PyObject *shape, PyObject *dtype, PyObject *device, bool needs_grad) {
    const Reference tuple(PyTuple_Pack(4, shape, dtype, device, needs_grad ? Py_True : Py_False));
    PyObject *known = tuple ? PyDict_GetItemWithError(table.spec_numbers, tuple.get()) : nullptr;
    if (known) return static_cast<int>(PyLong_AsLong(known));
    if (PyErr_Occurred()) return -1;
    const int dims = static_cast<int>(PyTuple_GET_SIZE(shape));
    Reference stand_in(PyObject_CallFunctionObjArgs(setup.stand_in, shape, dtype, nullptr));
    const Reference name(PyObject_Str(device));
    const bool is_on_cpu = name && PyUnicode_CompareWithASCIIString(name.get(), "cpu") == 0;
    PyErr_Clear();  // no operand has a description without a stand-in
    // Python code has run, and other threads with it
    const int number = stand_in ? number_in(table.spec_numbers, tuple.get()) : -1;
    if (number < static_cast<int>(table.specs.size())) return number;
    Spec spec{Py_NewRef(shape),
              Py_NewRef(dtype),
              Py_NewRef(device),
              stand_in.release(),
              needs_grad,
              dims,
              1,
              1,
              is_on_cpu,
              0,
              0};
    for (int i = 0; i < dims; ++i) {
        const std::int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
        if (i == 0) spec.first = size;
        spec.numel *= size;
    }
    for (int i = 0; i < 5 && is_on_cpu; ++i) {
        if (PyTuple_GET_ITEM(setup.dtypes, i) == dtype) spec.number = "fdli?"[i], spec.item_size = "\4\10\10\4\1"[i];
    }
    table.specs.push_back(spec);
    return number;
}

// -1, perhaps with an exception, for tensors that are not ordinary ones.
int spec_of_tensor(PyObject *tensor) {
    static PyObject *names[] = {PyUnicode_InternFromString("layout"), PyUnicode_InternFromString("shape"),
                                PyUnicode_InternFromString("dtype"), PyUnicode_InternFromString("device"),
                                PyUnicode_InternFromString("requires_grad")};
    Reference found[5];
    for (int i = 0; i < 5; ++i) {
        found[i] = Reference(PyObject_GetAttr(tensor, names[i]));
        if (!found[i] || (i == 0 && found[i].get() != setup.strided)) return -1;
    }
    const Reference wrapped(PyObject_CallOneArg(setup.is_wrapped, tensor));
    if (wrapped.get() != Py_False) return -1;
    return spec_number(found[1].get(), found[2].get(), found[3].get(), found[4].get() == Py_True);
}

// Describe a tensor as a leaf; false, perhaps with an exception, if it is not an ordinary one.
static bool describe_leaf(PyObject *tensor, Leaf &leaf) {
    const Undispatched guard;
    static PyObject *contiguous_name = PyUnicode_InternFromString("is_contiguous");
    leaf.spec = spec_of_tensor(tensor);
    if (leaf.spec < 0) return false;
    // weights: the parameters of modules, and other tensors that are trained
    const Reference is_leaf(table.specs[leaf.spec].needs_grad ? PyObject_GetAttrString(tensor, "is_leaf") : nullptr),
        is_contiguous(PyObject_CallMethodNoArgs(tensor, contiguous_name));
    leaf.is_parameter = Py_TYPE(tensor) == setup.parameter || is_leaf.get() == Py_True;
    leaf.is_contiguous = is_contiguous.get() == Py_True;
    return static_cast<bool>(is_contiguous);
}

int leaf_number(RecorderObject *self, PyObject *tensor) {
    const auto found = self->leaf_numbers.find(tensor);
    if (found != self->leaf_numbers.end()) return found->second;
    Leaf leaf{tensor, -1, false, false, false, false, false};
    if (!describe_leaf(tensor, leaf)) return -1;
    const int number = static_cast<int>(self->leaves.size());
    Py_INCREF(tensor);
    self->leaves.push_back(leaf);
    self->leaf_numbers.emplace(tensor, number);
    return number;
}

bool refresh_leaf(RecorderObject *self, int number) {
    Leaf leaf = self->leaves[number];
    const bool needed_grad = table.specs[leaf.spec].needs_grad;
    if (!describe_leaf(leaf.tensor, leaf)) return false;
    self->leaves[number] = leaf;
    const bool needs_grad = table.specs[leaf.spec].needs_grad;
    for (PlaceObject *each = self->places; each && needs_grad != needed_grad; each = each->next) {
        if (each->place.node != ~number) continue;
        const Spec spec = table.specs[each->place.spec];
        const int changed = spec_number(spec.shape, spec.dtype, spec.device, needs_grad);
        if (changed < 0) return false;
        each->place.spec = changed;
    }
    return true;
}

int function_number(PyObject *function) {
    PyObject *known = PyDict_GetItemWithError(table.function_numbers, function);
    if (known || PyErr_Occurred()) return known ? static_cast<int>(PyLong_AsLong(known)) : -1;
    const Reference treatment(PyObject_CallOneArg(setup.classify, function));
    // Python code has run, and other threads with it
    const int number = treatment ? number_in(table.function_numbers, function) : -1;
    if (number >= static_cast<int>(table.functions.size())) {
        table.functions.push_back(Py_NewRef(function));
        table.treatments.push_back(static_cast<Treatment>(PyLong_AsLong(treatment.get())));
    }
    return number;
}

PyObject *call_function(RecorderObject *self, int function, PyObject *const *args, std::size_t count,
                        PyObject *keywords) {
    if (self->thread != PyThread_get_thread_ident()) {
        return set_named_error("dpmodule.base", "StateError",
                               "batching: a tensor of a block is used in another thread; use it in "
                               "the thread of the block, or after its end");
    }
    if (self->is_traced && !fits_trace(self, table.treatments[function], args, count)) return nullptr;
    if (self->is_suspended) return run_in_python(self, "suspended", function, args, count, keywords);
    const Treatment treatment = table.treatments[function];
    if ((treatment == Treatment::read || treatment == Treatment::attribute) && count && Py_TYPE(args[0]) != setup.value)
        return call_torch(function, args, count, keywords);
    if (treatment == Treatment::in_place) return run_in_python(self, "in_place", function, args, count, keywords);
    if (treatment == Treatment::constant || treatment == Treatment::like)
        return constant_value(self, function, args, count, keywords);
    if (treatment != Treatment::record) return run_in_python(self, "eager", function, args, count, keywords);
    Arguments arguments(self);
    arguments.key.push_back(function);
    const bool fits = arguments.add_modes() && arguments.add_all(args, count, keywords);
    if (PyErr_Occurred()) return nullptr;
    if ((!fits || arguments.operands.empty()) && self->is_traced) return abort_trace();
    if (!fits || arguments.operands.empty()) return run_in_python(self, "eager", function, args, count, keywords);
    Call *call = call_of(self, function, args, count, keywords, arguments);
    if (!call) return nullptr;
    if (call->kind == Call::Kind::constant) return Py_NewRef(call->constant);
    if (call->kind == Call::Kind::eager && self->is_traced) return abort_trace();
    if (call->kind == Call::Kind::eager) return run_in_python(self, "eager", function, args, count, keywords);
    if (is_soon_read(self, *call, arguments.operands)) {
        PyObject *found = compared(self, function, args, count, keywords);
        return found || PyErr_Occurred() ? found : run_in_python(self, "eager", function, args, count, keywords);
    }
    const int node = call->group >= 0 ? static_cast<int>(self->nodes.size()) : -1;
    if (node >= 0) {
        const int read = static_cast<int>(arguments.operands.size());
        const Node made{call, partition_of(self, *call, arguments.operands.data(), read),
                        static_cast<int>(self->operands.size()), read};
        self->operands.insert(self->operands.end(), arguments.operands.begin(), arguments.operands.end());
        self->nodes.push_back(made);
        for (const Operand &operand : arguments.operands) {
            if (operand.node >= 0) ++self->nodes[operand.node].uses;
            else if (arguments.has_grad) self->leaves[~operand.node].has_grad_calls = true;
        }
        ++self->recorded;
    }
    const Made made_by{function, args, count, keywords};
    if (call->is_single) return value_of(self, call->results[0], node, 0, arguments, made_by);
    Reference values(tuple_of(call->results.size(), [&](std::size_t i) {
        return value_of(self, call->results[i], node, static_cast<int>(i), arguments, made_by);
    }));
    return values && call->pack ? PyObject_CallOneArg(call->pack, values.get()) : values.release();
}

}  // namespace dpmodule::recording
