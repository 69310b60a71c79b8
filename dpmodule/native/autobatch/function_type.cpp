// The Python type AutobatchFunction: an operation that adds its node directly if a kernel supports the operands, and
// otherwise calls the Python function with the same arguments.
#include "function_arguments.hpp"
#include "python_recipes.hpp"

#include <structmember.h>

#include <cstring>

namespace dpmodule::autobatch {
namespace {

enum class CallForm {
    Unary,
    Binary,
    Affine,
    Concat,
    ConcatColumns,
    Sum,
    Average,
    Loss,
    Labels,
    Softmax,
    Reduce,
    Pick,
    Range,
    Part,
    AddColumn,
    Transpose,
    Along,
    Elements,
    Batches,
    Moment,
    Drawn,
    DrawnAlong,
    Number,
    Count,
    Reshape,
    Parameter,
    Across,
    Rows,
    Random,
    Step,
    Input,
    Filled,
    Apply,
    Plain,
    Many,
    Node
};

struct FunctionEntry {
    const char *name;
    CallForm form;
    int kind;  // of Unary, Binary, Reduction, Draw or InputKind, or an Op
};

template <class Kind>
constexpr int of(Kind kind) {
    return static_cast<int>(kind);
}

// Functions of one expression, with an optional number, are in unary_list.hpp.
constexpr FunctionEntry table[] = {
    {"cmult", CallForm::Binary, of(Binary::Mul)},
    {"cdiv", CallForm::Binary, of(Binary::Div)},
    {"pow", CallForm::Binary, of(Binary::Pow)},
    {"bmax", CallForm::Binary, of(Binary::Max)},
    {"bmin", CallForm::Binary, of(Binary::Min)},
    {"affine_transform", CallForm::Affine, 0},
    {"concatenate", CallForm::Concat, 0},
    {"concatenate_cols", CallForm::ConcatColumns, 0},
    {"esum", CallForm::Sum, 0},
    {"average", CallForm::Average, 0},
    {"pickneglogsoftmax", CallForm::Loss, of(Op::PickNegLogSoftmax)},
    {"hinge", CallForm::Loss, of(Op::Hinge)},
    {"pickneglogsoftmax_batch", CallForm::Labels, of(Op::PickNegLogSoftmax)},
    {"pick_batch", CallForm::Labels, of(Op::PickEach)},
    {"dropout", CallForm::Drawn, of(Draw::Dropout)},
    {"noise", CallForm::Drawn, of(Draw::Noise)},
    {"dropout_batch", CallForm::Drawn, of(Draw::DropoutBatch)},
    {"block_dropout", CallForm::Drawn, of(Draw::BlockDropout)},
    {"dropout_dim", CallForm::DrawnAlong, of(Draw::DropoutDim)},
    {"random_normal", CallForm::Random, of(Draw::Normal)},
    {"random_uniform", CallForm::Random, of(Draw::Uniform)},
    {"random_bernoulli", CallForm::Random, of(Draw::Bernoulli)},
    {"random_gumbel", CallForm::Random, of(Draw::Gumbel)},
    {"poisson_loss", CallForm::Count, 0},
    {"reshape", CallForm::Reshape, 0},
    {"parameter", CallForm::Parameter, 0},
    {"emax", CallForm::Across, of(Reduction::Max)},
    {"logsumexp", CallForm::Across, of(Reduction::LogSumExp)},
    {"lookup_batch", CallForm::Rows, 0},
    {"mean_elems", CallForm::Elements, of(Reduction::Mean)},
    {"std_elems", CallForm::Elements, of(Reduction::Deviation)},
    {"l2_norm", CallForm::Elements, of(Reduction::Length)},
    {"moment_dim", CallForm::Moment, of(Over::Dimensions)},
    {"moment_elems", CallForm::Moment, of(Over::Elements)},
    {"moment_batches", CallForm::Moment, of(Over::Minibatch)},
    {"std_dim", CallForm::Along, of(Reduction::Deviation)},
    {"sum_batches", CallForm::Batches, of(Reduction::Sum)},
    {"mean_batches", CallForm::Batches, of(Reduction::Mean)},
    {"sum_dim", CallForm::Along, of(Reduction::Sum)},
    {"mean_dim", CallForm::Along, of(Reduction::Mean)},
    {"max_dim", CallForm::Along, of(Reduction::Max)},
    {"min_dim", CallForm::Along, of(Reduction::Min)},
    {"logsumexp_dim", CallForm::Along, of(Reduction::LogSumExp)},
    {"softmax", CallForm::Softmax, of(Op::Softmax)},
    {"log_softmax", CallForm::Softmax, of(Op::LogSoftmax)},
    {"sum_elems", CallForm::Reduce, of(Op::SumElems)},
    {"squared_norm", CallForm::Reduce, of(Op::SquaredNorm)},
    {"dot_product", CallForm::Reduce, of(Op::Dot)},
    {"pick", CallForm::Pick, 0},
    {"pick_range", CallForm::Range, 0},
    {"pick_batch_elem", CallForm::Part, of(Part::Member)},
    {"pick_batch_elems", CallForm::Part, of(Part::Members)},
    {"select_rows", CallForm::Part, of(Part::Rows)},
    {"select_cols", CallForm::Part, of(Part::Columns)},
    {"strided_select", CallForm::Part, of(Part::Strided)},
    {"colwise_add", CallForm::AddColumn, 0},
    {"transpose", CallForm::Transpose, 0},
    {"lstm_step", CallForm::Step, 0},
    {"scalarInput", CallForm::Input, of(InputKind::Number)},
    {"inputVector", CallForm::Input, of(InputKind::Vector)},
    {"inputTensor", CallForm::Input, of(InputKind::Tensor)},
    {"vecInput", CallForm::Input, of(InputKind::Zeros)},
    {"matInput", CallForm::Input, of(InputKind::Matrix)},
    {"zeros", CallForm::Filled, of(InputKind::Zeros)},
    {"ones", CallForm::Filled, of(InputKind::Ones)},
    {"constant", CallForm::Filled, of(InputKind::Constant)},
    {"apply", CallForm::Apply, 0},
    {"plain", CallForm::Plain, 0},
    {"append_many", CallForm::Many, 0},
    {"node_of", CallForm::Node, 0},
};

struct FunctionObject {
    PyObject_HEAD vectorcallfunc call;
    FunctionEntry entry;
    double number;  // default of Number
    PyObject *fallback;
    ArgumentNames names;
    PyObject *attributes;  // __dict__
    PyObject *weak;
};

int several(const FunctionEntry &entry, PyObject *const *args, Py_ssize_t count) {
    Builder &build = current_builder();
    Nodes nodes;
    int axis = 0;
    if (!nodes.read(args[0]) || (count == 2 && !whole(args[1], axis))) return -1;
    switch (entry.form) {
        case CallForm::Affine:
            return nodes.count % 2 && nodes.count > 1 ? build.transform(nodes.at[0], nodes.at + 1, nodes.count / 2)
                                                      : -1;
        case CallForm::Concat: return build.concat(nodes.at, nodes.count, axis);
        case CallForm::ConcatColumns: return build.concat(nodes.at, nodes.count, 1);
        case CallForm::Sum: return build.sum(nodes.at, nodes.count);
        default: {
            const int total = build.sum(nodes.at, nodes.count);
            return total < 0 ? -1 : build.unary(Unary::Scale, 1.0f / static_cast<float>(nodes.count), total);
        }
    }
}

// The node, or -1 to fall back to Python.
int attempt(const FunctionObject &function, PyObject *const *args, Py_ssize_t count) {
    const FunctionEntry &entry = function.entry;
    Builder &build = current_builder();
    if (entry.form > CallForm::Step) return input_of(static_cast<InputKind>(entry.kind), args, count);
    if (entry.form >= CallForm::Affine && entry.form <= CallForm::Average)
        return count == 1 || (count == 2 && entry.form == CallForm::Concat) ? several(entry, args, count) : -1;
    if (entry.form == CallForm::Random) return draw_numbers(static_cast<Draw>(entry.kind), args, count);
    if (entry.form == CallForm::Rows) return count == 2 ? rows(args[0], args[1]) : -1;
    if (entry.form == CallForm::Across) {
        Nodes nodes;
        if (count != 1 || !nodes.read(args[0])) return -1;
        const auto kind = static_cast<Reduction>(entry.kind);
        return kind == Reduction::Max && nodes.count == 2 ? build.binary(Binary::Max, nodes.at[0], nodes.at[1])
                                                          : build.across(kind, nodes.at, nodes.count);
    }
    const int x = count > 0 ? node_of(args[0]) : -1;
    if (x < 0) return -1;
    int i, j, axis = 0;
    std::vector<int> dims;
    double number = function.number;
    switch (entry.form) {
        case CallForm::Unary: return count == 1 ? build.unary(static_cast<Unary>(entry.kind), 0, x) : -1;
        case CallForm::Softmax: return softmax(static_cast<Op>(entry.kind), x, args, count);
        case CallForm::Part: return part(static_cast<Part>(entry.kind), x, args, count);
        case CallForm::Binary:
        case CallForm::Reduce: {
            const bool two = entry.form == CallForm::Binary || static_cast<Op>(entry.kind) == Op::Dot;
            if (count != 1 + two) return -1;
            const int y = two ? node_of(args[1]) : -1;
            if (two && y < 0) return -1;
            return entry.form == CallForm::Binary ? build.binary(static_cast<Binary>(entry.kind), x, y)
                                                  : build.reduce(static_cast<Op>(entry.kind), x, y);
        }
        case CallForm::Transpose: return count == 1 ? build.transpose(x) : -1;
        case CallForm::AddColumn: {
            const int column = count == 2 ? node_of(args[1]) : -1;
            return column < 0 ? -1 : build.add_to_columns(x, column);
        }
        case CallForm::Loss: {
            const auto op = static_cast<Op>(entry.kind);
            if (count != 2 || !whole(args[1], i)) return -1;
            return build.loss(op, op == Op::Hinge ? 1.0f : 0.0f, x, {i}, false);
        }
        case CallForm::Labels: {
            std::vector<int> labels;
            if (count != 2 || !several_whole(args[1], labels)) return -1;
            return static_cast<Op>(entry.kind) == Op::PickEach ? build.pick_each(x, labels)
                                                               : build.loss(Op::PickNegLogSoftmax, 0, x, labels, true);
        }
        case CallForm::Drawn:
        case CallForm::DrawnAlong: {
            const int along = entry.form == CallForm::DrawnAlong;
            i = 0;
            if (count != 2 + along || (along && !whole(args[1], i))) return -1;
            const double rate = PyFloat_CheckExact(args[1 + along]) ? PyFloat_AS_DOUBLE(args[1 + along]) : -1.0;
            const auto kind = static_cast<Draw>(entry.kind);
            if (rate == 0 && kind == Draw::Dropout) return x;
            return rate >= 0 && (rate <= 1 || kind == Draw::Noise) ? build.drawn(kind, rate, x, i) : -1;
        }
        case CallForm::Number:
            return count == 1 || (count == 2 && real(args[1], number))
                       ? build.unary(static_cast<Unary>(entry.kind), static_cast<float>(number), x)
                       : -1;
        case CallForm::Count:
            return count == 2 && whole(args[1], i) && i >= 0 ? build.unary(Unary::Poisson, static_cast<float>(i), x)
                                                             : -1;
        case CallForm::Reshape:
            return count == 2 && sizes(args[1], dims)
                       ? build.reshape(x, current.engine->graph.signatures.add_shape(dims))
                       : -1;
        // not a parameter: an invalid argument
        case CallForm::Parameter:
            return count == 1 && current.engine->graph.signature(x).op == Op::Param &&
                           Py_TYPE(args[0]) != current.expression
                       ? x
                       : -1;
        case CallForm::Elements: {
            const unsigned axes = count == 1 ? all_axes(x) : 0;
            return axes ? build.along(static_cast<Reduction>(entry.kind), x, axes) : -1;
        }
        case CallForm::Batches: return count == 1 ? build.along(static_cast<Reduction>(entry.kind), x, 1) : -1;
        case CallForm::Moment: return moment(static_cast<Over>(entry.kind), x, args, count);
        case CallForm::Along: return along(static_cast<Reduction>(entry.kind), x, args, count);
        case CallForm::Pick:
            return (count == 2 || (count == 3 && whole(args[2], axis))) && whole(args[1], i) && i >= 0
                       ? build.pick(x, i, axis)
                       : -1;
        case CallForm::Range:
            return (count == 3 || (count == 4 && whole(args[3], axis))) && whole(args[1], i) && whole(args[2], j)
                       ? build.range(x, i, j, axis)
                       : -1;
        default: return -1;
    }
}

// h, c, Wx, Wh, b and forget_bias, which follow the input in a step's arguments.
struct Lstm {
    int h, c, wx, wh, b;
    float forget_bias;
    bool read(PyObject *const *args) {
        if (!optional(args[0], h) || !optional(args[1], c) || !PyFloat_CheckExact(args[5])) return false;
        wx = node_of(args[2]);
        wh = node_of(args[3]);
        b = node_of(args[4]);
        forget_bias = static_cast<float>(PyFloat_AS_DOUBLE(args[5]));
        return wx >= 0 && wh >= 0 && b >= 0;
    }
    // False: the arguments do not fit.
    bool step(int x) {
        const int node = current_builder().lstm(x, h, c, wx, wh, b, forget_bias);
        h = node;
        c = node + 1;
        return node >= 0;
    }
};

// lstm_step(x, h, c, Wx, Wh, b, forget_bias) -> (h, c)
PyObject *step(PyObject *const *args, Py_ssize_t count) {
    Lstm lstm;
    const int x = count == 7 ? node_of(args[0]) : -1;
    if (x < 0 || !lstm.read(args + 1) || !lstm.step(x)) return nullptr;
    PyObject *both = PyTuple_New(2);
    for (int k = 0; both && k < 2; k++) {
        if (PyObject *each = make_expression(k ? lstm.c : lstm.h)) PyTuple_SET_ITEM(both, k, each);
        else Py_CLEAR(both);
    }
    if (!both) throw PythonError();
    return both;
}

// apply(operation, operands, attributes=(), own=None), plain(operation, x, y, z=...), append_many(operation, operands,
// attributes=()); nullptr, without an error, to fall back to Python.
PyObject *applied(const FunctionObject &function, PyObject *const *args, Py_ssize_t count) {
    const CallForm form = function.entry.form;
    if (count < 2 || count > (form == CallForm::Many ? 3 : 4)) return nullptr;
    Nodes operands;
    if (form == CallForm::Plain ? count < 3 || !operands.read(args + 1, count - 1) : !operands.read(args[1]))
        return nullptr;
    const bool attributes = form != CallForm::Plain && count > 2,
               own = form == CallForm::Apply && count > 3 && args[3] != Py_None;
    const Applied what{args[0], attributes ? args[2] : nullptr, own ? args[3] : nullptr, form == CallForm::Many};
    PyObject *made = recipes_of_current->make(what, operands, [&] {
        return PyObject_Vectorcall(function.fallback, args, static_cast<std::size_t>(count), nullptr);
    });
    if (!made) throw PythonError();
    return made;
}

PyObject *function_call(PyObject *self, PyObject *const *args, std::size_t flags, PyObject *keywords) {
    auto *function = reinterpret_cast<FunctionObject *>(self);
    return guarded([&]() -> PyObject * {
        const CallForm form = function->entry.form;
        Arguments given;
        PyObject *made = nullptr;
        if (current.is_open() && given.read(function->names, args, flags, keywords)) {
            if (form == CallForm::Node) {
                const int node = given.count == 1 ? node_of(given.at[0]) : -1;
                if (node >= 0) return PyLong_FromLong(node);
            } else if (form == CallForm::Step) {
                made = step(given.at, given.count);
            } else if (form > CallForm::Filled) {
                made = applied(*function, given.at, given.count);
            } else {
                const int node = attempt(*function, given.at, given.count);
                if (node >= 0) return form == CallForm::Input ? make_input(node) : make_expression(node);
            }
        }
        return made ? made : PyObject_Vectorcall(function->fallback, args, flags, keywords);
    });
}

// False: the name is unknown.
bool find(const char *name, FunctionObject &function) {
    for (const FunctionEntry &entry : table) {
        if (std::strcmp(entry.name, name)) continue;
        function.entry = entry;
        return true;
    }
    int kind = 0;
    for (const char *known : names_of_Unary) {
        if (!std::strcmp(known, name)) {
            PyObject *defaults = function.names.defaults,
                     *number_default = defaults ? PyTuple_GET_ITEM(defaults, 0) : nullptr;
            function.number =
                number_default && PyFloat_CheckExact(number_default) ? PyFloat_AS_DOUBLE(number_default) : 0.0;
            function.entry = {known, number_default ? CallForm::Number : CallForm::Unary, kind};
            return true;
        }
        kind++;
    }
    return false;
}

int function_init(PyObject *self, PyObject *args, PyObject *) {
    auto *function = reinterpret_cast<FunctionObject *>(self);
    const char *name;
    PyObject *fallback;
    if (!PyArg_ParseTuple(args, "sO:AutobatchFunction", &name, &fallback)) return -1;
    if (!function->names.read(fallback)) return -1;
    if (!find(name, *function)) {
        PyErr_Format(PyExc_ValueError, "there is no C version of %s", name);
        return -1;
    }
    Py_INCREF(fallback);
    Py_XSETREF(function->fallback, fallback);
    function->call = function_call;
    return 0;
}

int function_traverse(PyObject *self, visitproc visit, void *arg) {
    auto *function = reinterpret_cast<FunctionObject *>(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(function->fallback);
    Py_VISIT(function->names.defaults);
    Py_VISIT(function->attributes);
    return 0;
}

int function_clear(PyObject *self) {
    auto *function = reinterpret_cast<FunctionObject *>(self);
    Py_CLEAR(function->fallback);
    function->names.clear();
    Py_CLEAR(function->attributes);
    return 0;
}

void function_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    if (reinterpret_cast<FunctionObject *>(self)->weak) PyObject_ClearWeakRefs(self);
    function_clear(self);
    free_object(self);
}

PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FunctionObject, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(FunctionObject, attributes), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FunctionObject, weak), READONLY, nullptr},
    {"__wrapped__", T_OBJECT, offsetof(FunctionObject, fallback), READONLY, "the function in Python"},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot function_slots[] = {
    {Py_tp_doc, const_cast<char *>("AutobatchFunction(name, fallback)\n--\n\nAn operation implemented in C, which "
                                   "calls `fallback` for unsupported arguments.")},
    {Py_tp_new, slot(PyType_GenericNew)},
    {Py_tp_init, slot(function_init)},
    {Py_tp_dealloc, slot(function_dealloc)},
    {Py_tp_traverse, slot(function_traverse)},
    {Py_tp_clear, slot(function_clear)},
    {Py_tp_call, slot(PyVectorcall_Call)},
    {Py_tp_members, function_members},
    {0, nullptr}};

PyType_Spec function_spec = {"dpmodule._native.AutobatchFunction", sizeof(FunctionObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, function_slots};

}  // namespace
}  // namespace dpmodule::autobatch

int dpmodule::add_autobatch_function(PyObject *module) { return add_type(module, autobatch::function_spec) ? 0 : -1; }
