// Python bindings of the kernels. `fields` has a record's fields in the order of arguments: sizes, numbers and
// addresses; see the header of each kernel.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>

#include "addresses.hpp"
#include "conv3x3.hpp"
#include "trained_convolution.hpp"
#include "depthwise.hpp"
#include "image_layers.hpp"
#include "norm.hpp"
#include "product.hpp"
#include "recurrence.hpp"
#include "row_norm.hpp"
#include "small.hpp"
#include "steps.hpp"
#include "update_python.hpp"
#include "errors.hpp"

namespace dpmodule::vector {
namespace {

// in the order of UpdateRule::Kind
constexpr const char *kind_names[UpdateRule::kinds] = {"sgd",     "momentum", "adagrad",  "adam", "amsgrad",
                                                       "rmsprop", "centered", "adadelta", "ftrl", "plain adagrad"};

struct Field {
    const char *name;
    double UpdateRule::*at;
};

constexpr Field rule_fields[] = {
    {"lr", &UpdateRule::lr},
    {"wd", &UpdateRule::wd},
    {"rescale_grad", &UpdateRule::rescale_grad},
    {"clip_gradient", &UpdateRule::clip_gradient},
    {"momentum", &UpdateRule::momentum},
    {"beta1", &UpdateRule::beta1},
    {"beta2", &UpdateRule::beta2},
    {"epsilon", &UpdateRule::epsilon},
    {"gamma1", &UpdateRule::gamma1},
    {"gamma2", &UpdateRule::gamma2},
    {"clip_weights", &UpdateRule::clip_weights},
    {"lamda1", &UpdateRule::lamda1},
    {"beta", &UpdateRule::beta},
};

bool read_kind(PyObject *given, UpdateRule *rule) {
    const char *name = PyUnicode_AsUTF8(given);
    if (!name) return false;
    for (int i = 0; i < UpdateRule::kinds; i++) {
        if (std::strcmp(name, kind_names[i])) continue;
        rule->kind = static_cast<UpdateRule::Kind>(i);
        return true;
    }
    PyErr_Format(PyExc_ValueError, "no rule is called %R", given);
    return false;
}

bool read_field(PyObject *key, PyObject *value, UpdateRule *rule) {
    const char *name = PyUnicode_AsUTF8(key);
    if (!name) return false;
    if (!std::strcmp(name, "kind")) return read_kind(value, rule);
    for (const Field &field : rule_fields) {
        if (std::strcmp(name, field.name)) continue;
        rule->*field.at = PyFloat_AsDouble(value);
        return !PyErr_Occurred();
    }
    PyErr_Format(PyExc_ValueError, "rules have no %R", key);
    return false;
}

// Arguments of `update_rows`.
struct RowsCall {
    UpdateRule rule;
    float *weight, *states[UpdateRule::max_states];
    RowGradients grads;
    std::size_t table_rows;
    bool all;  // else only the given rows

    bool read(PyObject *const *given, Py_ssize_t count) {
        if (count < 1 || !read_rule(given[0], &rule)) return false;
        const int kept = state_count(rule.kind);
        Arguments next(given + 1, count - 1, 7 + kept);
        bool good = next.read(weight, table_rows, grads.width, grads.rows, grads.count, grads.values, all);
        for (int i = 0; i < kept; i++) good = next.read(states[i]);
        return good && within();
    }

    // Returns true if all rows exist; else sets an error.
    bool within() const {
        for (std::size_t i = 0; i < grads.count; i++) {
            if (static_cast<std::size_t>(grads.rows[i]) < table_rows) continue;
            const std::string text = "row " + std::to_string(grads.rows[i]) + " of a gradient is outside of the " +
                                     std::to_string(table_rows) + " rows of its parameter";
            return set_named_error("dpmodule.base", "BoundsError", text.c_str()) != nullptr;
        }
        return true;
    }
};

bool run_rows(const RowsCall &call) {
    if (!call.all) {
        update_rows(call.rule, call.weight, call.states, call.grads);
        return true;
    }
    const std::unique_ptr<float[]> zeros(new (std::nothrow) float[call.grads.width]());
    if (!zeros) return false;
    update_table(call.rule, call.weight, call.states, call.grads, call.table_rows, zeros.get());
    return true;
}

}  // namespace

bool read_rule(PyObject *given, UpdateRule *rule) {
    if (!PyDict_Check(given)) {
        PyErr_Format(PyExc_TypeError, "a rule is a dict, not %R", given);
        return false;
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(given, &at, &key, &value);) {
        if (!read_field(key, value, rule)) return false;
    }
    return true;
}

static PyObject *update_rows_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    RowsCall call{};
    if (call.read(given, count)) return without_gil(run_rows, call);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a rule and addresses");
    return nullptr;
}

}  // namespace dpmodule::vector

