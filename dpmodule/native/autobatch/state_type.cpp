// The Python types AutobatchLayers (LSTMs that stand on each other) and AutobatchState (a position in a sequence).
//
// A step of all layers is one call: the state remembers nodes, and expressions are made when somebody asks for them.
// Whatever does not fit goes to the methods `_step` and `_run` of the class in Python.
#include "python_builder.hpp"

#include <structmember.h>

#include <utility>

namespace dpmodule::autobatch {
namespace {

constexpr int most_layers = 4;

PyTypeObject *layers_type = nullptr, *state_type = nullptr;

struct LayersObject {
    PyObject_HEAD
    PyObject *weights;     // a tuple of tuples (Wx, Wh, b)
    double forget_bias;
    char ready;            // false: something is asked for, such as dropout, that steps here do not do
};

struct StateObject {
    PyObject_HEAD
    PyObject *builder, *cells, *previous;
    PyObject *layers;      // nullptr: `outputs` tells
    int version;           // of the graph
    int count;             // of `outputs`
    int outputs[most_layers];   // nodes; the memory of each layer is the node that follows
};

LayersObject *layers_of(PyObject *x) { return reinterpret_cast<LayersObject *>(x); }
StateObject *state_of(PyObject *x) { return reinterpret_cast<StateObject *>(x); }

// ---- AutobatchLayers ----

bool is_weights(PyObject *x) {
    if (!PyTuple_CheckExact(x) || PyTuple_GET_SIZE(x) < 1) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(x); i++) {
        PyObject *layer = PyTuple_GET_ITEM(x, i);
        if (!PyTuple_CheckExact(layer) || PyTuple_GET_SIZE(layer) != 3) return false;
    }
    return true;
}

PyObject *get_weights(PyObject *self, void *) {
    PyObject *weights = layers_of(self)->weights;
    return Py_NewRef(weights ? weights : Py_None);
}

int set_weights(PyObject *self, PyObject *value, void *) {
    if (!value || !is_weights(value)) {
        PyErr_SetString(PyExc_ValueError, "AutobatchLayers needs a tuple of tuples of three parameters");
        return -1;
    }
    Py_INCREF(value);
    Py_XSETREF(layers_of(self)->weights, value);
    return 0;
}

int layers_init(PyObject *self, PyObject *args, PyObject *) {
    PyObject *weights;
    if (!PyArg_ParseTuple(args, "Od:AutobatchLayers", &weights, &layers_of(self)->forget_bias)) return -1;
    return set_weights(self, weights, nullptr);
}

int layers_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(layers_of(self)->weights);
    return 0;
}

int layers_clear(PyObject *self) {
    Py_CLEAR(layers_of(self)->weights);
    return 0;
}

void layers_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    layers_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

// ---- AutobatchState ----

// nullptr where Python has raised
PyObject *expression_at(int node, int version) {
    PyObject *made = make_expression(node);
    if (made) reinterpret_cast<NodeObject *>(made)->version = version;
    return made;
}

// Output and memory of every layer before the step, -1 for zeros.
struct Before {
    int h[most_layers], c[most_layers];

    // False: it is not what steps here take.
    bool read(const StateObject &state, int count) {
        for (int l = 0; l < count; l++) h[l] = c[l] = -1;
        if (!state.layers) {
            const int size = current.engine->graph.size();
            for (int l = 0; l < count; l++) {
                h[l] = state.outputs[l];
                c[l] = h[l] + 1;
                if (c[l] >= size) return false;   // taken back by cg_revert
            }
            return state.count == count;
        }
        if (!PyTuple_CheckExact(state.layers)) return false;
        const Py_ssize_t given = PyTuple_GET_SIZE(state.layers);
        for (Py_ssize_t l = 0; l < given && l < count; l++) {
            if (!read_layer(PyTuple_GET_ITEM(state.layers, l), static_cast<int>(l))) return false;
        }
        return given == 0 || given == count;
    }

   private:
    bool read_layer(PyObject *layer, int l) {
        if (!PyTuple_CheckExact(layer)) return false;
        const Py_ssize_t size = PyTuple_GET_SIZE(layer);
        if (size < 1 || size > 2) return false;
        h[l] = node_of(PyTuple_GET_ITEM(layer, 0));
        if (size == 2) c[l] = node_of(PyTuple_GET_ITEM(layer, 1));
        return h[l] >= 0 && (size == 1 || c[l] >= 0);
    }
};

// What the steps from a state on need; `read` says whether they can be added here at all.
class Steps {
   public:
    bool read(const StateObject &state) {
        if (!current.engine || state.version != current.version || !state.cells) return false;
        const LayersObject &cells = *layers_of(state.cells);
        if (!cells.ready || !cells.weights || PyTuple_GET_SIZE(cells.weights) > most_layers) return false;
        count = static_cast<int>(PyTuple_GET_SIZE(cells.weights));
        forget_bias_ = static_cast<float>(cells.forget_bias);
        for (int l = 0; l < count; l++) {
            for (int k = 0; k < 3; k++) {
                weights_[l][k] = node_of(PyTuple_GET_ITEM(PyTuple_GET_ITEM(cells.weights, l), k));
                if (weights_[l][k] < 0) return false;
            }
        }
        return before_.read(state, count);
    }
    // One step of layer `l`: its output, or -1 where the input does not fit.
    int add(int l, int x) {
        int &h = before_.h[l], &c = before_.c[l];
        h = current_builder().lstm(x, h, c, weights_[l][0], weights_[l][1], weights_[l][2], forget_bias_);
        c = h + 1;
        return h;
    }
    int count = 0;

