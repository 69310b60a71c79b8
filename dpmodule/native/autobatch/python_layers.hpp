// The networks that AutobatchState adds steps of, and these steps.
#pragma once

#include <memory>

#include "python_state.hpp"

namespace dpmodule::autobatch {

constexpr int most_layers = 4, most_weights = 12;

struct LayersObject;

// Steps of layers as the method `cell` of the network in Python computes them, by the shapes and parameters that they are
// made for; see compound.cpp.
class Learned {
  public:
    // What `layer` does with x, h, c and the mask of h (-1: none), a number of Signatures::compounds; -1 if its operations
    // are no such thing.
    int find(const LayersObject &layers, PyObject *network, int layer, const int *operands, const int *weights,
             int count);

  private:
    int serial_ = 0;  // of the engine that they are known to
    Interner numbers_;
    std::vector<int> compounds_;
    std::vector<int> key_;  // scratch space
};

struct LayersObject {
    PyObject_HEAD PyObject *weights;  // a tuple of tuples of parameters
    PyObject *masks;   // nullptr, or a tuple of pairs: what inputs and outputs are multiplied with, or None
    Learned *learned;  // nullptr: they are LSTMs with parameters (Wx, Wh, b)
    double forget_bias;
    char has_memory;
    char ready;  // false: something is asked for that steps here do not do
};

struct StateObject {
    PyObject_HEAD PyObject *builder, *cells, *previous;
    PyObject *layers;          // nullptr: `outputs` tells
    int version;               // of the graph
    int count;                 // of `outputs`
    int outputs[most_layers];  // nodes; the memory of each layer, if it has one, is the node that follows
};

extern PyTypeObject *layers_type;  // AutobatchLayers
inline LayersObject *layers_of(PyObject *x) { return reinterpret_cast<LayersObject *>(x); }

// What the steps from a state on need; `read` says whether they can be added here at all.
class Steps {
  public:
    bool read(const StateObject &state);
    // One step of layer `l`: its output, or -1 where the input does not fit.
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
