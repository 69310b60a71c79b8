// The networks of AutobatchState, and their steps.
#pragma once

#include <memory>

#include "python_state.hpp"

namespace dpmodule::autobatch {

constexpr int most_layers = 4, most_weights = 12;

struct LayersObject;

// Steps recorded from the network's Python method `cell`, by shapes and parameters; see compound.cpp.
class RecordedSteps {
  public:
    // The compound of `layer` for x, h, c and the mask of h (-1: none), a number in Signatures::compounds; -1 if it is
    // not supported.
    int find(const LayersObject &layers, PyObject *network, int layer, const int *operands, const int *weights,
             int count);

  private:
    int serial_ = 0;  // of their engine
    Interner numbers_;
    std::vector<int> compounds_;
    std::vector<int> key_;  // scratch space
};

struct LayersObject {
    PyObject_HEAD PyObject *weights;  // a tuple of tuples of parameters
    PyObject *masks;                  // nullptr, or a tuple of pairs of dropout masks of input and output, or None
    RecordedSteps *learned;           // nullptr for LSTMs with parameters (Wx, Wh, b)
    double forget_bias;
    char has_memory;
    char ready;  // false: native steps do not support the settings
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
    bool read(const StateObject &state);
    // Adds a step of layer `l` and returns its output, or -1 if the input does not fit.
    int add(int l, int x);
    int count = 0;

  private:
    bool read_weights(const LayersObject &cells);
    bool read_masks(PyObject *masks);
    bool read_before(const StateObject &state);
    bool read_layer(PyObject *layer, int l);

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