   private:
    Before before_;
    int weights_[most_layers][3];
    float forget_bias_ = 0;
};

PyObject *call_slowly(PyObject *self, const char *name, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    PyObject *method = PyObject_GetAttrString(self, name);
    PyObject *found = method ? PyObject_Vectorcall(method, args, static_cast<std::size_t>(count), keywords) : nullptr;
    Py_XDECREF(method);
    return found;
}

PyObject *add_input(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    return guarded([&]() -> PyObject * {
        const StateObject &state = *state_of(self);
        Steps steps;
        int x = current.engine && count == 1 && !keywords ? node_of(args[0]) : -1, outputs[most_layers] = {};
        if (x >= 0 && !steps.read(state)) x = -1;
        for (int l = 0; l < steps.count && x >= 0; l++) x = outputs[l] = steps.add(l, x);
        if (x < 0) return call_slowly(self, "_step", args, count, keywords);
        PyObject *made = Py_TYPE(self)->tp_alloc(Py_TYPE(self), 0);
        if (!made) return nullptr;
        StateObject &after = *state_of(made);
        after.builder = Py_XNewRef(state.builder);
        after.cells = Py_NewRef(state.cells);
        after.previous = Py_NewRef(self);
        after.version = state.version;
        after.count = steps.count;
        for (int l = 0; l < steps.count; l++) after.outputs[l] = outputs[l];
        return made;
    });
}

// Adds all steps, one layer after the other; false where the way in Python is needed.  `xs` becomes the outputs.
bool add_sequence(const StateObject &state, PyObject *inputs, Nodes &xs) {
    Steps steps;
    if (!current.engine || !xs.read(inputs) || !steps.read(state)) return false;
    for (int l = 0; l < steps.count; l++) {
        for (int i = 0; i < xs.count; i++) {
            xs.at[i] = steps.add(l, xs.at[i]);
            if (xs.at[i] < 0) return false;
        }
    }
    return true;
}

PyObject *transduce(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    return guarded([&]() -> PyObject * {
        Nodes xs;
        if (count != 1 || keywords || !add_sequence(*state_of(self), args[0], xs)) return call_slowly(self, "_run", args, count, keywords);
        PyObject *outputs = PyList_New(xs.count);
        for (int i = 0; outputs && i < xs.count; i++) {
            PyObject *h = make_expression(xs.at[i]);
            if (h) PyList_SET_ITEM(outputs, i, h);
            else Py_CLEAR(outputs);
        }
        return outputs;
    });
}

PyObject *output(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * {
        const StateObject &state = *state_of(self);
        if (!state.layers) return state.count ? expression_at(state.outputs[state.count - 1], state.version) : Py_NewRef(Py_None);
        PyObject *last = PySequence_Size(state.layers) > 0 ? PySequence_GetItem(state.layers, -1) : nullptr;
        PyObject *found = last ? PySequence_GetItem(last, 0) : nullptr;
        Py_XDECREF(last);
        return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
    });
}

// ((output, memory), ...), made at the first call
PyObject *get_layers(PyObject *self, void *) {
    return guarded([&]() -> PyObject * {
        StateObject &state = *state_of(self);
        if (state.layers) return Py_NewRef(state.layers);
        PyObject *all = PyTuple_New(state.count);
        if (!all) return nullptr;
        for (int l = 0; l < state.count; l++) {
            PyObject *h = expression_at(state.outputs[l], state.version), *c = expression_at(state.outputs[l] + 1, state.version);
            PyObject *both = Py_BuildValue("(NN)", h, c);
            if (!both) {
                Py_DECREF(all);
                return nullptr;
            }
            PyTuple_SET_ITEM(all, l, both);
        }
        state.layers = Py_NewRef(all);
        return all;
    });
}

int set_layers(PyObject *self, PyObject *value, void *) {
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "the layers of a state cannot be deleted");
        return -1;
    }
    Py_INCREF(value);
    Py_XSETREF(state_of(self)->layers, value);
    return 0;
}

PyObject *get_cells(PyObject *self, void *) {
    PyObject *cells = state_of(self)->cells;
    return Py_NewRef(cells ? cells : Py_None);
}

int set_cells(PyObject *self, PyObject *value, void *) {
    if (value && value != Py_None && !PyObject_TypeCheck(value, layers_type)) {
        PyErr_SetString(PyExc_TypeError, "the cells of a state are AutobatchLayers or None");
        return -1;
    }
    PyObject *cells = value == Py_None ? nullptr : value;
    Py_XINCREF(cells);
    Py_XSETREF(state_of(self)->cells, cells);
    return 0;
}

