// The Python type AutobatchLayers: stacked recurrent layers.
#include "python_layers.hpp"

#include <structmember.h>

namespace dpmodule::autobatch {

PyTypeObject *layers_type = nullptr;

namespace {

bool is_weights(PyObject *x, const LayersObject &layers) {
    if (!PyTuple_CheckExact(x) || PyTuple_GET_SIZE(x) < 1) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(x); i++) {
        PyObject *layer = PyTuple_GET_ITEM(x, i);
        const Py_ssize_t count = PyTuple_CheckExact(layer) ? PyTuple_GET_SIZE(layer) : 0;
        if (layers.learned ? count < 1 || count > most_weights : count != 3) return false;
    }
    return true;
}

int set_weights(PyObject *self, PyObject *value, void *) {
    if (!value || !is_weights(value, *layers_of(self))) {
        PyErr_SetString(PyExc_ValueError, "AutobatchLayers needs a tuple of tuples of parameters, three for an LSTM");
        return -1;
    }
    Py_INCREF(value);
    Py_XSETREF(layers_of(self)->weights, value);
    return 0;
}

int set_masks(PyObject *self, PyObject *value, void *) {
    if (value && value != Py_None && !PyTuple_CheckExact(value)) {
        PyErr_SetString(PyExc_TypeError, "masks must be a tuple or None");
        return -1;
    }
    set_or_none(layers_of(self)->masks, value);
    return 0;
}

int layers_init(PyObject *self, PyObject *args, PyObject *) {
    PyObject *weights, *forget_bias;
    LayersObject &layers = *layers_of(self);
    int has_memory;
    if (!PyArg_ParseTuple(args, "OpO:AutobatchLayers", &weights, &has_memory, &forget_bias)) return -1;
    layers.has_memory = static_cast<char>(has_memory);
    delete layers.learned;
    layers.learned = nullptr;
    if (forget_bias == Py_None) {
        layers.learned = new (std::nothrow) RecordedSteps();
        if (!layers.learned) return PyErr_NoMemory(), -1;
    } else {
        layers.forget_bias = PyFloat_AsDouble(forget_bias);
        if (PyErr_Occurred()) return -1;
    }
    return set_weights(self, weights, nullptr);
}

int layers_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(layers_of(self)->weights);
    Py_VISIT(layers_of(self)->masks);
    return 0;
}

int layers_clear(PyObject *self) {
    Py_CLEAR(layers_of(self)->weights);
    Py_CLEAR(layers_of(self)->masks);
    return 0;
}

void layers_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    layers_clear(self);
    delete layers_of(self)->learned;
    free_object(self);
}

PyMemberDef layers_members[] = {
    {"ready", T_BOOL, offsetof(LayersObject, ready), 0, "True if native code may add steps"},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef layers_attributes[] = {{"weights", get_or_none<LayersObject, &LayersObject::weights>, set_weights,
                                    "for each layer, its parameters or their expressions", nullptr},
                                   {"masks", get_or_none<LayersObject, &LayersObject::masks>, set_masks,
                                    "for each layer, the masks of its input and its recurrent output, or None",
                                    nullptr},
                                   {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot layers_slots[] = {
    {Py_tp_doc,
     const_cast<char *>("AutobatchLayers(weights, has_memory, forget_bias)\n--\n\n"
                        "The parameters of recurrent layers, each reading the one below: (Wx, Wh, b) of LSTMs; or, if\n"
                        "`forget_bias` is None, of a network whose method `cell` defines a step.")},
    {Py_tp_new, slot(PyType_GenericNew)},
    {Py_tp_init, slot(layers_init)},
    {Py_tp_dealloc, slot(layers_dealloc)},
    {Py_tp_traverse, slot(layers_traverse)},
    {Py_tp_clear, slot(layers_clear)},
    {Py_tp_members, layers_members},
    {Py_tp_getset, layers_attributes},
    {0, nullptr}};

PyType_Spec layers_spec = {"dpmodule._native.AutobatchLayers", sizeof(LayersObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, layers_slots};

}  // namespace
}  // namespace dpmodule::autobatch

int dpmodule::add_autobatch_layers(PyObject *module) {
    autobatch::layers_type = add_type(module, autobatch::layers_spec);
    return autobatch::layers_type ? 0 : -1;
}
