// Cells: the calls of a module or a function are recorded as one, by repeating what a first call has recorded.
#include <algorithm>
#include <memory>
#include <utility>

#include "arguments.hpp"

#include <structmember.h>

namespace dpmodule::recording {

std::unordered_map<unsigned long, RecorderObject *> active_recorders;

constexpr int most_traces = 256;  // of one store: arguments that are always new do not pay

static PyTypeObject *cell_type = nullptr, *store_type = nullptr;

// A value of a template: an output of one of its nodes, a range of an argument, or a range of one of its tensors.
struct Source {
    enum class Kind { node, argument, tensor } kind;
    int index, output;
    std::int64_t offset;
    int spec;
};

// What one call has recorded, to be recorded again for other arguments.
struct Template {
    bool is_valid = false;
    bool needs_partitions = false;  // an argument is a parameter
    std::vector<Node> nodes;
    std::vector<Source> operands, outputs;
    std::vector<bool> has_views;     // of outputs
    std::vector<PyObject *> values;  // of outputs, in `result`
    std::vector<Reference> tensors;
    Reference result, arguments, keywords;
    std::size_t recording = 0;  // that the template was last repeated in
    std::vector<int> leaves;    // numbers of `tensors` there
};

// The state of a module: if it is another one, templates of the module do not apply.
struct State {
    enum class Kind { unknown, unchecked, checked, cell } kind = Kind::unknown;  // cell: so are calls of the module
    Reference containers;                                                        // dicts and lists
    std::vector<std::vector<PyObject *>> items;                                  // of each, owned
};

// dpmodule._native.CellStore: the templates of a module, or of all functions of one recording.
struct StoreObject {
    PyObject_HEAD std::unordered_map<Key, std::shared_ptr<Template>, KeyHash> templates;
    State state;  // of the module
    int traces, generation;
};

// dpmodule._native.RecordedCell: a function whose calls are recorded as one; a descriptor like Python's functions.
struct CellObject {
    PyObject_HEAD vectorcallfunc call;
    PyObject *function;
    std::int64_t number;  // of this object alone
    bool is_of_modules;   // the function is `Module.__call__`
};

// The stores that a recording uses.
struct Cells {
    std::unordered_map<PyObject *, StoreObject *> stores;  // of modules, both owned; nullptr for those of functions
    std::size_t recording;
};

namespace {

template <class Body>
bool each_object(PyObject *container, Body body) {
    if (PyList_Check(container)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(container); ++i) {
            if (!body(PyList_GET_ITEM(container, i))) return false;
        }
        return true;
    }
    PyObject *key, *item;
    for (Py_ssize_t at = 0; PyDict_Next(container, &at, &key, &item);) {
        if (!body(key) || !body(item)) return false;
    }
    return true;
}

bool is_unchanged(const State &state) {
    for (std::size_t i = 0; i < state.items.size(); ++i) {
        const std::vector<PyObject *> &items = state.items[i];
        std::size_t count = 0;
        const bool fits = each_object(PyList_GET_ITEM(state.containers.get(), i),
                                      [&](PyObject *item) { return count < items.size() && items[count++] == item; });
        if (!fits || count != items.size()) return false;
    }
    return true;
}

bool holds(const State &state, PyObject *item) {
    return std::any_of(state.items.begin(), state.items.end(), [&](const std::vector<PyObject *> &items) {
        return std::find(items.begin(), items.end(), item) != items.end();
    });
}

void release(State &state) {
    const auto items = std::exchange(state.items, {});
    for (const std::vector<PyObject *> &of_container : items) {
        for (PyObject *each : of_container) Py_DECREF(each);
    }
}

// Whether an object consists of values, numbers and texts, in tuples and lists.
bool is_plain(const RecorderObject *self, PyObject *item, std::vector<PyObject *> &values) {
    if (Py_TYPE(item) == setup.value) {
        const PlaceObject *place = place_of_value(item);
        if (!place || place->recorder != self) return false;
        if (std::find(values.begin(), values.end(), item) == values.end()) values.push_back(item);
        return true;
    }
    if (PyTuple_Check(item) || PyList_CheckExact(item)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(item); ++i) {
            if (!is_plain(self, PySequence_Fast_GET_ITEM(item, i), values)) return false;
        }
        return true;
    }
    return item == Py_None || PyBool_Check(item) || PyLong_CheckExact(item) || PyFloat_CheckExact(item) ||
           PyUnicode_CheckExact(item);
}

