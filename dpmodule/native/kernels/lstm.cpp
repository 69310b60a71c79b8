// The loops use compiler vectors and are compiled for several instruction sets, of which the best one is selected at
// the first call.
#include "lstm.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "product.hpp"
#include "vector.hpp"

// no function with vectors is called across files, and all are inlined
#pragma GCC diagnostic ignored "-Wpsabi"

namespace dpmodule {
namespace {

std::ptrdiff_t size_by_gate(std::ptrdiff_t gates, std::ptrdiff_t units) {
    const std::ptrdiff_t width = best_width();
    return (units + width - 1) / width * width * units * gates;
}

// Writes the weight for forward to zeros: for each block of units and each feature of the state, the weights of all
// gates.
void pack_by_gate(const float *weight, std::ptrdiff_t gates, std::ptrdiff_t units, float *packed) {
    const std::ptrdiff_t width = best_width();
    for (std::ptrdiff_t gate = 0; gate < gates; ++gate) {
        for (std::ptrdiff_t first = 0; first < units; first += width) {
            copy_block({weight + (gate * units + first) * units, 1, units}, units, std::min(width, units - first),
                       packed + first * units * gates + gate * width, gates * width);
        }
    }
}

// The weight for backward: for each block of `width` units, the weights of every row.
std::unique_ptr<float[]> pack_by_unit(const float *weight, std::ptrdiff_t units, std::ptrdiff_t width) {
    const std::ptrdiff_t blocks = (units + width - 1) / width, rows = 4 * units;
    std::unique_ptr<float[]> packed(new (std::nothrow) float[blocks * rows * width]());
    if (!packed) return packed;
    float *to = packed.get();
    for (std::ptrdiff_t first = 0; first < units; first += width) {
        const std::ptrdiff_t count = std::min(width, units - first);
        for (std::ptrdiff_t row = 0; row < rows; ++row, to += width) {
            std::memcpy(to, weight + row * units + first, sizeof(float) * count);
        }
    }
    return packed;
}

// Adds the state's map of some examples, for all gates of a block of units.
template <int Width, int Rows, int Gates>
DPMODULE_INLINE void add_map(typename Vector<Width>::Floats (&sums)[Rows][Gates], const float *const (&states)[Rows],
                             const float *panel, std::ptrdiff_t units) {
    for (std::ptrdiff_t k = 0; k < units; ++k, panel += Gates * Width) {
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const float state = states[r][k];
#pragma GCC unroll 4
            for (int g = 0; g < Gates; ++g) sums[r][g] += Vector<Width>::load(panel + g * Width) * state;
        }
    }
}

// Arguments of the recurrence of a GRU, as in `LstmForward`.
struct GruForward {
    Sequence sequence;
    const float *bias, *hidden_begin, *gates;
    float *hidden;
};

// One step of some examples for a block of units: the state's map, then gates and states.
template <int Width, int Rows>
DPMODULE_INLINE void step_forward(const GruForward &run, const float *panel, std::ptrdiff_t step,
                                  std::ptrdiff_t example, std::ptrdiff_t first) {
    using V = Vector<Width>;
    using Floats = typename V::Floats;
    const Sequence &s = run.sequence;
    const std::ptrdiff_t units = s.units, count = units - first;
    const float *states[Rows];
    Floats sums[Rows][3] = {};
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        states[r] =
            step ? run.hidden + s.row(step - 1, example + r) * s.width : run.hidden_begin + (example + r) * units;
#pragma GCC unroll 3
        for (int g = 0; g < 3; ++g) {
            if (run.bias) sums[r][g] = V::load(run.bias + g * units + first, count);
        }
    }
    add_map<Width>(sums, states, panel, units);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        const std::ptrdiff_t row = s.row(step, example + r);
        const float *gates = run.gates + row * 3 * units + first;
        const Floats reset = V::sigmoid(sums[r][0] + V::load(gates, count)),
                     keep = V::sigmoid(sums[r][1] + V::load(gates + units, count)),
                     fresh = V::tanh(reset * sums[r][2] + V::load(gates + 2 * units, count));
        V::store(run.hidden + row * s.width + first, fresh + keep * (V::load(states[r] + first, count) - fresh), count);
    }
}

template <int Width, int Rows>
DPMODULE_INLINE void step_forward(const LstmForward &run, const float *panel, std::ptrdiff_t step,
                                  std::ptrdiff_t example, std::ptrdiff_t first) {
    using V = Vector<Width>;
    using Floats = typename V::Floats;
    const Sequence &s = run.sequence;
    const std::ptrdiff_t units = s.units, count = units - first;
    const float *states[Rows];
    Floats sums[Rows][4];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        states[r] =
            step ? run.hidden + s.row(step - 1, example + r) * s.width : run.hidden_begin + (example + r) * units;
        const float *gates = run.gates + s.row(step, example + r) * 4 * units + first;
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            sums[r][g] = V::load(gates + g * units, count);
            if (run.bias) sums[r][g] += V::load(run.bias + g * units + first, count);
        }
    }
    add_map<Width>(sums, states, panel, units);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        const std::ptrdiff_t row = s.row(step, example + r);
        const float *cell_before =
            step ? run.cells + s.row(step - 1, example + r) * units : run.cell_begin + (example + r) * units;
        const Floats in = V::sigmoid(sums[r][0]), keep = V::sigmoid(sums[r][1]), fresh = V::tanh(sums[r][2]),
                     out = V::sigmoid(sums[r][3]);
        const Floats cell = keep * V::load(cell_before + first, count) + in * fresh;
        float *gates = run.gates + row * 4 * units + first;
        V::store(gates, in, count);
        V::store(gates + units, keep, count);
        V::store(gates + 2 * units, fresh, count);
        V::store(gates + 3 * units, out, count);
        V::store(run.cells + row * units + first, cell, count);
        V::store(run.hidden + row * s.width + first, out * V::tanh(cell), count);
    }
}

