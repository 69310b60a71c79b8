// The recurrent part of an LSTM over a whole sequence, after the input's map was computed for all steps, and whole
// networks of LSTMs and GRUs for inference. For states and batches so small that a library's call overhead per step
// exceeds its arithmetic.
//
// Shape letters: T time steps, N batch, H features of the state. Sequences are rows of T * N; the row of step t
// and example n is t * step_gap + n * row_gap if step_gap > 0. Gates are in the order i, f, g, o.
//
// Source: Hochreiter & Schmidhuber 1997 with forget gates (Gers et al. 2000), as torch.lstm has them.
#pragma once

#include <cstddef>

namespace dpmodule {

// Memory layout of a sequence; with a negative `step_gap` the first step is last in memory.
struct Sequence {
    std::ptrdiff_t steps, rows, units, step_gap, row_gap;
    std::ptrdiff_t width = 0;  // of a row of `hidden`; `lstm_forward` sets it to `units`

    std::ptrdiff_t row(std::ptrdiff_t step, std::ptrdiff_t example) const {
        return (step_gap < 0 ? step - steps + 1 : step) * step_gap + example * row_gap;
    }
};

struct LstmForward {
    Sequence sequence;
    const float *weight;        // (4H, H), of the state's map
    const float *bias;          // (4H), of the state's map, or null
    const float *hidden_begin;  // (N, H)
    const float *cell_begin;    // (N, H)
    float *gates;               // (T * N, 4H): the input's map; becomes the gates' activations
    float *hidden;              // (T * N, H): written
    float *cells;               // (T * N, H): written
    float *before;              // (T * N, H): written with the hidden state before each step; or null
    float *last_hidden;         // (N, H): written
    float *last_cell;           // (N, H): written
};

// Maps of the input and the state of one layer and direction. Gates of a GRU are in the order r, z, n.
struct Cell {
    const float *packed;     // by `pack_cell`
    const float *data_bias;  // (G * H), of the input's map, or null
    const float *bias;       // (G * H), of the state's map, or null
};

// A whole network for inference, of L layers and D directions; the second direction begins with the last step.
struct Recurrent {
    Sequence sequence;  // with step_gap > 0
    std::ptrdiff_t gates, features, layers, directions;
    const float *data;          // (T * N, features)
    const float *hidden_begin;  // (L * D, N, H), or null for zeros
    const float *cell_begin;    // (L * D, N, H), or null for zeros
    float *hidden;              // (T * N, D * H): written
    float *last_hidden;         // (L * D, N, H): written
    float *last_cell;           // (L * D, N, H): written, for LSTMs
    const Cell *cells;          // (L * D)
};

// Maps to be packed; `data_weight` is (G * H, K) and `weight` (G * H, H).
struct CellWeights {
    std::ptrdiff_t gates, features, units;
    const float *data_weight, *weight;
    float *packed;  // `packed_cell_size` elements: written
};

struct LstmBackward {
    Sequence sequence;
    const float *weight;      // (4H, H)
    const float *cell_begin;  // (N, H)
    const float *gates;       // (T * N, 4H), activations
    const float *cells;       // (T * N, H)
    const float *for_hidden;  // (T * N, H), gradient of all hidden states; or null
    float *for_gates;         // (T * N, 4H): written, before the activations
    float *for_bias;          // (4H): the sum is added
    float *for_begin;         // (N, H): gradient of the last hidden state; becomes that of the initial one
    float *for_cell;          // (N, H): the same for the cell
};

std::ptrdiff_t packed_cell_size(std::ptrdiff_t gates, std::ptrdiff_t features, std::ptrdiff_t units);
bool pack_cell(const CellWeights &cell);

// All return false if there is no working memory.
bool recurrent(const Recurrent &run);
bool lstm_forward(const LstmForward &run);
bool lstm_backward(const LstmBackward &run);

}  // namespace dpmodule