// Copy tuples and lists with other tensors in them: a new reference.
template <class Change>
PyObject *changed(PyObject *item, Change change) {
    if (PyObject *found = change(item)) return found;
    if (PyErr_Occurred()) return nullptr;
    if (PyTuple_Check(item)) {
        PyObject *tuple = tuple_of(static_cast<std::size_t>(PyTuple_GET_SIZE(item)),
                                   [&](std::size_t i) { return changed(PyTuple_GET_ITEM(item, i), change); });
        if (!tuple || PyTuple_CheckExact(item)) return tuple;
        PyObject *named =
            PyObject_HasAttrString(item, "_fields")
                ? PyObject_CallObject(reinterpret_cast<PyObject *>(Py_TYPE(item)), tuple)
                : PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject *>(Py_TYPE(item)), tuple, nullptr);
        Py_DECREF(tuple);
        return named;
    }
    if (PyList_CheckExact(item)) {
        return list_of(static_cast<std::size_t>(PyList_GET_SIZE(item)),
                       [&](std::size_t i) { return changed(PyList_GET_ITEM(item, i), change); });
    }
    return Py_NewRef(item);
}

}  // namespace

RecorderObject *active_recorder() {
    if (active_recorders.empty()) return nullptr;
    const auto found = active_recorders.find(PyThread_get_thread_ident());
    return found == active_recorders.end() ? nullptr : found->second;
}

PyObject *abort_trace() {
    PyErr_SetNone(setup.not_a_cell);
    return nullptr;
}

bool fits_trace(const RecorderObject *self, Treatment treatment, PyObject *const *args, std::size_t count) {
    if (treatment == Treatment::record || treatment == Treatment::constant || treatment == Treatment::like) return true;
    if (treatment == Treatment::attribute && count && Py_TYPE(args[0]) != setup.value) return true;
    if (treatment == Treatment::in_place && count && Py_TYPE(args[0]) == setup.value) {
        const PlaceObject *place = place_of_value(args[0]);  // a result of the body that nothing else refers to
        if (place && place->recorder == self && place->place.node >= 0 && !place->has_views) return true;
    }
    abort_trace();
    return false;
}

void forget_cells(RecorderObject *self) {
    Cells *cells = std::exchange(self->cells, nullptr);
    if (!cells) return;
    for (auto &[module, store] : cells->stores) {
        Py_XDECREF(module);
        Py_DECREF(reinterpret_cast<PyObject *>(store));
    }
    delete cells;
}

namespace {

class Trace {
  public:
    Trace(RecorderObject *self, const Arguments &arguments, PyObject *module)
        : self_(self), arguments_(arguments), module_(module), first_node_(static_cast<int>(self->nodes.size())),
          first_operand_(self->operands.size()), recorded_(self->recorded) {}

    // Call a function with placeholders for the arguments, and keep what it records; false with an exception that
    // is not one of the function.
    bool run(PyObject *function, PyObject *const *args, std::size_t count, PyObject *keywords, Template &made,
             const State &state) {
        std::size_t next = 0;
        const auto stand_in = [&](PyObject *item) -> PyObject * {
            const bool is_tensor =
                Py_TYPE(item) == setup.value || Py_TYPE(item) == setup.tensor || Py_TYPE(item) == setup.parameter;
            return is_tensor ? argument(next++) : nullptr;
        };
        made.arguments = Reference(tuple_of(count, [&](std::size_t i) { return changed(args[i], stand_in); }));
        if (keywords && made.arguments.get()) {
            made.keywords = Reference(PyDict_New());
            PyObject *name, *item;
            for (Py_ssize_t at = 0; made.keywords.get() && PyDict_Next(keywords, &at, &name, &item);) {
                const Reference given(changed(item, stand_in));
                if (!given.get() || PyDict_SetItem(made.keywords.get(), name, given.get()) < 0) return false;
            }
        }
        if (!made.arguments.get() || next != arguments_.operands.size()) return !PyErr_Occurred();
        self_->is_traced = true;
        made.result = Reference(PyObject_Call(function, made.arguments.get(), made.keywords.get()));
        self_->is_traced = false;
        const bool is_interrupted = PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception);
        if (!is_interrupted) PyErr_Clear();  // the call itself raises it, too
        made.is_valid = made.result.get() && keep(made, state);
        // they hold the module, whose life ends that of the template
        if (module_)
            made.arguments = Reference(PyTuple_GetSlice(made.arguments.get(), 1, static_cast<Py_ssize_t>(count)));
        forget();
        return !is_interrupted;
    }

