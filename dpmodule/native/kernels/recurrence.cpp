// The loops use compiler vectors and are compiled for several instruction sets, of which the best one is selected at
// the first call.
#include "recurrence.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "parallel.hpp"
#include "product.hpp"
#include "vector.hpp"

// no function with vectors is called across files, and all are inlined
#pragma GCC diagnostic ignored "-Wpsabi"

namespace dpmodule {
namespace {

constexpr std::ptrdiff_t kMinGates = 1 << 15;  // minimal gates per thread, to outweigh its wake-up

constexpr std::ptrdiff_t gates_of(Cell cell) { return cell == Cell::Lstm ? 4 : cell == Cell::Gru ? 3 : 1; }

// Examples of a step.
struct Examples {
    std::ptrdiff_t step, begin, end;
};

// Calls `Loop::block<Width, cell>` for all vectors of units of some examples.
template <class Loop>
struct EachUnit {
    template <int Width, class Run, class... Given>
    DPMODULE_INLINE static void run(const Run &run, const Examples &part, const Given &...given) {
        switch (run.cell) {
            case Cell::Relu: return all<Width, Cell::Relu>(run, part, given...);
            case Cell::Tanh: return all<Width, Cell::Tanh>(run, part, given...);
            case Cell::Lstm: return all<Width, Cell::Lstm>(run, part, given...);
            case Cell::Gru: return all<Width, Cell::Gru>(run, part, given...);
        }
    }

