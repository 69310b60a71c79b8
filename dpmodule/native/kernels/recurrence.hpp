// Recurrent networks over whole sequences: plain ones, GRUs and LSTMs. A step is one product with the weight of the
// states, for which libraries have an overhead that exceeds the arithmetic of small batches, and a loop over the gates.
//
// Shape letters: T time steps, N batch, H features of the state, G gates. Sequences are rows of T * N; the row of step t
// and example n is t * step_gap + n * row_gap if step_gap > 0. Gates are in the order r, z, n of a GRU, and i, f, g, o
// of an LSTM.
//
// Source: Elman 1990; Cho et al. 2014, with the reset after the product; Hochreiter & Schmidhuber 1997 with forget
// gates (Gers et al. 2000); as torch's `rnn_relu`, `rnn_tanh`, `gru` and `lstm` have them.
#pragma once

#include <cstddef>

namespace dpmodule {

// Memory layout of a sequence; with a negative `step_gap` the first step is last in memory.
struct Sequence {
    std::ptrdiff_t steps, rows, units, step_gap, row_gap;
    int threads;               // maximal number of threads; does not change the results
    std::ptrdiff_t width = 0;  // of a row of `hidden`; `recurrent_forward` sets it to `units`

    std::ptrdiff_t row(std::ptrdiff_t step, std::ptrdiff_t example) const {
        return (step_gap < 0 ? step - steps + 1 : step) * step_gap + example * row_gap;
    }
};

enum class Cell : std::ptrdiff_t { Relu, Tanh, Lstm, Gru };  // in the order of `MODES` in rnn_weights.py

struct RecurrentForward {
    Sequence sequence;
    Cell cell;
    const float *weight;        // (G * H, H), of the state's map
    const float *bias;          // (G * H), of the state's map, or null
    const float *hidden_begin;  // (N, H)
    const float *cell_begin;    // (N, H), of an LSTM
    float *gates;        // (T * N, G * H): the input's map; becomes the gates' activations, but of plain networks
    float *hidden;       // (T * N, H): written
    float *cells;        // (T * N, H): written by an LSTM; by a GRU with the state's map of the new gate, or null
    float *before;       // (T * N, H): written with the hidden state before each step; null to store no gates
    float *last_hidden;  // (N, H): written
    float *last_cell;    // (N, H): written by an LSTM
};

struct RecurrentBackward {
    Sequence sequence;
    Cell cell;
    const float *weight;      // (G * H, H)
    const float *cell_begin;  // (N, H), of an LSTM
    const float *gates;       // (T * N, G * H), activations
    const float *cells;       // (T * N, H), as of `RecurrentForward`
    const float *hidden;      // (T * N, H)
    const float *before;      // (T * N, H)
    const float *for_hidden;  // (T * N, H), gradient of all hidden states; or null
    float *for_gates;         // (T * N, G * H): written with the gradient of the state's map
    float *for_maps;          // (T * N, G * H): written by a GRU with the gradient of the input's map
    float *for_begin;         // (N, H): gradient of the last hidden state; becomes that of the initial one
    float *for_cell;          // (N, H): the same for an LSTM's cell; zeros for a GRU
};

// Maps of the input and the state of one layer and direction.
struct CellMaps {
    const float *packed;     // by `pack_cell`
    const float *data_bias;  // (G * H), of the input's map, or null
    const float *bias;       // (G * H), of the state's map, or null
};

// A whole network for inference, of L layers and D directions; the second direction begins with the last step.
struct Recurrent {
    Sequence sequence;  // with step_gap > 0
    Cell cell;
    std::ptrdiff_t features, layers, directions;
    const float *data;          // (T * N, features)
    const float *hidden_begin;  // (L * D, N, H), or null for zeros
    const float *cell_begin;    // (L * D, N, H), or null for zeros
    float *hidden;              // (T * N, D * H): written
    float *last_hidden;         // (L * D, N, H): written
    float *last_cell;           // (L * D, N, H): written, for LSTMs
    const CellMaps *cells;      // (L * D)
};

// Maps to be packed; `data_weight` is (G * H, K) and `weight` (G * H, H).
struct CellWeights {
    std::ptrdiff_t gates, features, units;
    const float *data_weight, *weight;
    float *packed;  // `packed_cell_size` elements: written
};

std::ptrdiff_t packed_cell_size(std::ptrdiff_t gates, std::ptrdiff_t features, std::ptrdiff_t units);
bool pack_cell(const CellWeights &cell);

// They return false if memory cannot be allocated.
bool recurrent(const Recurrent &run);
bool recurrent_forward(const RecurrentForward &run);
bool recurrent_backward(const RecurrentBackward &run);

}  // namespace dpmodule