  private:
    PyObject *argument(std::size_t number) {
        if (number >= arguments_.operands.size()) return nullptr;
        const int spec = arguments_.operands[number].spec;
        leaves_.push_back(static_cast<int>(self_->leaves.size()));
        Leaf leaf{};
        leaf.tensor = Py_NewRef(table.specs[spec].stand_in);
        leaf.spec = spec;
        leaf.is_contiguous = true;
        self_->leaves.push_back(leaf);
        return make_value(self_, {~leaves_.back(), 0, 0, spec});
    }

    bool source_of(const Operand &operand, Source &found, Template &made, const State &state) const {
        if (operand.node >= 0) {
            found = {Source::Kind::node, operand.node - first_node_, operand.output, operand.offset, operand.spec};
            return operand.node >= first_node_;
        }
        const auto argument = std::find(leaves_.begin(), leaves_.end(), ~operand.node);
        if (argument != leaves_.end()) {
            found = {Source::Kind::argument, static_cast<int>(argument - leaves_.begin()), 0, operand.offset,
                     operand.spec};
            return true;
        }
        const Leaf &leaf = self_->leaves[~operand.node];
        found = {Source::Kind::tensor, static_cast<int>(made.tensors.size()), 0, operand.offset, operand.spec};
        made.tensors.emplace_back(Py_NewRef(leaf.tensor));
        // a module's template lasts, and may refer only to what is checked
        return leaf.is_constant || !module_ || holds(state, leaf.tensor);
    }

    // Whether a view of a result may be a result without its base.
    bool stands_alone(const PlaceObject *place, const std::vector<PyObject *> &values) const {
        while (place && place->view) {
            PyObject *base = PyTuple_GET_ITEM(place->view, 0);
            if (Py_TYPE(base) != setup.value || std::find(values.begin(), values.end(), base) != values.end())
                return false;
            place = place_of_value(base);
        }
        return place && place->place.node >= first_node_;
    }

    bool keep(Template &made, const State &state) const {
        if (!is_plain(self_, made.result.get(), made.values)) return false;
        made.nodes.assign(self_->nodes.begin() + first_node_, self_->nodes.end());
        for (std::size_t i = first_operand_; i < self_->operands.size(); ++i) {
            made.operands.emplace_back();
            if (!source_of(self_->operands[i], made.operands.back(), made, state)) return false;
        }
        for (Node &node : made.nodes) node.first -= static_cast<int>(first_operand_), node.handles = node.uses = 0;
        for (PyObject *value : made.values) {
            const PlaceObject *place = place_of_value(value);
            Source source;
            if (!source_of(place->place, source, made, state) || source.kind == Source::Kind::tensor) return false;
            const bool is_argument = source.kind == Source::Kind::argument;
            if (is_argument && (source.offset || source.spec != arguments_.operands[source.index].spec)) return false;
            if (!is_argument && !stands_alone(place, made.values)) return false;
            made.outputs.push_back(source);
            made.has_views.push_back(place->has_views);
        }
        for (const Operand &operand : arguments_.operands) {
            made.needs_partitions =
                made.needs_partitions || (operand.node < 0 && self_->leaves[~operand.node].is_parameter);
        }
        return !made.nodes.empty();
    }

    void forget() {
        for (PlaceObject *each = self_->places; each;) {
            PlaceObject *next = each->next;
            const int node = each->place.node;
            if (node >= first_node_ || (node < 0 && std::count(leaves_.begin(), leaves_.end(), ~node))) {
                unlink(each);
                each = self_->places;  // a view may have kept others
            } else {
                each = next;
            }
        }
        for (std::size_t i = first_operand_; i < self_->operands.size(); ++i) {
            const int node = self_->operands[i].node;
            if (node >= 0 && node < first_node_) --self_->nodes[node].uses;
        }
        self_->nodes.resize(static_cast<std::size_t>(first_node_), Node());
        self_->operands.resize(first_operand_);
        self_->recorded = recorded_;
    }

    RecorderObject *self_;
    const Arguments &arguments_;
    PyObject *module_;  // whose template it is, or nullptr
    int first_node_;
    std::size_t first_operand_, recorded_;
    std::vector<int> leaves_;  // placeholders of the arguments
};

