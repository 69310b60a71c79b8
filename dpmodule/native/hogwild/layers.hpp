// The operators of the engine; attributes come in the order of the functions in hogwild/native_operators.py that make the steps.
#pragma once

#include <memory>

#include "dense_gradient.hpp"
#include "layer.hpp"

namespace dpmodule::hogwild {

using LayerPointer = std::unique_ptr<Layer>;
using Inputs = std::vector<Input>;

LayerPointer make_fully_connected(Inputs inputs, Value &output, DenseInput weight, DenseInput bias);

// pointwise_layers.cpp
LayerPointer make_unary(Inputs inputs, Value &output, const Step &step);
LayerPointer make_binary(Inputs inputs, Value &output, const Step &step);
LayerPointer make_concat(Inputs inputs, Value &output);
LayerPointer make_dropout(Inputs inputs, Value &output, const Step &step, int batch_size);
LayerPointer make_stop(Inputs inputs, Value &output);

// row_layers.cpp
LayerPointer make_numbers(Value &output, const Step &step);
LayerPointer make_reduce(Inputs inputs, Value &output, const Step &step);
LayerPointer make_softmax(Inputs inputs, Value &output, const Step &step);
LayerPointer make_pick(Inputs inputs, Value &output);
LayerPointer make_total(Inputs inputs, Value &output, const Step &step);
LayerPointer make_argmax(Inputs inputs, Value &output);

// loss_layers.cpp
LayerPointer make_softmax_output(Inputs inputs, Value &output, const Step &step);
LayerPointer make_regression(Inputs inputs, Value &output, const Step &step);
LayerPointer make_loss(Inputs inputs, Value &output, const Step &step);
LayerPointer make_cross_entropy(Inputs inputs, Value &output, int batch_size);

// Write probabilities of each row of scores.
void softmax_rows(int rows, int width, const float *scores, float *probabilities);

}  // namespace dpmodule::hogwild