namespace dpmodule {

auto fields(Groups &g) { return std::tie(g.numbers, g.count, g.given, g.distinct, g.starts, g.places); }

auto fields(Sequence &s) { return std::tie(s.steps, s.rows, s.units, s.step_gap, s.row_gap, s.threads); }

auto fields(CellMaps &c) { return std::tie(c.packed, c.data_bias, c.bias); }

auto fields(CellWeights &c) { return std::tie(c.gates, c.features, c.units, c.data_weight, c.weight, c.packed); }

auto fields(RecurrentForward &r) {
    return std::tie(r.sequence, r.cell, r.weight, r.bias, r.hidden_begin, r.cell_begin, r.gates, r.hidden, r.cells,
                    r.before, r.last_hidden, r.last_cell);
}

auto fields(RecurrentBackward &r) {
    return std::tie(r.sequence, r.cell, r.weight, r.cell_begin, r.gates, r.cells, r.hidden, r.before, r.for_hidden,
                    r.for_gates, r.for_maps, r.for_begin, r.for_cell);
}

auto fields(NormRows &s) { return std::tie(s.rows, s.channels, s.pixels, s.threads); }

auto fields(NormForward &n) {
    return std::tie(n.size, n.end, n.limit, n.eps, n.momentum, n.x, n.other, n.gamma, n.beta, n.moving_mean,
                    n.moving_var, n.out, n.statistics, n.new_mean, n.new_var);
}

auto fields(NormBackward &n) {
    return std::tie(n.size, n.end, n.limit, n.nan_stays, n.grad, n.x, n.out, n.statistics, n.for_other, n.for_x,
                    n.for_gamma, n.for_beta);
}

auto fields(RowSizes &s) { return std::tie(s.rows, s.parts, s.length, s.groups, s.threads); }

auto fields(RowNormForward &n) { return std::tie(n.size, n.eps, n.x, n.gamma, n.beta, n.out, n.statistics); }

auto fields(RowNormBackward &n) {
    return std::tie(n.size, n.grad, n.x, n.gamma, n.statistics, n.for_x, n.for_gamma, n.for_beta);
}

auto fields(Matrix &m) { return std::tie(m.at, m.row_gap, m.column_gap); }

auto fields(Product &p) { return std::tie(p.rows, p.columns, p.depth, p.left, p.right, p.bias, p.result, p.threads); }

auto fields(DenseLayer &l) { return std::tie(l.units, l.features, l.weight, l.bias, l.function); }

auto fields(Softmax &s) { return std::tie(s.rows, s.classes, s.scores, s.result, s.is_log); }

auto fields(ImageWindows &w) {
    return std::tie(w.image, w.gaps, w.number, w.channels, w.sizes, w.counts, w.kernel, w.stride, w.pad, w.dilate,
                    w.rows);
}

auto fields(LayoutPair &p) { return std::tie(p.usual, p.last, p.images, p.channels, p.pixels); }

auto fields(Axis &a) { return std::tie(a.size, a.result, a.kernel, a.stride, a.dilate, a.pad); }

auto fields(DepthwiseSizes &s) { return std::tie(s.images, s.channels, s.y, s.x, s.threads); }

auto fields(Depthwise &d) { return std::tie(d.size, d.data, d.weight, d.bias, d.result); }

auto fields(DepthwiseGradients &d) { return std::tie(d.size, d.data, d.weight, d.grad, d.for_data, d.for_weight); }

#if defined(__x86_64__)
auto fields(Conv3x3Sizes &s) { return std::tie(s.images, s.height, s.width, s.channels, s.filters, s.step, s.threads); }

auto fields(Conv3x3 &c) { return std::tie(c.size, c.spread, c.weight, c.data, c.bias, c.result); }

auto fields(ConvolutionSizes &s) { return std::tie(s.images, s.channels, s.filters, s.y, s.x, s.threads); }

auto fields(StridedWeight &w) { return std::tie(w.numbers, w.filter, w.channel, w.row, w.column); }

auto fields(TrainedConvolution &c) { return std::tie(c.size, c.weight, c.data, c.bias, c.result); }

auto fields(ConvolutionData &c) { return std::tie(c.size, c.weight, c.grad, c.bias, c.data); }

auto fields(ConvolutionGradients &g) { return std::tie(g.size, g.weight, g.data, g.grad, g.bias); }

auto fields(Conv3x3Gradients &g) { return std::tie(g.size, g.weight, g.data, g.grad, g.bias); }
#endif

namespace {

template <auto function>
constexpr auto call = Call<function>::run;

PyObject *group_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Groups groups{};
    Arguments next(given, count, Arguments::count_of<Groups>());
    PyObject *done = next.read(groups) ? without_gil(group_numbers, groups) : nullptr;
    Py_XDECREF(done);
    return done ? PyLong_FromSize_t(groups.found) : nullptr;
}

PyObject *packed_size_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 2);
    std::ptrdiff_t columns, depth;
    return next.read(columns, depth) ? PyLong_FromSsize_t(packed_size(columns, depth)) : nullptr;
}