PyObject *repeat(RecorderObject *self, Template &made, const Arguments &arguments) {
    // another thread may repeat the template whenever Python runs: here, and when values are made
    std::vector<int> leaves;
    for (const Reference &tensor : made.tensors) {
        if (made.recording == self->cells->recording) break;
        leaves.push_back(leaf_number(self, tensor.get()));
        if (leaves.back() < 0) return nullptr;
    }
    const bool is_new_here = made.recording != self->cells->recording;
    if (is_new_here) made.leaves = std::move(leaves);
    made.recording = self->cells->recording;
    const int first_node = static_cast<int>(self->nodes.size()), first = static_cast<int>(self->operands.size());
    const auto operand_of = [&](const Source &from) -> Operand {
        switch (from.kind) {
            case Source::Kind::node: return {first_node + from.index, from.output, from.offset, from.spec};
            case Source::Kind::tensor: return {~made.leaves[from.index], 0, from.offset, from.spec};
            default: {
                const Operand &given = arguments.operands[from.index];
                return {given.node, given.output, given.offset + from.offset, from.spec};
            }
        }
    };
    self->nodes.insert(self->nodes.end(), made.nodes.begin(), made.nodes.end());
    for (const Source &each : made.operands) {
        self->operands.push_back(operand_of(each));
        const int node = self->operands.back().node;
        if (node >= 0) ++self->nodes[node].uses;
        else if (arguments.has_grad) self->leaves[~node].has_grad_calls = true;
    }
    for (std::size_t i = static_cast<std::size_t>(first_node); i < self->nodes.size(); ++i) {
        Node &node = self->nodes[i];
        node.first += first;
        if (!is_new_here && !made.needs_partitions) continue;
        node.partition = partition_of(self, *node.call, self->operands.data() + node.first, node.count);
        made.nodes[i - static_cast<std::size_t>(first_node)].partition = node.partition;
    }
    self->recorded += made.nodes.size();
    std::vector<Reference> values;
    for (std::size_t i = 0; i < made.outputs.size(); ++i) {
        const Source &from = made.outputs[i];
        if (from.kind == Source::Kind::argument) {
            values.emplace_back(Py_NewRef(arguments.given[from.index]));
            continue;
        }
        values.emplace_back(make_value(self, operand_of(from)));
        if (!values.back().get()) return nullptr;
        place_of_value(values.back().get())->has_views = made.has_views[i];
    }
    return changed(made.result.get(), [&](PyObject *item) -> PyObject * {
        const auto at = std::find(made.values.begin(), made.values.end(), item);
        return at == made.values.end() ? nullptr : Py_NewRef(values[at - made.values.begin()].get());
    });
}

// Read the state of a module again if it has changed; false with an exception.
bool check_state(StoreObject *store, PyObject *module) {
    using Kind = State::Kind;
    const Kind before = store->state.kind;
    if (before == Kind::unchecked || (before != Kind::unknown && is_unchanged(store->state))) return true;
    const Reference found(PyObject_CallOneArg(setup.state_of_module, module));
    if (!found.get()) return false;
    State state;
    state.kind = Kind::unchecked;
    if (PyTuple_Check(found.get())) {
        state.kind = PyTuple_GET_ITEM(found.get(), 0) == Py_True ? Kind::cell : Kind::checked;
        state.containers = Reference(Py_NewRef(PyTuple_GET_ITEM(found.get(), 1)));
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(state.containers.get()); ++i) {
            std::vector<PyObject *> &items = state.items.emplace_back();
            each_object(PyList_GET_ITEM(state.containers.get(), i), [&](PyObject *item) {
                items.push_back(Py_NewRef(item));
                return true;
            });
        }
    }
    std::swap(store->state, state);
    const auto templates = std::exchange(store->templates, {});
    release(state);
    return true;
}

// The store of a module, or that of functions; nullptr with an exception.
StoreObject *store_of(RecorderObject *self, PyObject *module) {
    static std::size_t recordings = 0;
    if (!self->cells) self->cells = new Cells{{}, ++recordings};
    const auto known = self->cells->stores.find(module);
    if (known != self->cells->stores.end()) return known->second;
    PyObject *made = module ? PyObject_CallOneArg(setup.store_of_module, module)
                            : PyObject_CallNoArgs(reinterpret_cast<PyObject *>(store_type));
    if (!made) return nullptr;
    auto *store = reinterpret_cast<StoreObject *>(made);
    if (store->generation != table.generation) store->templates.clear();
    store->generation = table.generation;
    Py_XINCREF(module);
    self->cells->stores.emplace(module, store);
    return store;
}