    template <int Width, Cell cell, class Run, class... Given>
    DPMODULE_INLINE static void all(const Run &run, const Examples &part, const Given &...given) {
        const std::ptrdiff_t units = run.sequence.units;
        // the last vector may overlap the one before if nothing that is read is written
        const std::ptrdiff_t most = run.before || units < Width ? units : units - Width;
        for (std::ptrdiff_t example = part.begin; example < part.end; ++example) {
            for (std::ptrdiff_t first = 0; first < units; first += Width) {
                Loop::template block<Width, cell>(run, part.step, example, std::min(first, most), given...);
            }
        }
    }
};

template <class Loop, class Run, class... Given>
void each_unit(const Run &run, std::ptrdiff_t step, const Given &...given) {
    const Sequence &s = run.sequence;
    const std::ptrdiff_t useful = s.rows * s.units * gates_of(run.cell) / kMinGates;
    parallel_ranges(s.rows, std::min({std::ptrdiff_t{s.threads}, s.rows, useful}),
                    [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
                        run_best<EachUnit<Loop>>(run, Examples{step, begin, end}, given...);
                    });
}

// Gates and states from the maps of the input and of the states, (N, G * H).
struct Forward {
    template <int Width, Cell cell>
    DPMODULE_INLINE static void block(const RecurrentForward &run, std::ptrdiff_t step, std::ptrdiff_t example,
                                      std::ptrdiff_t first, const float *maps) {
        using V = Vector<Width>;
        using Floats = typename V::Floats;
        const Sequence &s = run.sequence;
        const std::ptrdiff_t units = s.units, count = units - first, row = s.row(step, example);
        constexpr std::ptrdiff_t kGates = gates_of(cell);
        float *gates = run.gates + row * kGates * units + first, *hidden = run.hidden + row * s.width + first;
        maps += example * kGates * units + first;
        const auto map = [&](std::ptrdiff_t gate) DPMODULE_INLINED { return V::load(maps + gate * units, count); };
        const auto sum = [&](std::ptrdiff_t gate)
                             DPMODULE_INLINED { return V::load(gates + gate * units, count) + map(gate); };
        if constexpr (cell == Cell::Relu) {
            const Floats x = sum(0);
            V::store(hidden, x < 0.0f ? Floats{} : x, count);  // NaN stays
        } else if constexpr (cell == Cell::Tanh) {
            V::store(hidden, V::quick_tanh(sum(0)), count);
        } else {
            const Floats one = V::quick_sigmoid(sum(0)), keep = V::quick_sigmoid(sum(1));
            Floats fresh;
            if constexpr (cell == Cell::Gru) {
                const Floats state = map(2);
                const float *before =
                    step ? run.hidden + s.row(step - 1, example) * s.width : run.hidden_begin + example * units;
                fresh = V::quick_tanh(V::load(gates + 2 * units, count) + one * state);
                if (run.cells) V::store(run.cells + row * units + first, state, count);
                V::store(hidden, fresh + keep * (V::load(before + first, count) - fresh), count);
            } else {
                fresh = V::quick_tanh(sum(2));
                const float *before =
                    step ? run.cells + s.row(step - 1, example) * units : run.cell_begin + example * units;
                const Floats out = V::quick_sigmoid(sum(3)), made = keep * V::load(before + first, count) + one * fresh;
                if (run.before) V::store(gates + 3 * units, out, count);
                V::store(run.cells + row * units + first, made, count);
                V::store(hidden, out * V::quick_tanh(made), count);
            }
            if (run.before) {
                V::store(gates, one, count);
                V::store(gates + units, keep, count);
                V::store(gates + 2 * units, fresh, count);
            }
        }
    }
};

// Gradients of both maps, and of the previous state but for what comes through its map.
struct Backward {
    template <int Width, Cell cell>
    DPMODULE_INLINE static void block(const RecurrentBackward &run, std::ptrdiff_t step, std::ptrdiff_t example,
                                      std::ptrdiff_t first) {
        using V = Vector<Width>;
        using Floats = typename V::Floats;
        const Sequence &s = run.sequence;
        const std::ptrdiff_t units = s.units, count = units - first, row = s.row(step, example);
        constexpr std::ptrdiff_t kGates = gates_of(cell);
        const std::ptrdiff_t at = row * units + first, gates_at = row * kGates * units + first;
        const auto gate = [&](std::ptrdiff_t i)
                              DPMODULE_INLINED { return V::load(run.gates + gates_at + i * units, count); };
        const auto write = [&](float *to, std::ptrdiff_t i, const Floats &x)
                               DPMODULE_INLINED { V::store(to + gates_at + i * units, x, count); };
        const std::ptrdiff_t own = example * units + first;
        Floats grad = V::load(run.for_begin + own, count);
        if (run.for_hidden) grad += V::load(run.for_hidden + at, count);
        if constexpr (cell == Cell::Relu) {
            write(run.for_gates, 0, V::load(run.hidden + at, count) <= 0.0f ? Floats{} : grad);  // 1 at NaN, as relu's
        } else if constexpr (cell == Cell::Tanh) {
            const Floats made = V::load(run.hidden + at, count);
            write(run.for_gates, 0, grad * (1.0f - made * made));
        } else if constexpr (cell == Cell::Gru) {
            const Floats reset = gate(0), keep = gate(1), fresh = gate(2);
            grad += V::load(run.for_cell + own, count);
            V::store(run.for_cell + own, grad * keep, count);
            const Floats for_fresh = grad * (1.0f - keep) * (1.0f - fresh * fresh);
            const Floats for_reset = for_fresh * V::load(run.cells + at, count) * reset * (1.0f - reset);
            const Floats for_keep = grad * (V::load(run.before + at, count) - fresh) * keep * (1.0f - keep);
            for (float *to : {run.for_gates, run.for_maps}) {
                write(to, 0, for_reset);
                write(to, 1, for_keep);
            }
            write(run.for_gates, 2, for_fresh * reset);
            write(run.for_maps, 2, for_fresh);
        } else {
            const Floats in = gate(0), keep = gate(1), fresh = gate(2), out = gate(3);
            const Floats squashed = V::quick_tanh(V::load(run.cells + at, count));
            const float *before =
                step ? run.cells + s.row(step - 1, example) * units : run.cell_begin + example * units;
            const Floats made = V::load(run.for_cell + own, count) + grad * out * (1.0f - squashed * squashed);
            V::store(run.for_cell + own, made * keep, count);
            write(run.for_gates, 0, made * fresh * in * (1.0f - in));
            write(run.for_gates, 1, made * V::load(before + first, count) * keep * (1.0f - keep));
            write(run.for_gates, 2, made * in * (1.0f - fresh * fresh));
            write(run.for_gates, 3, grad * squashed * out * (1.0f - out));
        }
    }
};

// Copies the states after the last step, from rows of some width.
void copy_last(const Sequence &s, const float *states, std::ptrdiff_t width, float *to) {
    for (std::ptrdiff_t example = 0; example < s.rows; ++example) {
        std::memcpy(to + example * s.units, states + s.row(s.steps - 1, example) * width, sizeof(float) * s.units);
    }
}

// Runs all steps; `packed` is the weight packed by `pack`, and `maps` memory for a step's maps.
bool forward(const RecurrentForward &run, const float *packed, float *maps) {
    const Sequence &s = run.sequence;
    Matrix states{run.hidden_begin, s.units, 1};
    for (std::ptrdiff_t step = 0; step < s.steps; ++step) {
        if (step) states = {run.hidden + s.row(step - 1, 0) * s.width, s.row_gap * s.width, 1};
        Product product{s.rows, gates_of(run.cell) * s.units, s.units, states, {}, run.bias, maps, packed};
        product.threads = s.threads;
        if (!multiply(product)) return false;
        each_unit<Forward>(run, step, maps);
    }
    copy_last(s, run.hidden, s.width, run.last_hidden);
    if (run.cell == Cell::Lstm) copy_last(s, run.cells, s.units, run.last_cell);
    return true;
}

}  // namespace

bool recurrent_forward(const RecurrentForward &given) {
    RecurrentForward run = given;
    run.sequence.width = run.sequence.units;
    const Sequence &s = run.sequence;
    const std::ptrdiff_t columns = gates_of(run.cell) * s.units, size = packed_size(columns, s.units);
    const std::unique_ptr<float[]> memory(new (std::nothrow) float[size + s.rows * columns]);
    if (!memory) return false;
    pack({run.weight, 1, s.units}, columns, s.units, memory.get());
    if (!forward(run, memory.get(), memory.get() + size)) return false;
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
    return packed_size(gates * units, features) + packed_size(gates * units, units);
}

bool pack_cell(const CellWeights &cell) {
    const std::ptrdiff_t columns = cell.gates * cell.units;
    pack({cell.data_weight, 1, cell.features}, columns, cell.features, cell.packed);
    pack({cell.weight, 1, cell.units}, columns, cell.units, cell.packed + packed_size(columns, cell.features));
    return true;
}

bool recurrent(const Recurrent &run) {
    const Sequence &s = run.sequence;
    const std::ptrdiff_t rows = s.steps * s.rows, width = run.directions * s.units, state = s.rows * s.units,
                         columns = gates_of(run.cell) * s.units, inner = run.layers > 1 ? rows * width : 0;
    const std::unique_ptr<float[]> memory(
        new (std::nothrow) float[(rows + s.rows) * columns + rows * s.units +
                                 std::min(run.layers - 1, std::ptrdiff_t{2}) * inner]);
    const std::unique_ptr<float[]> zeros(new (std::nothrow) float[state]());
    if (!memory || !zeros) return false;
    float *gates = memory.get(), *maps = gates + rows * columns, *cells = maps + s.rows * columns,
          *between = cells + rows * s.units;
    const float *data = run.data;
    std::ptrdiff_t features = run.features;
    for (std::ptrdiff_t layer = 0; layer < run.layers; ++layer) {
        float *hidden = layer == run.layers - 1 ? run.hidden : between + layer % 2 * inner;
        for (std::ptrdiff_t direction = 0; direction < run.directions; ++direction) {
            const std::ptrdiff_t i = layer * run.directions + direction;
            const CellMaps &cell = run.cells[i];
            Product product{rows, columns, features, {data, features, 1}, {}, cell.data_bias, gates, cell.packed};
            product.threads = s.threads;
            if (!multiply(product)) return false;
            const Sequence own{s.steps,   s.rows,    s.units, direction ? -s.step_gap : s.step_gap,
                               s.row_gap, s.threads, width};
            const RecurrentForward part{own,
                                        run.cell,
                                        nullptr,
                                        cell.bias,
                                        run.hidden_begin ? run.hidden_begin + i * state : zeros.get(),
                                        run.cell_begin ? run.cell_begin + i * state : zeros.get(),
                                        gates,
                                        hidden + direction * s.units,
                                        run.cell == Cell::Lstm ? cells : nullptr,
                                        nullptr,
                                        run.last_hidden + i * state,
                                        run.cell == Cell::Lstm ? run.last_cell + i * state : nullptr};
            if (!forward(part, cell.packed + packed_size(columns, features), maps)) return false;
        }
        data = hidden;
        features = width;
    }
    return true;
}

bool recurrent_backward(const RecurrentBackward &run) {
    const Sequence &s = run.sequence;
    const std::ptrdiff_t depth = gates_of(run.cell) * s.units;
    const std::unique_ptr<float[]> packed(new (std::nothrow) float[packed_size(s.units, depth)]);
    if (!packed) return false;
    pack({run.weight, s.units, 1}, s.units, depth, packed.get());
    for (std::ptrdiff_t step = s.steps; step-- > 0;) {
        each_unit<Backward>(run, step);
        const Matrix grads{run.for_gates + s.row(step, 0) * depth, s.row_gap * depth, 1};
        Product product{s.rows, s.units, depth, grads, {}, nullptr, run.for_begin, packed.get()};
        product.threads = s.threads;
        if (!multiply(product)) return false;
    }
    if (run.cell == Cell::Gru) {
        for (std::ptrdiff_t i = 0; i < s.rows * s.units; ++i) run.for_begin[i] += run.for_cell[i];
    }
    return true;
}

}  // namespace dpmodule
