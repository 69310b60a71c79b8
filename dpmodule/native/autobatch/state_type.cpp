// The Python type AutobatchState: the state of a recurrent network in a sequence. A step of all layers is one call: the
// state stores nodes, and expressions are created on request. All other cases go to the methods `_step` and `_run` of
// the Python class.
#include "python_layers.hpp"

#include <structmember.h>

#include <utility>

namespace dpmodule::autobatch {
namespace {

PyTypeObject *state_type = nullptr;

StateObject *state_of(PyObject *x) { return reinterpret_cast<StateObject *>(x); }

// nullptr after a Python error
PyObject *expression_at(int node, int version) {
    PyObject *made = make_expression(node);
    if (made) reinterpret_cast<NodeObject *>(made)->version = version;
    return made;
}

PyObject *call_python(PyObject *self, const char *name, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    PyObject *method = PyObject_GetAttrString(self, name);
    PyObject *found = method ? PyObject_Vectorcall(method, args, static_cast<std::size_t>(count), keywords) : nullptr;
    Py_XDECREF(method);
    return found;
}

PyObject *add_input(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    return guarded([&]() -> PyObject * {
        const StateObject &state = *state_of(self);
        Steps steps;
        int x = current.is_open() && count == 1 && !keywords ? node_of(args[0]) : -1, outputs[most_layers] = {};
        if (x >= 0 && !steps.read(state)) x = -1;
        for (int l = 0; l < steps.count && x >= 0; l++) x = outputs[l] = steps.add(l, x);
        if (x < 0) return call_python(self, "_step", args, count, keywords);
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

// Adds all steps, layer by layer; false to fall back to Python. `xs` becomes the outputs.
bool add_sequence(const StateObject &state, PyObject *inputs, Nodes &xs) {
    Steps steps;
    if (!current.is_open() || !xs.read(inputs) || !steps.read(state)) return false;
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
        if (count != 1 || keywords || !add_sequence(*state_of(self), args[0], xs))
            return call_python(self, "_run", args, count, keywords);
        return list_of(static_cast<std::size_t>(xs.count), [&](std::size_t i) { return make_expression(xs.at[i]); });
    });
}

PyObject *output(PyObject *self, PyObject *) {
    return guarded([&]() -> PyObject * {
        const StateObject &state = *state_of(self);
        if (!state.layers)
            return state.count ? expression_at(state.outputs[state.count - 1], state.version) : Py_NewRef(Py_None);
        PyObject *last = PySequence_Size(state.layers) > 0 ? PySequence_GetItem(state.layers, -1) : nullptr;
        PyObject *found = last ? PySequence_GetItem(last, 0) : nullptr;
        Py_XDECREF(last);
        return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
    });
}

// ((output, memory), ...) or ((output,), ...), created on first use
PyObject *get_layers(PyObject *self, void *) {
    return guarded([&]() -> PyObject * {
        StateObject &state = *state_of(self);
        if (state.layers) return Py_NewRef(state.layers);
        PyObject *all = dpmodule::tuple_of(static_cast<std::size_t>(state.count), [&](std::size_t l) {
            PyObject *h = expression_at(state.outputs[l], state.version);
            return layers_of(state.cells)->has_memory
                       ? Py_BuildValue("(NN)", h, expression_at(state.outputs[l] + 1, state.version))
                       : Py_BuildValue("(N)", h);
        });
        if (!all) return nullptr;
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

int set_cells(PyObject *self, PyObject *value, void *) {
    if (value && value != Py_None && !PyObject_TypeCheck(value, layers_type)) {
        PyErr_SetString(PyExc_TypeError, "the cells of a state must be AutobatchLayers or None");
        return -1;
    }
    set_or_none(state_of(self)->cells, value);
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

// A chain of states is as long as a sequence, so it is released without recursion.
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
    PyObject_GC_UnTrack(self);
    release_chain(*state_of(self));
    state_clear(self);
    free_object(self);
}

PyMemberDef state_members[] = {
    {"_builder", T_OBJECT, offsetof(StateObject, builder), 0, "the network"},
    {"_previous", T_OBJECT, offsetof(StateObject, previous), 0, "the state before the last input, or None"},
    {"_version", T_INT, offsetof(StateObject, version), 0, "the version of the graph it belongs to"},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef state_attributes[] = {
    {"_layers", get_layers, set_layers, "the states of all layers", nullptr},
    {"_cells", get_or_none<StateObject, &StateObject::cells>, set_cells, "AutobatchLayers, or None", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

template <class F>
PyCFunction method(F function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef state_methods[] = {
    {"add_input", method(add_input), METH_FASTCALL | METH_KEYWORDS,
     "add_input($self, x)\n--\n\n"
     "Return the state after another input.\n\n"
     "Args:\n"
     "    x: the input vector.\n\n"
     "Raises:\n"
     " ShapeError: `x` does not have the size the builder expects.\n"
     "    StaleExpressionError: `renew_cg` has been called since `initial_state`."},
    {"transduce", method(transduce), METH_FASTCALL | METH_KEYWORDS,
     "transduce($self, xs)\n--\n\nReturn the outputs after each of several inputs."},
    {"output", output, METH_NOARGS,
     "output($self)\n--\n\nReturn the output of the last layer; None before the first input."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot state_slots[] = {
    {Py_tp_doc,
     const_cast<char *>("The state of a recurrent network, whose steps are added natively if `_cells` supports them.")},
    {Py_tp_new, slot(PyType_GenericNew)},
    {Py_tp_dealloc, slot(state_dealloc)},
    {Py_tp_traverse, slot(state_traverse)},
    {Py_tp_clear, slot(state_clear)},
    {Py_tp_members, state_members},
    {Py_tp_getset, state_attributes},
    {Py_tp_methods, state_methods},
    {0, nullptr}};

PyType_Spec state_spec = {"dpmodule._native.AutobatchState", sizeof(StateObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, state_slots};

}  // namespace
}  // namespace dpmodule::autobatch

int dpmodule::add_autobatch_state(PyObject *module) {
    autobatch::state_type = add_type(module, autobatch::state_spec);
    return autobatch::state_type ? 0 : -1;
}