// A call of a cell. Returns a new reference; nullptr, without an exception, if the function itself is to be called.
PyObject *call_cell(RecorderObject *self, const CellObject *cell, PyObject *const *args, std::size_t count,
                    PyObject *keywords) {
    if (self->is_traced || self->is_suspended) return nullptr;
    PyObject *module = PyObject_TypeCheck(args[0], reinterpret_cast<PyTypeObject *>(setup.module)) ? args[0] : nullptr;
    StoreObject *store = store_of(self, module);
    if (!store || (module && !check_state(store, module))) return nullptr;
    if (module && store->state.kind != State::Kind::cell &&
        (cell->is_of_modules || store->state.kind != State::Kind::checked))
        return nullptr;
    Arguments arguments(self, true);
    arguments.key.push_back(cell->number);
    const std::size_t first = module ? 1 : 0;  // the store is that of the module
    if (!arguments.add_modes() || !arguments.add_all(args + first, count - first, keywords)) return nullptr;
    const auto known = store->templates.find(arguments.key);
    std::shared_ptr<Template> made = known == store->templates.end() ? nullptr : known->second;
    if (!made) {
        if (arguments.operands.empty() || ++store->traces > most_traces) return nullptr;
        made = std::make_shared<Template>();
        Py_INCREF(reinterpret_cast<PyObject *>(store));
        const bool is_made =
            Trace(self, arguments, module).run(cell->function, args, count, keywords, *made, store->state);
        if (is_made) store->templates.emplace(arguments.key, made);
        Py_DECREF(reinterpret_cast<PyObject *>(store));
        if (!is_made || !self->cells) return nullptr;
    }
    return made->is_valid ? repeat(self, *made, arguments) : nullptr;
}

PyObject *store_new(PyTypeObject *type, PyObject *, PyObject *) {
    auto *self = reinterpret_cast<StoreObject *>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    new (&self->templates) std::unordered_map<Key, std::shared_ptr<Template>, KeyHash>();
    new (&self->state) State();
    self->generation = table.generation;
    return reinterpret_cast<PyObject *>(self);
}

void store_dealloc(PyObject *object) {
    auto *self = reinterpret_cast<StoreObject *>(object);
    release(self->state);
    std::destroy_at(&self->templates);
    std::destroy_at(&self->state);
    free_object(object);
}

PyType_Slot store_slots[] = {{Py_tp_new, slot(store_new)},
                             {Py_tp_dealloc, slot(store_dealloc)},
                             {Py_tp_doc, const_cast<char *>("What the calls of a cell record.")},
                             {0, nullptr}};

PyType_Spec store_definition = {"dpmodule._native.CellStore", sizeof(StoreObject), 0, Py_TPFLAGS_DEFAULT, store_slots};

PyObject *cell_call(PyObject *object, PyObject *const *args, std::size_t flags, PyObject *names) {
    const auto *self = reinterpret_cast<CellObject *>(object);
    RecorderObject *recorder = active_recorder();
    const std::size_t count = PyVectorcall_NARGS(flags);
    if (recorder && count) {
        const Reference keywords = keywords_of(names, args + count);
        PyObject *found = PyErr_Occurred() ? nullptr : call_cell(recorder, self, args, count, keywords.get());
        if (found || PyErr_Occurred()) return found;
    }
    return PyObject_Vectorcall(self->function, args, flags, names);
}

PyObject *cell_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *function;
    int is_of_modules = 0;
    if (!PyArg_ParseTuple(args, "O|p", &function, &is_of_modules)) return nullptr;
    auto *self = reinterpret_cast<CellObject *>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    static std::int64_t cells = 0;
    self->call = cell_call;
    self->number = ++cells;
    self->is_of_modules = is_of_modules;
    self->function = Py_NewRef(function);
    return reinterpret_cast<PyObject *>(self);
}

void cell_dealloc(PyObject *self) {
    Py_XDECREF(reinterpret_cast<CellObject *>(self)->function);
    free_object(self);
}

PyMemberDef cell_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(CellObject, call), READONLY, nullptr},
                              {nullptr, 0, 0, 0, nullptr}};

PyType_Slot cell_slots[] = {{Py_tp_new, slot(cell_new)},
                            {Py_tp_dealloc, slot(cell_dealloc)},
                            {Py_tp_call, slot(PyVectorcall_Call)},
                            {Py_tp_descr_get, slot(bound_to)},
                            {Py_tp_members, cell_members},
                            {Py_tp_doc, const_cast<char *>("A function whose calls are recorded as one.")},
                            {0, nullptr}};

PyType_Spec cell_definition = {"dpmodule._native.RecordedCell", sizeof(CellObject), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                               cell_slots};

}  // namespace

}  // namespace dpmodule::recording

int dpmodule::add_recorded_cell(PyObject *module) {
    using namespace dpmodule::recording;
    cell_type = add_type(module, cell_definition);
    return cell_type && (store_type = add_type(module, store_definition)) ? 0 : -1;
}