PyObject *pack_tensor(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 6);
    std::ptrdiff_t columns, depth;
    Matrix right;
    float *to;
    if (!next.read(columns, depth, right, to)) return nullptr;
    pack(right, columns, depth, to);
    Py_RETURN_NONE;
}

PyObject *run_dense(PyObject *, PyObject *const *given, Py_ssize_t count) {
    constexpr Py_ssize_t most_layers = 16, of_layer = Arguments::count_of<DenseLayer>(), of_all = 7;
    const Py_ssize_t layers = std::clamp<Py_ssize_t>((count - of_all) / of_layer, 1, most_layers);
    Arguments next(given, count, of_all + of_layer * layers);
    DenseLayer each[most_layers];
    Dense run{};
    run.layers = each;
    bool good = next.read(run.samples, run.rows, run.data, run.sample_gap, run.row_gap, run.result, run.threads);
    while (run.count < layers) good = next.read(each[run.count++]);
    return good ? without_gil(dense, run) : nullptr;
}

PyObject *packed_cell_size_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments next(given, count, 3);
    std::ptrdiff_t gates, features, units;
    return next.read(gates, features, units) ? PyLong_FromSsize_t(packed_cell_size(gates, features, units)) : nullptr;
}

PyObject *run_recurrent(PyObject *, PyObject *const *given, Py_ssize_t count) {
    constexpr Py_ssize_t of_all = 15, of_cell = Arguments::count_of<CellMaps>();
    try {
        std::vector<CellMaps> cells(static_cast<std::size_t>(std::max<Py_ssize_t>(count - of_all, of_cell) / of_cell));
        Arguments next(given, count, of_all + of_cell * static_cast<Py_ssize_t>(cells.size()));
        Recurrent run{};
        run.cells = cells.data();
        bool good = next.read(run.sequence, run.cell, run.features, run.directions, run.data, run.hidden_begin,
                              run.cell_begin, run.hidden, run.last_hidden, run.last_cell);
        for (CellMaps &cell : cells) good = next.read(cell);
        run.layers = static_cast<std::ptrdiff_t>(cells.size()) / std::max<std::ptrdiff_t>(run.directions, 1);
        return good ? without_gil(recurrent, run) : nullptr;
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

PyObject *change_layouts_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    constexpr Py_ssize_t of_all = 2, of_pair = Arguments::count_of<LayoutPair>();
    try {
        std::vector<LayoutPair> pairs(static_cast<std::size_t>(std::max<Py_ssize_t>(count - of_all, 0) / of_pair));
        Arguments next(given, count, of_all + of_pair * static_cast<Py_ssize_t>(pairs.size()));
        Relayout run{pairs.data(), pairs.size(), false, 1};
        bool good = next.read(run.to_last, run.threads);
        for (LayoutPair &pair : pairs) good = next.read(pair);
        return good ? without_gil(change_layouts, run) : nullptr;
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

// Takes a list of addresses of float32 arrays and a list of their sizes; returns the index of the first array with a
// non-finite element, -1 if there is none.
PyObject *first_nonfinite(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyList_Check(given[0]) || !PyList_Check(given[1]) ||
        PyList_GET_SIZE(given[0]) != PyList_GET_SIZE(given[1])) {
        PyErr_SetString(PyExc_TypeError, "expected two lists of one length: addresses and sizes");
        return nullptr;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given[0]); ++i) {
        PyObject *const pair[] = {PyList_GET_ITEM(given[0], i), PyList_GET_ITEM(given[1], i)};
        const float *at;
        std::ptrdiff_t size;
        if (!Arguments(pair, 2, 2).read(at, size)) return nullptr;
        if (!all_finite(at, size)) return PyLong_FromSsize_t(i);
    }
    return PyLong_FromLong(-1);
}

// Takes the address of int64 counts, their number, and a list of positions; atomically increments the counts at these
// positions, and returns the new ones.
PyObject *count_updates(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count != 3 || !PyList_Check(given[2])) {
        PyErr_SetString(PyExc_TypeError, "expected an address, a number of counts and a list of positions");
        return nullptr;
    }
    std::int64_t *counts;
    Py_ssize_t size;
    if (!Arguments(given, 2, 2).read(counts, size)) return nullptr;
    return list_of(static_cast<std::size_t>(PyList_GET_SIZE(given[2])), [&](std::size_t i) -> PyObject * {
        const Py_ssize_t at = PyLong_AsSsize_t(PyList_GET_ITEM(given[2], static_cast<Py_ssize_t>(i)));
        if (at >= 0 && at < size)
            return PyLong_FromLongLong(__atomic_add_fetch(counts + at, std::int64_t{1}, __ATOMIC_RELAXED));
        if (!PyErr_Occurred()) PyErr_Format(PyExc_IndexError, "there is no count %zd among %zd", at, size);
        return nullptr;
    });
}

