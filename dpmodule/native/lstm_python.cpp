// `lstm`, `lstm_forward` and `lstm_backward` for Python. Compilers without vector types get no such functions.
#include "addresses.hpp"
#include "lstm.hpp"

#if defined(__GNUC__)

#include <initializer_list>

namespace dpmodule {
namespace {

constexpr Py_ssize_t kSizes = 5;

Sequence sequence(Arguments &next) {
    Sequence found{};
    for (std::ptrdiff_t *each : {&found.steps, &found.rows, &found.units, &found.step_gap, &found.row_gap}) {
        *each = next.size();
    }
    return found;
}

PyObject *run_lstm(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, kSizes + 11);
    Lstm run{};
    run.sequence = sequence(next);
    run.features = next.size();
    run.data = next.floats();
    run.data_weight = next.floats();
    run.data_bias = next.floats();
    run.weight = next.floats();
    run.bias = next.floats();
    run.hidden_begin = next.floats();
    run.cell_begin = next.floats();
    run.hidden = next.floats();
    run.last_hidden = next.floats();
    run.last_cell = next.floats();
    return next.good() ? without_gil(lstm, run) : nullptr;
}

PyObject *forward(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, kSizes + 10);
    LstmForward run{};
    run.sequence = sequence(next);
    run.weight = next.floats();
    run.bias = next.floats();
    run.hidden_begin = next.floats();
    run.cell_begin = next.floats();
    run.gates = next.floats();
    run.hidden = next.floats();
    run.cells = next.floats();
    run.before = next.floats();
    run.last_hidden = next.floats();
    run.last_cell = next.floats();
    return next.good() ? without_gil(lstm_forward, run) : nullptr;
}

PyObject *backward(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, kSizes + 9);
    LstmBackward run{};
    run.sequence = sequence(next);
    run.weight = next.floats();
    run.cell_begin = next.floats();
    run.gates = next.floats();
    run.cells = next.floats();
    run.for_hidden = next.floats();
    run.for_gates = next.floats();
    run.for_bias = next.floats();
    run.for_begin = next.floats();
    run.for_cell = next.floats();
    return next.good() ? without_gil(lstm_backward, run) : nullptr;
}

// Python keeps a pointer to this table
PyMethodDef lstm_functions[] = {
    {"lstm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_lstm)), METH_FASTCALL,
     "lstm(steps, rows, units, step_gap, row_gap, features, data, data_weight, data_bias, weight, bias, "
     "hidden_begin, cell_begin, hidden, last_hidden, last_cell)\n--\n\n"
     "Run an LSTM and its input's map; arguments are sizes and addresses, see lstm.hpp."},
    {"lstm_forward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(forward)), METH_FASTCALL,
     "lstm_forward(steps, rows, units, step_gap, row_gap, weight, bias, hidden_begin, cell_begin, gates, hidden, "
     "cells, before, last_hidden, last_cell)\n--\n\n"
     "Run an LSTM over a sequence; arguments are sizes and addresses, see lstm.hpp."},
    {"lstm_backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(backward)), METH_FASTCALL,
     "lstm_backward(steps, rows, units, step_gap, row_gap, weight, cell_begin, gates, cells, for_hidden, "
     "for_gates, for_bias, for_begin, for_cell)\n--\n\nCompute its gradients; see lstm.hpp."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_lstm(PyObject *module) { return PyModule_AddFunctions(module, lstm_functions); }

}  // namespace dpmodule

#else

int dpmodule::add_lstm(PyObject *) { return 0; }

#endif
