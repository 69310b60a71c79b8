// The Python type AutobatchFunction: an operation that adds its node at once where a kernel takes the operands, and
// calls the function in Python with the same arguments where not.
#include "function_arguments.hpp"
#include "python_recipes.hpp"

#include <structmember.h>

#include <cstring>

namespace dpmodule::autobatch {
namespace {

enum class Way {
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

struct Fast {
    const char *name;
    Way way;
    int kind;  // of Unary, Binary, Reduction, Draw or Given, or an Op
};

template <class Kind>
constexpr int of(Kind kind) {
    return static_cast<int>(kind);
}

// Functions of one expression, perhaps with a number beside it, are in unary_list.hpp.
constexpr Fast table[] = {
    {"cmult", Way::Binary, of(Binary::Mul)},
    {"cdiv", Way::Binary, of(Binary::Div)},
    {"pow", Way::Binary, of(Binary::Pow)},
    {"bmax", Way::Binary, of(Binary::Max)},
    {"bmin", Way::Binary, of(Binary::Min)},
    {"affine_transform", Way::Affine, 0},
    {"concatenate", Way::Concat, 0},
    {"concatenate_cols", Way::ConcatColumns, 0},
    {"esum", Way::Sum, 0},
    {"average", Way::Average, 0},
    {"pickneglogsoftmax", Way::Loss, of(Op::PickNegLogSoftmax)},
    {"hinge", Way::Loss, of(Op::Hinge)},
    {"pickneglogsoftmax_batch", Way::Labels, of(Op::PickNegLogSoftmax)},
    {"pick_batch", Way::Labels, of(Op::PickEach)},
    {"dropout", Way::Drawn, of(Draw::Dropout)},
    {"noise", Way::Drawn, of(Draw::Noise)},
    {"dropout_batch", Way::Drawn, of(Draw::DropoutBatch)},
    {"block_dropout", Way::Drawn, of(Draw::BlockDropout)},
    {"dropout_dim", Way::DrawnAlong, of(Draw::DropoutDim)},
    {"random_normal", Way::Random, of(Draw::Normal)},
    {"random_uniform", Way::Random, of(Draw::Uniform)},
    {"random_bernoulli", Way::Random, of(Draw::Bernoulli)},
    {"random_gumbel", Way::Random, of(Draw::Gumbel)},
    {"poisson_loss", Way::Count, 0},
    {"reshape", Way::Reshape, 0},
    {"parameter", Way::Parameter, 0},
    {"emax", Way::Across, of(Reduction::Max)},
    {"logsumexp", Way::Across, of(Reduction::LogSumExp)},
    {"lookup_batch", Way::Rows, 0},
    {"mean_elems", Way::Elements, of(Reduction::Mean)},
    {"std_elems", Way::Elements, of(Reduction::Deviation)},
    {"l2_norm", Way::Elements, of(Reduction::Length)},
    {"moment_dim", Way::Moment, of(Over::Dimensions)},
    {"moment_elems", Way::Moment, of(Over::Elements)},
    {"moment_batches", Way::Moment, of(Over::Minibatch)},
    {"std_dim", Way::Along, of(Reduction::Deviation)},
    {"sum_batches", Way::Batches, of(Reduction::Sum)},
    {"mean_batches", Way::Batches, of(Reduction::Mean)},
    {"sum_dim", Way::Along, of(Reduction::Sum)},
    {"mean_dim", Way::Along, of(Reduction::Mean)},
    {"max_dim", Way::Along, of(Reduction::Max)},
    {"min_dim", Way::Along, of(Reduction::Min)},
    {"logsumexp_dim", Way::Along, of(Reduction::LogSumExp)},
    {"softmax", Way::Softmax, of(Op::Softmax)},
    {"log_softmax", Way::Softmax, of(Op::LogSoftmax)},
    {"sum_elems", Way::Reduce, of(Op::SumElems)},
    {"squared_norm", Way::Reduce, of(Op::SquaredNorm)},
    {"dot_product", Way::Reduce, of(Op::Dot)},
    {"pick", Way::Pick, 0},
    {"pick_range", Way::Range, 0},
    {"pick_batch_elem", Way::Part, of(Part::Member)},
    {"pick_batch_elems", Way::Part, of(Part::Members)},
    {"select_rows", Way::Part, of(Part::Rows)},
    {"select_cols", Way::Part, of(Part::Columns)},
    {"strided_select", Way::Part, of(Part::Strided)},
    {"colwise_add", Way::AddColumn, 0},
    {"transpose", Way::Transpose, 0},
    {"lstm_step", Way::Step, 0},
    {"scalarInput", Way::Input, of(Given::Number)},
    {"inputVector", Way::Input, of(Given::Vector)},
    {"inputTensor", Way::Input, of(Given::Tensor)},
    {"vecInput", Way::Input, of(Given::Zeros)},
    {"matInput", Way::Input, of(Given::Matrix)},
    {"zeros", Way::Filled, of(Given::Zeros)},
    {"ones", Way::Filled, of(Given::Ones)},
    {"constant", Way::Filled, of(Given::Constant)},
    {"apply", Way::Apply, 0},
    {"plain", Way::Plain, 0},
    {"append_many", Way::Many, 0},
    {"node_of", Way::Node, 0},
};

struct FunctionObject {
    PyObject_HEAD vectorcallfunc call;
    Fast fast;
    double number;  // of Number, where it is left out
    PyObject *slow;
    ArgumentNames names;
    PyObject *attributes;  // __dict__
    PyObject *weak;
};

int several(const Fast &fast, PyObject *const *args, Py_ssize_t count) {
    Builder &build = current_builder();
    Nodes nodes;
    int axis = 0;
    if (!nodes.read(args[0]) || (count == 2 && !whole(args[1], axis))) return -1;
    switch (fast.way) {
        case Way::Affine:
            return nodes.count % 2 && nodes.count > 1 ? build.transform(nodes.at[0], nodes.at + 1, nodes.count / 2)
                                                      : -1;
        case Way::Concat: return build.concat(nodes.at, nodes.count, axis);
        case Way::ConcatColumns: return build.concat(nodes.at, nodes.count, 1);
        case Way::Sum: return build.sum(nodes.at, nodes.count);
        default: {
            const int total = build.sum(nodes.at, nodes.count);
            return total < 0 ? -1 : build.unary(Unary::Scale, 1.0f / static_cast<float>(nodes.count), total);
        }
    }
}

// The node, or -1: the slow way.
int attempt(const FunctionObject &function, PyObject *const *args, Py_ssize_t count) {
    const Fast &fast = function.fast;
    Builder &build = current_builder();
    if (fast.way > Way::Step) return input_of(static_cast<Given>(fast.kind), args, count);
    if (fast.way >= Way::Affine && fast.way <= Way::Average)
        return count == 1 || (count == 2 && fast.way == Way::Concat) ? several(fast, args, count) : -1;
    if (fast.way == Way::Random) return draw_numbers(static_cast<Draw>(fast.kind), args, count);
    if (fast.way == Way::Rows) return count == 2 ? rows(args[0], args[1]) : -1;
    if (fast.way == Way::Across) {
        Nodes nodes;
        if (count != 1 || !nodes.read(args[0])) return -1;
        const auto kind = static_cast<Reduction>(fast.kind);
        return kind == Reduction::Max && nodes.count == 2 ? build.binary(Binary::Max, nodes.at[0], nodes.at[1])
                                                          : build.across(kind, nodes.at, nodes.count);
    }
    const int x = count > 0 ? node_of(args[0]) : -1;
    if (x < 0) return -1;
    int i, j, axis = 0;
    std::vector<int> dims;
    double number = function.number;
    switch (fast.way) {
        case Way::Unary: return count == 1 ? build.unary(static_cast<Unary>(fast.kind), 0, x) : -1;
        case Way::Softmax: return softmax(static_cast<Op>(fast.kind), x, args, count);
        case Way::Part: return part(static_cast<Part>(fast.kind), x, args, count);
        case Way::Binary:
        case Way::Reduce: {
            const bool two = fast.way == Way::Binary || static_cast<Op>(fast.kind) == Op::Dot;
            if (count != 1 + two) return -1;
            const int y = two ? node_of(args[1]) : -1;
            if (two && y < 0) return -1;
            return fast.way == Way::Binary ? build.binary(static_cast<Binary>(fast.kind), x, y)
                                           : build.reduce(static_cast<Op>(fast.kind), x, y);
        }
        case Way::Transpose: return count == 1 ? build.transpose(x) : -1;
        case Way::AddColumn: {
            const int column = count == 2 ? node_of(args[1]) : -1;
            return column < 0 ? -1 : build.add_to_columns(x, column);
        }
        case Way::Loss: {
            const auto op = static_cast<Op>(fast.kind);
            if (count != 2 || !whole(args[1], i)) return -1;
            return build.loss(op, op == Op::Hinge ? 1.0f : 0.0f, x, {i}, false);
        }
        case Way::Labels: {
            std::vector<int> labels;
            if (count != 2 || !several_whole(args[1], labels)) return -1;
            return static_cast<Op>(fast.kind) == Op::PickEach ? build.pick_each(x, labels)
                                                              : build.loss(Op::PickNegLogSoftmax, 0, x, labels, true);
        }
        case Way::Drawn:
        case Way::DrawnAlong: {
            const int along = fast.way == Way::DrawnAlong;
            i = 0;
            if (count != 2 + along || (along && !whole(args[1], i))) return -1;
            const double rate = PyFloat_CheckExact(args[1 + along]) ? PyFloat_AS_DOUBLE(args[1 + along]) : -1.0;
            const auto kind = static_cast<Draw>(fast.kind);
            if (rate == 0 && kind == Draw::Dropout) return x;
            return rate >= 0 && (rate <= 1 || kind == Draw::Noise) ? build.drawn(kind, rate, x, i) : -1;
        }
        case Way::Number:
            return count == 1 || (count == 2 && real(args[1], number))
                       ? build.unary(static_cast<Unary>(fast.kind), static_cast<float>(number), x)
                       : -1;
        case Way::Count:
            return count == 2 && whole(args[1], i) && i >= 0 ? build.unary(Unary::Poisson, static_cast<float>(i), x)
                                                             : -1;
        case Way::Reshape:
            return count == 2 && sizes(args[1], dims)
                       ? build.reshape(x, current.engine->graph.signatures.add_shape(dims))
                       : -1;
        // what is not a parameter has been given wrongly
        case Way::Parameter:
            return count == 1 && current.engine->graph.signature(x).op == Op::Param &&
                           Py_TYPE(args[0]) != current.expression
                       ? x
                       : -1;
        case Way::Elements: {
            const unsigned axes = count == 1 ? all_axes(x) : 0;
            return axes ? build.along(static_cast<Reduction>(fast.kind), x, axes) : -1;
        }
        case Way::Batches: return count == 1 ? build.along(static_cast<Reduction>(fast.kind), x, 1) : -1;
        case Way::Moment: return moment(static_cast<Over>(fast.kind), x, args, count);
        case Way::Along: return along(static_cast<Reduction>(fast.kind), x, args, count);
        case Way::Pick:
            return (count == 2 || (count == 3 && whole(args[2], axis))) && whole(args[1], i) && i >= 0
                       ? build.pick(x, i, axis)
                       : -1;
        case Way::Range:
            return (count == 3 || (count == 4 && whole(args[3], axis))) && whole(args[1], i) && whole(args[2], j)
                       ? build.range(x, i, j, axis)
                       : -1;
        default: return -1;
    }
}

// h, c, Wx, Wh, b and forget_bias, which follow the input in the arguments of a step.
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
    // False: it does not fit.
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
// attributes=()); nullptr, without an error, where the slow way has to look at the operands.
PyObject *applied(const FunctionObject &function, PyObject *const *args, Py_ssize_t count) {
    const Way way = function.fast.way;
    if (count < 2 || count > (way == Way::Many ? 3 : 4)) return nullptr;
    Nodes operands;
    if (way == Way::Plain ? count < 3 || !operands.read(args + 1, count - 1) : !operands.read(args[1])) return nullptr;
    const bool attributes = way != Way::Plain && count > 2, own = way == Way::Apply && count > 3 && args[3] != Py_None;
    const Applied what{args[0], attributes ? args[2] : nullptr, own ? args[3] : nullptr, way == Way::Many};
    PyObject *made = recipes_of_current->make(what, operands, [&] {
        return PyObject_Vectorcall(function.slow, args, static_cast<std::size_t>(count), nullptr);
    });
    if (!made) throw PythonError();
    return made;
}

PyObject *function_call(PyObject *self, PyObject *const *args, std::size_t flags, PyObject *keywords) {
    auto *function = reinterpret_cast<FunctionObject *>(self);
    return guarded([&]() -> PyObject * {
        const Way way = function->fast.way;
        Arguments given;
        PyObject *made = nullptr;
        if (current.is_open() && given.read(function->names, args, flags, keywords)) {
            if (way == Way::Node) {
                const int node = given.count == 1 ? node_of(given.at[0]) : -1;
                if (node >= 0) return PyLong_FromLong(node);
            } else if (way == Way::Step) {
                made = step(given.at, given.count);
            } else if (way > Way::Filled) {
                made = applied(*function, given.at, given.count);
            } else {
                const int node = attempt(*function, given.at, given.count);
                if (node >= 0) return way == Way::Input ? make_input(node) : make_expression(node);
            }
        }
        return made ? made : PyObject_Vectorcall(function->slow, args, flags, keywords);
    });
}

// False: nothing is known by that name.
bool find(const char *name, FunctionObject &function) {
    for (const Fast &fast : table) {
        if (std::strcmp(fast.name, name)) continue;
        function.fast = fast;
        return true;
    }
    int kind = 0;
    for (const char *known : names_of_Unary) {
        if (!std::strcmp(known, name)) {
            PyObject *defaults = function.names.defaults, *beside = defaults ? PyTuple_GET_ITEM(defaults, 0) : nullptr;
            function.number = beside && PyFloat_CheckExact(beside) ? PyFloat_AS_DOUBLE(beside) : 0.0;
            function.fast = {known, beside ? Way::Number : Way::Unary, kind};
            return true;
        }
        kind++;
    }
    return false;
}

int function_init(PyObject *self, PyObject *args, PyObject *) {
    auto *function = reinterpret_cast<FunctionObject *>(self);
    const char *name;
    PyObject *slow;
    if (!PyArg_ParseTuple(args, "sO:AutobatchFunction", &name, &slow)) return -1;
    if (!function->names.read(slow)) return -1;
    if (!find(name, *function)) {
        PyErr_Format(PyExc_ValueError, "there is no fast way for %s", name);
        return -1;
    }
    Py_INCREF(slow);
    Py_XSETREF(function->slow, slow);
    function->call = function_call;
    return 0;
}

int function_traverse(PyObject *self, visitproc visit, void *arg) {
    auto *function = reinterpret_cast<FunctionObject *>(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(function->slow);
    Py_VISIT(function->names.defaults);
    Py_VISIT(function->attributes);
    return 0;
}

int function_clear(PyObject *self) {
    auto *function = reinterpret_cast<FunctionObject *>(self);
    Py_CLEAR(function->slow);
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
    {"__wrapped__", T_OBJECT, offsetof(FunctionObject, slow), READONLY, "the function in Python"},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot function_slots[] = {
    {Py_tp_doc,
     const_cast<char *>(
         "AutobatchFunction(name, slow)\n--\n\nAn operation with a fast way; `slow` takes what it does not.")},
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
