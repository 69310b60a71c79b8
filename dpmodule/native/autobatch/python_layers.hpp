// The networks of AutobatchState, and their steps.
#pragma once

#include <memory>

#include "python_state.hpp"

namespace dpmodule::autobatch {

constexpr int most_layers = 4, most_weights = 12;

// New references that are released together.
class References {
  public:
    ~References() {
        for (PyObject *each : all_) Py_XDECREF(each);
    }
    PyObject *add(PyObject *made) {
        if (!made) throw PythonError();
        all_.push_back(made);
        return made;
    }

  private:
    std::vector<PyObject *> all_;
};

enum Place { X, H, C, Mask, places };

// The result of `cell` for placeholder operands; false if it is not (output,) or (output, memory).
inline bool call_cell(PyObject *network, PyObject *weights, bool has_memory, const int *stand_ins, int &output,
                      int &memory) {
    References made;
    const auto expression = [&](int place) {
        return stand_ins[place] < 0 ? Py_None : made.add(make_expression(stand_ins[place]));
    };
    PyObject *x = expression(X), *h = expression(H), *c = expression(C);
    PyObject *before = h == Py_None ? h : made.add(c == Py_None ? PyTuple_Pack(1, h) : PyTuple_Pack(2, h, c));
    PyObject *mask = made.add(PyTuple_Pack(2, Py_None, expression(Mask)));
    PyObject *after = made.add(PyObject_CallMethod(network, "cell", "OOOO", weights, x, before, mask));
    if (!PyTuple_CheckExact(after) || PyTuple_GET_SIZE(after) != 1 + has_memory) return false;
    output = node_of(PyTuple_GET_ITEM(after, 0));
    memory = has_memory ? node_of(PyTuple_GET_ITEM(after, 1)) : -1;
    return output >= 0 && (memory >= 0 || !has_memory);
}

inline int learn(PyObject *network, PyObject *weights, bool has_memory, const int *operands) {
    Graph &graph = current.engine->graph;
    const int first = graph.size();
    int stand_ins[places], count = 0, output, memory, found = -1;
    for (int k = 0; k < places; k++) {
        stand_ins[k] = operands[k] < 0 ? -1 : current_builder().stand_in(graph.signature(operands[k]).shape);
        count += operands[k] >= 0;
    }
    try {
        if (call_cell(network, weights, has_memory, stand_ins, output, memory))
            found = remember_compound(graph, first, count, output, memory);
    } catch (const PythonError &) {
        graph.revert(first, first);
        return fall_back_to_python(), -1;  // which raises the error for the actual operands
    }
    graph.revert(first, first);
    return found;
}

class RecordedSteps;

struct LayersObject {
    PyObject_HEAD PyObject *weights;  // a tuple of tuples of parameters
    PyObject *masks;                  // nullptr, or a tuple of pairs of dropout masks of input and output, or None
    RecordedSteps *learned;           // nullptr for LSTMs with parameters (Wx, Wh, b)
    double forget_bias;
    char has_memory;
    char ready;  // false: native steps do not support the settings
};

// Steps recorded from the network's Python method `cell`, by shapes and parameters; see compound.cpp.
class RecordedSteps {
  public:
    // The compound of `layer` for x, h, c and the mask of h (-1: none), a number in Signatures::compounds; -1 if it is
    // not supported.
    int find(const LayersObject &layers, PyObject *network, int layer, const int *operands, const int *weights,
             int count) {
        if (serial_ != current.serial) {
            numbers_ = {};
            compounds_.clear();
            serial_ = current.serial;
        }
        const Graph &graph = current.engine->graph;
        key_.assign(1, layer);
        for (int k = 0; k < places; k++) key_.push_back(operands[k] < 0 ? -1 : graph.signature(operands[k]).shape);
        for (int k = 0; k < count; k++) key_.push_back(graph.nodes[weights[k]].sig);  // distinguishes parameters
        const auto [number, fresh] = numbers_.number(key_);
        if (fresh) {
            compounds_.push_back(-1);
            compounds_[number] = learn(network, PyTuple_GET_ITEM(layers.weights, layer), layers.has_memory, operands);
        }
        return compounds_[number];
    }