// A step from Python, with the fields of `SmallStep`; an address is an index in the list of addresses, with a number of
// elements after it.
struct StepRow {
    std::int64_t kind, function, sizes[SmallStep::axes], gaps[3][SmallStep::axes];
    double low, high, factor;
    std::int64_t places[4][2];
};

PyObject *run_steps_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count < 3 || !PyBytes_Check(given[0]) || PyBytes_GET_SIZE(given[0]) % sizeof(StepRow)) {
        PyErr_SetString(PyExc_TypeError, "expected rows, threads, a size and addresses");
        return nullptr;
    }
    try {
        std::ptrdiff_t threads, floats;
        std::vector<float *> addresses(static_cast<std::size_t>(count - 3) + 2);
        Arguments next(given + 1, count - 1, count - 1);
        bool good = next.read(threads, floats);
        for (std::size_t i = 2; i < addresses.size(); ++i) good = next.read(addresses[i]);
        if (!good) return nullptr;
        const std::unique_ptr<float[]> memory(new float[static_cast<std::size_t>(floats)]);
        addresses[1] = memory.get();
        std::vector<SmallStep> steps(PyBytes_GET_SIZE(given[0]) / sizeof(StepRow));
        const char *from = PyBytes_AS_STRING(given[0]);
        for (SmallStep &step : steps) {
            StepRow row;
            std::memcpy(&row, from, sizeof row);
            from += sizeof row;
            float *at[4];
            for (int i = 0; i < 4; ++i) {
                float *base = addresses.at(static_cast<std::size_t>(row.places[i][0]));
                at[i] = base ? base + row.places[i][1] : nullptr;
            }
            step = {static_cast<StepKind>(row.kind),
                    static_cast<LayerFunction>(row.function),
                    {},
                    {},
                    static_cast<float>(row.low),
                    static_cast<float>(row.high),
                    static_cast<float>(row.factor),
                    at[0],
                    at[1],
                    at[2],
                    at[3]};
            std::memcpy(step.sizes, row.sizes, sizeof row.sizes);
            std::memcpy(step.gaps, row.gaps, sizeof row.gaps);
        }
        const int most = static_cast<int>(threads);
        return without_gil([most](const auto &all) { return run_steps(all, most); }, steps);
    } catch (const std::out_of_range &) {
        PyErr_SetString(PyExc_IndexError, "a step reads an address that was not given");
        return nullptr;
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

#if defined(__x86_64__)
// A layer from Python; the numbers are those of `ImageLayer`, in its order.
struct LayerRow {
    std::int64_t kind, sizes[4], y[6], x[6], block, function;
    double low, high;
    std::int64_t gaps[5];    // those of data, other and result, then of the result's rows and images
    std::int64_t places[5];  // indices of data, weight, bias, other and result among the addresses
};

Axis axis(const std::int64_t (&sizes)[6]) { return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]}; }