template <int Width, int Rows, class Run>
DPMODULE_INLINE void all_forward(const Run &run, const float *packed, std::ptrdiff_t gates) {
    const Sequence &s = run.sequence;
    for (std::ptrdiff_t step = 0; step < s.steps; ++step) {
        for (std::ptrdiff_t first = 0; first < s.units; first += Width) {
            const float *panel = packed + first * s.units * gates;
            std::ptrdiff_t example = 0;
            for (; example + Rows <= s.rows; example += Rows) {
                step_forward<Width, Rows>(run, panel, step, example, first);
            }
            for (; example < s.rows; ++example) step_forward<Width, 1>(run, panel, step, example, first);
        }
    }
}

// Gradients of one step's gates and of the previous cell state, for one example.
template <int Width>
DPMODULE_INLINE void gates_backward(const LstmBackward &run, std::ptrdiff_t step, std::ptrdiff_t example) {
    using V = Vector<Width>;
    using Floats = typename V::Floats;
    const Sequence &s = run.sequence;
    const std::ptrdiff_t units = s.units, row = s.row(step, example);
    const float *cell_before = step ? run.cells + s.row(step - 1, example) * units : run.cell_begin + example * units;
    for (std::ptrdiff_t first = 0; first < units; first += Width) {
        const std::ptrdiff_t count = units - first;
        const float *gates = run.gates + row * 4 * units + first;
        const Floats in = V::load(gates, count), keep = V::load(gates + units, count),
                     fresh = V::load(gates + 2 * units, count), out = V::load(gates + 3 * units, count);
        const Floats squashed = V::tanh(V::load(run.cells + row * units + first, count));
        Floats hidden = V::load(run.for_begin + example * units + first, count);
        if (run.for_hidden) hidden += V::load(run.for_hidden + row * units + first, count);
        float *carried = run.for_cell + example * units + first;
        const Floats cell = V::load(carried, count) + hidden * out * (1.0f - squashed * squashed);
        V::store(carried, cell * keep, count);
        const Floats found[4] = {cell * fresh * in * (1.0f - in),
                                 cell * V::load(cell_before + first, count) * keep * (1.0f - keep),
                                 cell * in * (1.0f - fresh * fresh), hidden * squashed * out * (1.0f - out)};
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            float *bias = run.for_bias + g * units + first;
            V::store(run.for_gates + (row * 4 + g) * units + first, found[g], count);
            V::store(bias, V::load(bias, count) + found[g], count);
        }
    }
}

// Gradient of the previous hidden state, for some examples and a block of units.
template <int Width, int Rows>
DPMODULE_INLINE void states_backward(const LstmBackward &run, const float *panel, std::ptrdiff_t step,
                                     std::ptrdiff_t example, std::ptrdiff_t first) {
    using V = Vector<Width>;
    const Sequence &s = run.sequence;
    const float *gates[Rows];
    // for even and odd rows, to shorten dependency chains
    typename V::Floats sums[2][Rows] = {};
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) gates[r] = run.for_gates + s.row(step, example + r) * 4 * s.units;
    for (std::ptrdiff_t row = 0; row < 4 * s.units; row += 2, panel += 2 * Width) {
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            sums[0][r] += V::load(panel) * gates[r][row];
            sums[1][r] += V::load(panel + Width) * gates[r][row + 1];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        V::store(run.for_begin + (example + r) * s.units + first, sums[0][r] + sums[1][r], s.units - first);
    }
}

template <int Width, int Rows>
DPMODULE_INLINE void all_backward(const LstmBackward &run, const float *packed) {
    const Sequence &s = run.sequence;
    for (std::ptrdiff_t step = s.steps; step-- > 0;) {
        for (std::ptrdiff_t example = 0; example < s.rows; ++example) {
            gates_backward<Width>(run, step, example);
        }
        for (std::ptrdiff_t first = 0; first < s.units; first += Width) {
            const float *panel = packed + first * s.units * 4;
            std::ptrdiff_t example = 0;
            for (; example + Rows <= s.rows; example += Rows) {
                states_backward<Width, Rows>(run, panel, step, example, first);
            }
            for (; example < s.rows; ++example) states_backward<Width, 1>(run, panel, step, example, first);
        }
    }
}