  private:
    int serial_ = 0;  // of their engine
    Interner numbers_;
    std::vector<int> compounds_;
    std::vector<int> key_;  // scratch space
};

struct StateObject {
    PyObject_HEAD PyObject *builder, *cells, *previous;
    PyObject *layers;          // nullptr: see `outputs`
    int version;               // of the graph
    int count;                 // of `outputs`
    int outputs[most_layers];  // nodes; the memory of a layer, if any, is the next node
};

extern PyTypeObject *layers_type;  // AutobatchLayers
inline LayersObject *layers_of(PyObject *x) { return reinterpret_cast<LayersObject *>(x); }

// Data for the steps from a state on; `read` returns false if native code cannot add them.
class Steps {
  public:
    bool read(const StateObject &state) {
        if (!current.engine || state.version != current.version || !state.cells || !state.builder) return false;
        cells_ = layers_of(state.cells);
        network_ = state.builder;
        return cells_->ready && cells_->weights && read_weights(*cells_) && read_masks(cells_->masks) &&
               read_before(state);
    }
    // Adds a step of layer `l` and returns its output, or -1 if the input does not fit.
    int add(int l, int x) {
        Layer &layer = layers_[l];
        Builder &build = current_builder();
        if (layer.mask_x >= 0 && (x = build.binary(Binary::Mul, x, layer.mask_x)) < 0) return -1;
        if (!cells_->learned) {
            int h = layer.h;
            if (layer.mask_h >= 0 && h >= 0 && (h = build.binary(Binary::Mul, h, layer.mask_h)) < 0) return -1;
            const int *weights = layer.weights;
            layer.h =
                build.lstm(x, h, layer.c, weights[0], weights[1], weights[2], static_cast<float>(cells_->forget_bias));
        } else {
            const int operands[places] = {x, layer.h, layer.c, layer.h < 0 ? -1 : layer.mask_h};
            const int number = cells_->learned->find(*cells_, network_, l, operands, layer.weights, layer.count);
            if (number < 0) return -1;
            int given[places], count = 0;
            for (int k = 0; k < places; k++) {
                if (operands[k] >= 0) given[count++] = operands[k];
            }
            layer.h = build.compound(number, given);
        }
        if (cells_->has_memory) layer.c = layer.h + 1;
        return layer.h;
    }
    int count = 0;

  private:
    bool read_weights(const LayersObject &cells) {
        count = static_cast<int>(PyTuple_GET_SIZE(cells.weights));
        if (count > most_layers) return false;
        for (int l = 0; l < count; l++) {
            PyObject *weights = PyTuple_GET_ITEM(cells.weights, l);
            Layer &layer = layers_[l];
            layer.count = static_cast<int>(PyTuple_GET_SIZE(weights));
            for (int k = 0; k < layer.count; k++) {
                layer.weights[k] = node_of(PyTuple_GET_ITEM(weights, k));
                if (layer.weights[k] < 0) return false;
            }
        }
        return true;
    }
    bool read_masks(PyObject *masks) {
        if (!masks) return true;
        if (PyTuple_GET_SIZE(masks) != count) return false;
        for (int l = 0; l < count; l++) {
            PyObject *both = PyTuple_GET_ITEM(masks, l);
            if (!PyTuple_CheckExact(both) || PyTuple_GET_SIZE(both) != 2) return false;
            if (!optional(PyTuple_GET_ITEM(both, 0), layers_[l].mask_x) ||
                !optional(PyTuple_GET_ITEM(both, 1), layers_[l].mask_h))
                return false;
        }
        return true;
    }
    bool read_before(const StateObject &state) {
        if (!state.layers) {
            const int size = current.engine->graph.size();
            for (int l = 0; l < count; l++) {
                layers_[l].h = state.outputs[l];
                if (cells_->has_memory) layers_[l].c = state.outputs[l] + 1;
                if (state.outputs[l] + cells_->has_memory >= size) return false;  // removed by cg_revert
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
    bool read_layer(PyObject *layer, int l) {
        if (!PyTuple_CheckExact(layer)) return false;
        const Py_ssize_t size = PyTuple_GET_SIZE(layer);
        if (size < 1 || size > 1 + cells_->has_memory) return false;
        layers_[l].h = node_of(PyTuple_GET_ITEM(layer, 0));
        if (size == 2) layers_[l].c = node_of(PyTuple_GET_ITEM(layer, 1));
        return layers_[l].h >= 0 && (size == 1 || layers_[l].c >= 0);
    }

    struct Layer {
        int weights[most_weights], count = 0;
        int h = -1, c = -1;            // before the step; -1 for zeros
        int mask_x = -1, mask_h = -1;  // -1 for none
    };
    Layer layers_[most_layers];
    LayersObject *cells_ = nullptr;
    PyObject *network_ = nullptr;
};

}  // namespace dpmodule::autobatch