// Returns false with a Python error set.
bool read_layers(PyObject *rows, const std::vector<float *> &addresses, std::vector<ImageLayer> &to) {
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(rows, &bytes, &size) < 0) return false;
    if (size % sizeof(LayerRow)) {
        PyErr_Format(PyExc_ValueError, "rows has %zd bytes, expected %zu for each layer", size, sizeof(LayerRow));
        return false;
    }
    for (Py_ssize_t from = 0; from < size; from += sizeof(LayerRow)) {
        LayerRow r;
        std::memcpy(&r, bytes + from, sizeof r);
        float *at[5];
        for (int k = 0; k < 5; ++k) {
            if (r.places[k] < 0 || r.places[k] >= static_cast<std::int64_t>(addresses.size())) {
                PyErr_Format(PyExc_IndexError, "a place is %lld, expected one among %zu addresses",
                             static_cast<long long>(r.places[k]), addresses.size());
                return false;
            }
            at[k] = addresses[static_cast<std::size_t>(r.places[k])];
        }
        to.push_back({static_cast<LayerKind>(r.kind),
                      r.sizes[0],
                      r.sizes[1],
                      r.sizes[2],
                      r.sizes[3],
                      axis(r.y),
                      axis(r.x),
                      r.block,
                      static_cast<LayerFunction>(r.function),
                      static_cast<float>(r.low),
                      static_cast<float>(r.high),
                      r.gaps[0],
                      r.gaps[1],
                      r.gaps[2],
                      at[0],
                      at[1],
                      at[2],
                      at[3],
                      at[4],
                      r.gaps[3],
                      r.gaps[4]});
    }
    return true;
}