// Processes as many rows at a time as the registers can hold.
struct Forward {
    template <int Width, class Run>
    DPMODULE_INLINE static void run(const Run &run, const float *packed, std::ptrdiff_t gates) {
        all_forward<Width, (Width == 16 ? 4 : 2)>(run, packed, gates);
    }
};

struct Backward {
    template <int Width>
    DPMODULE_INLINE static void run(const LstmBackward &run, const float *packed) {
        all_backward<Width, (Width == 16 ? 8 : 4)>(run, packed);
    }
};

// Copies the states after the last step, from rows of some width.
void copy_last(const Sequence &s, const float *states, std::ptrdiff_t width, float *to) {
    for (std::ptrdiff_t example = 0; example < s.rows; ++example) {
        std::memcpy(to + example * s.units, states + s.row(s.steps - 1, example) * width, sizeof(float) * s.units);
    }
}

void forward(const LstmForward &run, const float *packed) {
    run_best<Forward>(run, packed, std::ptrdiff_t{4});
    copy_last(run.sequence, run.hidden, run.sequence.width, run.last_hidden);
    copy_last(run.sequence, run.cells, run.sequence.units, run.last_cell);
}

}  // namespace

bool lstm_forward(const LstmForward &given) {
    LstmForward run = given;
    run.sequence.width = run.sequence.units;
    const Sequence &s = run.sequence;
    const std::unique_ptr<float[]> packed(new (std::nothrow) float[size_by_gate(4, s.units)]());
    if (!packed) return false;
    pack_by_gate(run.weight, 4, s.units, packed.get());
    forward(run, packed.get());
    if (!run.before) return true;
    for (std::ptrdiff_t step = 0; step < s.steps; ++step) {
        for (std::ptrdiff_t example = 0; example < s.rows; ++example) {
            const float *from =
                step ? run.hidden + s.row(step - 1, example) * s.units : run.hidden_begin + example * s.units;
            std::memcpy(run.before + s.row(step, example) * s.units, from, sizeof(float) * s.units);
        }
    }
    return true;
}

std::ptrdiff_t packed_cell_size(std::ptrdiff_t gates, std::ptrdiff_t features, std::ptrdiff_t units) {
    return packed_size(gates * units, features) + size_by_gate(gates, units);
}

bool pack_cell(const CellWeights &cell) {
    const std::ptrdiff_t columns = cell.gates * cell.units, size = packed_size(columns, cell.features);
    pack({cell.data_weight, 1, cell.features}, columns, cell.features, cell.packed);
    std::fill_n(cell.packed + size, size_by_gate(cell.gates, cell.units), 0.0f);
    pack_by_gate(cell.weight, cell.gates, cell.units, cell.packed + size);
    return true;
}

bool recurrent(const Recurrent &run) {
    const Sequence &s = run.sequence;
    const std::ptrdiff_t rows = s.steps * s.rows, width = run.directions * s.units, columns = run.gates * s.units,
                         state = s.rows * s.units, inner = run.layers > 1 ? rows * width : 0;
    const std::unique_ptr<float[]> memory(
        new (std::nothrow) float[rows * (columns + s.units) + std::min(run.layers - 1, std::ptrdiff_t{2}) * inner]);
    const std::unique_ptr<float[]> zeros(new (std::nothrow) float[state]());
    if (!memory || !zeros) return false;
    float *maps = memory.get(), *cells = maps + rows * columns, *between = cells + rows * s.units;
    const float *data = run.data;
    std::ptrdiff_t features = run.features;
    for (std::ptrdiff_t layer = 0; layer < run.layers; ++layer) {
        float *hidden = layer == run.layers - 1 ? run.hidden : between + layer % 2 * inner;
        for (std::ptrdiff_t direction = 0; direction < run.directions; ++direction) {
            const std::ptrdiff_t i = layer * run.directions + direction;
            const Cell &cell = run.cells[i];
            if (!multiply({rows, columns, features, {data, features, 1}, {}, cell.data_bias, maps, cell.packed})) {
                return false;
            }
            const Sequence own{s.steps, s.rows, s.units, direction ? -s.step_gap : s.step_gap, s.row_gap, width};
            const float *weight = cell.packed + packed_size(columns, features);
            const float *begin = run.hidden_begin ? run.hidden_begin + i * state : zeros.get();
            float *own_hidden = hidden + direction * s.units;
            if (run.gates == 4) {
                const float *cell_begin = run.cell_begin ? run.cell_begin + i * state : zeros.get();
                forward({own, nullptr, cell.bias, begin, cell_begin, maps, own_hidden, cells, nullptr,
                         run.last_hidden + i * state, run.last_cell + i * state},
                        weight);
            } else {
                run_best<Forward>(GruForward{own, cell.bias, begin, maps, own_hidden}, weight, std::ptrdiff_t{3});
                copy_last(own, own_hidden, width, run.last_hidden + i * state);
            }
        }
        data = hidden;
        features = width;
    }
    return true;
}

bool lstm_backward(const LstmBackward &run) {
    const std::unique_ptr<float[]> packed = pack_by_unit(run.weight, run.sequence.units, best_width());
    if (!packed) return false;
    run_best<Backward>(run, packed.get());
    return true;
}

}  // namespace dpmodule