int state_traverse(PyObject *self, visitproc visit, void *arg) {
    const StateObject &state = *state_of(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(state.builder);
    Py_VISIT(state.cells);
    Py_VISIT(state.previous);
    Py_VISIT(state.layers);
    return 0;
}

int state_clear(PyObject *self) {
    StateObject &state = *state_of(self);
    Py_CLEAR(state.builder);
    Py_CLEAR(state.cells);
    Py_CLEAR(state.previous);
    Py_CLEAR(state.layers);
    return 0;
}

// A chain of states is as long as a sequence: it is taken apart from its end without recursion.
void release_chain(StateObject &state) {
    PyObject *next = std::exchange(state.previous, nullptr);
    while (next && Py_REFCNT(next) == 1 && PyObject_TypeCheck(next, state_type)) {
        PyObject *after = std::exchange(state_of(next)->previous, nullptr);
        Py_DECREF(next);
        next = after;
    }
    Py_XDECREF(next);
}

void state_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    release_chain(*state_of(self));
    state_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef layers_members[] = {
    {"ready", T_BOOL, offsetof(LayersObject, ready), 0, "whether steps of states may use them"},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef layers_attributes[] = {
    {"weights", get_weights, set_weights, "for each layer (Wx, Wh, b), parameters or their expressions", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef state_members[] = {
    {"_builder", T_OBJECT, offsetof(StateObject, builder), 0, "the network"},
    {"_previous", T_OBJECT, offsetof(StateObject, previous), 0, "the state before the last input, or None"},
    {"_version", T_INT, offsetof(StateObject, version), 0, "the version of the graph it belongs to"},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef state_attributes[] = {
    {"_layers", get_layers, set_layers, "the states of all layers", nullptr},
    {"_cells", get_cells, set_cells, "AutobatchLayers, or None", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

template <class F> PyCFunction method(F function) { return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)); }

PyMethodDef state_methods[] = {
    {"add_input", method(add_input), METH_FASTCALL | METH_KEYWORDS,
     "add_input($self, x)\n--\n\n"
     "Return the state after one more input.\n\n"
     "Args:\n"
     "    x: the input vector.\n\n"
     "Raises:\n"
     "    ShapeError: it has another size than the builder was made for.\n"
     "    StaleExpressionError: `renew_cg` has been called since `initial_state`."},
    {"transduce", method(transduce), METH_FASTCALL | METH_KEYWORDS,
     "transduce($self, xs)\n--\n\nReturn the outputs after each of several inputs."},
    {"output", output, METH_NOARGS, "output($self)\n--\n\nReturn the output of the last layer; None before the first input."},
    {nullptr, nullptr, 0, nullptr}};

template <class F> void *slot(F function) { return reinterpret_cast<void *>(function); }

PyType_Slot layers_slots[] = {
    {Py_tp_doc, const_cast<char *>("AutobatchLayers(weights, forget_bias)\n--\n\nThe parameters (Wx, Wh, b) of LSTMs, each reading the one below.")},
    {Py_tp_new, slot(PyType_GenericNew)},
    {Py_tp_init, slot(layers_init)},
    {Py_tp_dealloc, slot(layers_dealloc)},
    {Py_tp_traverse, slot(layers_traverse)},
    {Py_tp_clear, slot(layers_clear)},
    {Py_tp_members, layers_members},
    {Py_tp_getset, layers_attributes},
    {0, nullptr}};

PyType_Slot state_slots[] = {
    {Py_tp_doc, const_cast<char *>("A position in a sequence, whose steps are added here where they are those of LSTMs.")},
    {Py_tp_new, slot(PyType_GenericNew)},
    {Py_tp_dealloc, slot(state_dealloc)},
    {Py_tp_traverse, slot(state_traverse)},
    {Py_tp_clear, slot(state_clear)},
    {Py_tp_members, state_members},
    {Py_tp_getset, state_attributes},
    {Py_tp_methods, state_methods},
    {0, nullptr}};

constexpr unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
PyType_Spec layers_spec = {"dpmodule._native.AutobatchLayers", sizeof(LayersObject), 0, flags, layers_slots};
PyType_Spec state_spec = {"dpmodule._native.AutobatchState", sizeof(StateObject), 0, flags | Py_TPFLAGS_BASETYPE, state_slots};

int add_type(PyObject *module, const char *name, PyType_Spec &spec, PyTypeObject *&made) {
    PyObject *type = PyType_FromSpec(&spec);
    made = reinterpret_cast<PyTypeObject *>(type);   // kept for good
    return type ? PyModule_AddObjectRef(module, name, type) : -1;
}

}  // namespace
}  // namespace dpmodule::autobatch

namespace dpmodule {

int add_autobatch_state(PyObject *module) {
    using namespace autobatch;
    if (add_type(module, "AutobatchLayers", layers_spec, layers_type) < 0) return -1;
    return add_type(module, "AutobatchState", state_spec, state_type);
}

}  // namespace dpmodule