PyObject *run_layers_of(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count < 2) {
        PyErr_Format(PyExc_TypeError, "expected rows, threads and addresses, got %zd arguments", count);
        return nullptr;
    }
    try {
        const int threads = static_cast<int>(std::max(1L, PyLong_AsLong(given[1])));
        std::vector<float *> addresses(static_cast<std::size_t>(count - 2));
        std::vector<ImageLayer> layers;
        if (PyErr_Occurred()) return nullptr;
        Arguments next(given + 2, count - 2, count - 2);
        for (float *&each : addresses) {
            if (!next.read(each)) return nullptr;
        }
        if (!read_layers(given[0], addresses, layers)) return nullptr;
        return without_gil([threads](const auto &all) { return run_layers(all, threads); }, layers);
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

PyObject *block_of(PyObject *, PyObject *given) {
    const Py_ssize_t filters = PyLong_AsSsize_t(given);
    return filters == -1 && PyErr_Occurred() ? nullptr : PyLong_FromSsize_t(convolution_block(filters));
}

PyObject *lanes_of(PyObject *, PyObject *) { return PyLong_FromSsize_t(conv3x3_lanes()); }
#endif

// Python keeps a pointer to this table
PyMethodDef functions[] = {
    method("count_updates", count_updates,
           "count_updates(address, size, positions)\n--\n\nAdd 1 to int64 counts atomically and return the new ones."),
    method("first_nonfinite", first_nonfinite,
           "first_nonfinite(addresses, sizes)\n--\n\n"
           "Return the index of the first float32 array with a non-finite element, else -1."),
    method("group_numbers", group_of, "Sort int64 numbers, see small.hpp, and return the number of distinct ones."),
    method("recurrent", run_recurrent,
           "recurrent(steps, rows, units, step_gap, row_gap, threads, cell, features, directions, data, "
           "hidden_begin, cell_begin, hidden, last_hidden, last_cell, packed, data_bias, bias, ...)\n--\n\n"
           "Run a recurrent network for inference, with three addresses for each layer and direction."),
    method("packed_cell_size", packed_cell_size_of,
           "packed_cell_size(gates, features, units)\n--\n\nReturn the number of elements that `pack_cell` writes."),
    method("pack_cell", call<pack_cell>, "Lay out the weights of one layer and direction for `recurrent`."),
    method("recurrent_forward", call<recurrent_forward>, "Run one layer and direction over a sequence."),
    method("recurrent_backward", call<recurrent_backward>, "Compute the gradients of `recurrent_forward`."),
    method("norm_forward", call<norm_forward>, "Normalise over the batch, add a summand, and apply ReLU or SiLU."),
    method("norm_backward", call<norm_backward>, "Compute the gradients of `norm_forward`."),
    method("row_norm_forward", call<row_norm_forward>, "Normalise each row, or group of channels."),
    method("row_norm_backward", call<row_norm_backward>, "Compute the gradients of `row_norm_forward`."),
    method("depthwise", call<depthwise>, "Convolve each channel with one filter."),
    method("depthwise_gradients", call<depthwise_gradients>, "Compute the gradients of data and weight."),
    method("multiply", call<multiply>, "Multiply two matrices."),
    method("packed_size", packed_size_of,
           "packed_size(columns, depth)\n--\n\nReturn the number of elements that `pack` writes."),
    method("pack", pack_tensor,
           "pack(columns, depth, right, row_gap, column_gap, packed)\n--\n\nLay out a right matrix for `dense`."),
    method("dense", run_dense,
           "dense(samples, rows, data, sample_gap, row_gap, result, threads, units, features, weight, bias, rectified, "
           "...)\n--\n\n"
           "Run at most 16 dense layers, with five arguments each; weights are packed for more than four rows."),
    method("softmax", call<softmax>, "Apply softmax to short rows, or log-softmax."),
    method(
        "run_steps", run_steps_of,
        "run_steps(rows, threads, size, *addresses)\n--\n\n"
        "Run small operators, see steps.hpp. In `rows` each has 18 64-bit integers (kind, function, sizes, gaps of a "
        "and b), three doubles (low, high, factor), and eight integers: an address and a number of elements for each "
        "of a, b, c and result. Address 0 is null, and 1 the memory of `size` floats for intermediate results."),
    method("unfold", call<unfold>, "Write the windows of images as rows."),
    method("fold", call<fold>, "Add the windows in rows to the images."),
    method("change_layouts", change_layouts_of,
           "change_layouts(to_last, threads, usual, last, images, channels, pixels, ...)\n--\n\n"
           "Copy tensors in the usual layout to ones with channels innermost, or back; each has five arguments."),
    method("update_rows", vector::update_rows_of,
           "update_rows(rule, weight, table_rows, width, rows, count, gradients, all_rows, *states)\n--\n\n"
           "Update rows of a float32 table in place; arguments are a dict, see update_python.hpp, sizes and\n"
           "addresses. Rows without a gradient stay unchanged, or are updated with a zero gradient if all_rows."),
#if defined(__x86_64__)
    method("conv3x3", call<conv3x3>, "Convolve images with 3x3 kernels."),
    method("conv3x3_gradients", call<conv3x3_gradients>, "Compute the gradients of weight and bias."),
    method("convolve", call<convolve>, "Convolve images with a weight of any strides."),
    method("convolution_data", call<convolution_data>, "Compute the gradient of the data."),
    method("overlapping_data", call<overlapping_data>, "Compute the gradient of data with few channels."),
    method("convolution_gradients", call<convolution_gradients>, "Compute the gradients of weight and bias."),
    method("conv3x3_lanes", lanes_of,
           "conv3x3_lanes()\n--\n\nReturn the number of filters per vector; 0 if the processor is not supported.",
           METH_NOARGS),
    method(
        "run_layers", run_layers_of,
        "run_layers(rows, threads, *addresses)\n--\n\n"
        "Run layers for images on `threads` of torch's threads. In `rows` each layer has 19 64-bit integers (kind, "
        "images, channels, filters, groups; size, result, kernel, stride, dilate and pad of height and of width; "
        "block, "
        "function), two doubles (low, high), and ten integers (gaps of data, other and result; elements from one row "
        "and one image of the result to the next; the indices of the addresses of data, weight, bias, other and "
        "result)."),
    method("convolution_block", block_of,
           "convolution_block(filters)\n--\n\n"
           "Return the number of filters per block of `convolve`'s weight; 0 if the processor is not supported.",
           METH_O),
#endif
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_kernels(PyObject *module) {
    if (PyModule_AddIntConstant(module, "vector_width", vector_width()) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}

}  // namespace dpmodule
