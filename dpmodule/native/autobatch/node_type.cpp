// The Python types AutobatchNode (a handle of a node) and AutobatchExpression (with operators). Operations with a
// kernel are added here directly; all others go to the Python class given to `expressions(...)`.
#include "python_state.hpp"
#include "python_parameters.hpp"

#include <structmember.h>

#include <algorithm>

namespace dpmodule::autobatch {

Current current;
Handles handles;
SpareMemory spare_memory;
PyTypeObject *node_type = nullptr;

namespace {

PyTypeObject *expression_base = nullptr;

// Valid without __init__, which Python code may skip.
PyObject *node_new(PyTypeObject *type, PyObject *, PyObject *) {
    return guarded([&]() -> PyObject * {
        PyObject *self = type->tp_alloc(type, 0);
        if (self) {
            reinterpret_cast<NodeObject *>(self)->table = -1;
            if (type == current.expression) handles.enter(reinterpret_cast<NodeObject *>(self));
        }
        return self;
    });
}

int node_init(PyObject *self, PyObject *args, PyObject *keywords) {
    static const char *names[] = {"node", "version", nullptr};
    auto *object = reinterpret_cast<NodeObject *>(self);
    return PyArg_ParseTupleAndKeywords(args, keywords, "|ii", const_cast<char **>(names), &object->node,
                                       &object->version)
               ? 0
               : -1;
}

void node_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (type == current.expression) {
        handles.leave(reinterpret_cast<NodeObject *>(self));
        spare_memory.give(self);
    } else {
        type->tp_free(self);
    }
    Py_DECREF(type);
}

PyMemberDef node_members[] = {
    {"node", T_INT, offsetof(NodeObject, node), 0, "the number of the node"},
    {"version", T_INT, offsetof(NodeObject, version), 0, "the version of the graph it belongs to"},
    {"table", T_INT, offsetof(NodeObject, table), 0, "number of a table in the engine; else -1"},
    {"serial", T_INT, offsetof(NodeObject, serial), 0, "number of the engine of a table"},
    {nullptr, 0, 0, 0, nullptr}};

// The operator of the Python class; `reflected` if the expression is on the right.
PyObject *python_operator(const char *name, const char *reflected, PyObject *a, PyObject *b) {
    if (!current.fallback) Py_RETURN_NOTIMPLEMENTED;
    const bool left = PyObject_TypeCheck(a, node_type);
    PyObject *method = PyObject_GetAttrString(current.fallback, left ? name : reflected);
    if (!method) {
        PyErr_Clear();
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *found = left ? PyObject_CallFunctionObjArgs(method, a, b, nullptr)
                           : PyObject_CallFunctionObjArgs(method, b, a, nullptr);
    Py_DECREF(method);
    return found;
}

// A number operand: exactly int or float; bool, NumPy and others fall back to Python.
bool plain_number(PyObject *x, float &found) {
    if (PyFloat_CheckExact(x)) found = static_cast<float>(PyFloat_AS_DOUBLE(x));
    else if (PyLong_CheckExact(x)) found = static_cast<float>(PyLong_AsDouble(x));
    else return false;
    if (PyErr_Occurred()) throw PythonError();
    return true;
}

template <class Pair, class Left, class Right>
PyObject *operation(PyObject *a, PyObject *b, const char *name, const char *reflected, Pair pair, Left left,
                    Right right) {
    return guarded([&]() -> PyObject * {
        if (current.is_open()) {
            const int x = node_of(a), y = node_of(b);
            float k;
            int made = -1;
            if (x >= 0 && y >= 0) made = pair(x, y);
            else if (x >= 0 && plain_number(b, k)) made = left(x, k);
            else if (y >= 0 && plain_number(a, k)) made = right(y, k);
            if (made >= 0) return make_expression(made);
        }
        return python_operator(name, reflected, a, b);
    });
}

Builder &builder() { return current_builder(); }

PyObject *add(PyObject *a, PyObject *b) {
    const auto shift = [](int x, float k) { return builder().unary(Unary::Shift, k, x); };
    return operation(
        a, b, "__add__", "__radd__", [](int x, int y) { return builder().binary(Binary::Add, x, y); }, shift, shift);
}

PyObject *subtract(PyObject *a, PyObject *b) {
    return operation(
        a, b, "__sub__", "__rsub__", [](int x, int y) { return builder().binary(Binary::Sub, x, y); },
        [](int x, float k) { return builder().unary(Unary::Shift, -k, x); },
        [](int x, float k) { return builder().unary(Unary::Rsub, k, x); });
}

PyObject *multiply(PyObject *a, PyObject *b) {
    const auto scale = [](int x, float k) { return builder().unary(Unary::Scale, k, x); };
    return operation(a, b, "__mul__", "__rmul__", [](int x, int y) { return builder().multiply(x, y); }, scale, scale);
}

PyObject *divide(PyObject *a, PyObject *b) {
    return operation(
        a, b, "__truediv__", "__rtruediv__", [](int x, int y) { return builder().binary(Binary::Div, x, y); },
        [](int x, float k) { return k != 0 ? builder().unary(Unary::Scale, 1.0f / k, x) : -1; },
        [](int x, float k) { return builder().unary(Unary::Recip, k, x); });
}

PyObject *power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return operation(
        a, b, "__pow__", "__rpow__", [](int x, int y) { return builder().binary(Binary::Pow, x, y); },
        [](int x, float k) { return builder().power(k, x); },
        [](int x, float k) { return builder().unary(Unary::Exponent, k, x); });
}

PyObject *negate(PyObject *a) {
    return guarded([&]() -> PyObject * {
        if (current.is_open()) {
            const int x = node_of(a);
            if (x >= 0) return make_expression(builder().unary(Unary::Neg, 0, x));
        }
        return current.fallback ? PyObject_CallMethod(current.fallback, "__neg__", "O", a) : nullptr;
    });
}

// table[row]
PyObject *node_lookup(PyObject *self, PyObject *index) {
    const auto *object = reinterpret_cast<NodeObject *>(self);
    int overflow;
    if (current.is_open() && object->serial == current.serial && PyLong_CheckExact(index)) {
        const long row = PyLong_AsLongAndOverflow(index, &overflow);
        const int made =
            !overflow && row == static_cast<int>(row) ? builder().lookup(object->table, static_cast<int>(row)) : -1;
        if (made >= 0) {
            parameters_of_current->hold_table(object->table);
            return make_expression(made);
        }
    }
    return PyObject_CallMethod(self, "row", "(O)", index);  // a tuple is also one argument
}

// x[a:b:c], x[a:b:c, d:e:f], ...; -1 for anything else.
int slices(int x, PyObject *index) {
    const bool several = PyTuple_CheckExact(index);
    const Shape shape = current.engine->graph.shape(x);  // a copy: reading a slice may run Python
    const auto count = static_cast<std::size_t>(several ? PyTuple_GET_SIZE(index) : 1);
    if (count > shape.dims.size() + 1) return -1;
    std::vector<int> steps, firsts, lasts;
    for (std::size_t k = 0; k < count; k++) {
        PyObject *each = several ? PyTuple_GET_ITEM(index, static_cast<Py_ssize_t>(k)) : index;
        if (!PySlice_Check(each)) return -1;
        Py_ssize_t start, stop, step;
        if (PySlice_Unpack(each, &start, &stop, &step) < 0) return fall_back_to_python(), -1;
        const int size = k < shape.dims.size() ? shape.dims[k] : shape.batch;
        PySlice_AdjustIndices(size, &start, &stop, step);
        steps.push_back(static_cast<int>(std::clamp<Py_ssize_t>(step, 0, size)));
        firsts.push_back(static_cast<int>(start));
        lasts.push_back(static_cast<int>(stop));
    }
    return builder().strided(x, steps, firsts, lasts);
}

PyObject *subscript(PyObject *a, PyObject *index) {
    return guarded([&]() -> PyObject * {
        if (reinterpret_cast<NodeObject *>(a)->table >= 0) return node_lookup(a, index);
        const int x = current.is_open() ? node_of(a) : -1;
        int made = -1;
        if (x >= 0 && PyLong_CheckExact(index)) {
            int overflow;
            const long at = PyLong_AsLongAndOverflow(index, &overflow);
            if (!overflow && at == static_cast<int>(at)) made = builder().pick(x, static_cast<int>(at));
        } else if (x >= 0 && PySlice_Check(index)) {
            Py_ssize_t start, stop, step;
            if (PySlice_Unpack(index, &start, &stop, &step) < 0) {
                fall_back_to_python();
                step = 0;
            }
            if (step) PySlice_AdjustIndices(current.engine->graph.shape(x).dims[0], &start, &stop, step);
            if (step == 1) made = builder().range(x, static_cast<int>(start), static_cast<int>(stop));
        }
        if (x >= 0 && made < 0) made = slices(x, index);
        if (made >= 0) return make_expression(made);
        return current.fallback ? PyObject_CallMethod(current.fallback, "__getitem__", "OO", a, index) : nullptr;
    });
}

PyType_Slot node_slots[] = {{Py_tp_doc, const_cast<char *>("The handle of a node of the graph under construction.")},
                            {Py_tp_init, slot(node_init)},
                            {Py_tp_new, slot(node_new)},
                            {Py_tp_dealloc, slot(node_dealloc)},
                            {Py_tp_members, node_members},
                            {0, nullptr}};

PyType_Slot expression_slots[] = {{Py_tp_doc, const_cast<char *>("A node with operators.")},
                                  {Py_nb_add, slot(add)},
                                  {Py_nb_subtract, slot(subtract)},
                                  {Py_nb_multiply, slot(multiply)},
                                  {Py_nb_true_divide, slot(divide)},
                                  {Py_nb_power, slot(power)},
                                  {Py_nb_negative, slot(negate)},
                                  {Py_mp_subscript, slot(subscript)},
                                  {0, nullptr}};

constexpr unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
PyType_Spec node_spec = {"dpmodule._native.AutobatchNode", sizeof(NodeObject), 0, flags, node_slots};
PyType_Spec expression_spec = {"dpmodule._native.AutobatchExpression", sizeof(NodeObject), 0, flags, expression_slots};

PyObject *type_of(PyObject *base, PyObject *methods, const char *name, const char *doc) {
    PyType_Slot slots[] = {{Py_tp_doc, const_cast<char *>(doc)}, {Py_tp_dealloc, slot(node_dealloc)}, {0, nullptr}};
    PyType_Spec spec = {name, sizeof(NodeObject), 0, flags, slots};
    PyObject *bases = PyTuple_Pack(2, base, methods);
    PyObject *made = bases ? PyType_FromSpecWithBases(&spec, bases) : nullptr;
    Py_XDECREF(bases);
    return made;
}

// autobatch_expressions(fallback, name, doc): creates the expression type from AutobatchExpression and the class
// `fallback`, whose operators are used without a kernel. Created here because the garbage collector tracks instances of
// Python classes, and there are many.
PyObject *make_type(PyObject *, PyObject *args) {
    PyObject *fallback;
    const char *name, *doc;
    if (!PyArg_ParseTuple(args, "O!ss", &PyType_Type, &fallback, &name, &doc)) return nullptr;
    PyObject *made = type_of(reinterpret_cast<PyObject *>(expression_base), fallback, name, doc);
    if (!made) return nullptr;
    Py_INCREF(made);
    Py_INCREF(fallback);
    Py_XDECREF(reinterpret_cast<PyObject *>(current.expression));
    Py_XDECREF(current.fallback);
    current.expression = reinterpret_cast<PyTypeObject *>(made);
    current.fallback = fallback;
    handles.clear();  // handles of another type would not be removed
    return made;
}

// autobatch_inputs(settable, name, doc): creates the input type from the expression type and a class of further
// methods.
PyObject *make_inputs(PyObject *, PyObject *args) {
    PyObject *settable;
    const char *name, *doc;
    if (!PyArg_ParseTuple(args, "O!ss", &PyType_Type, &settable, &name, &doc)) return nullptr;
    PyObject *made = type_of(reinterpret_cast<PyObject *>(current.expression), settable, name, doc);
    if (!made) return nullptr;
    Py_INCREF(made);
    Py_XDECREF(reinterpret_cast<PyObject *>(current.input));
    current.input = reinterpret_cast<PyTypeObject *>(made);
    return made;
}

PyMethodDef node_functions[] = {
    {"autobatch_expressions", make_type, METH_VARARGS,
     "autobatch_expressions(fallback, name, doc)\n--\n\nCreate the class of expressions; `fallback` "
     "has the operators in Python."},
    {"autobatch_inputs", make_inputs, METH_VARARGS,
     "autobatch_inputs(settable, name, doc)\n--\n\nCreate the class of inputs: expressions "
     "with the methods of `settable`."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int enter(PyObject *x) {
    const auto *object = reinterpret_cast<NodeObject *>(x);
    if (object->table < -1 && object->serial == current.serial) {
        if (Py_TYPE(x) != current.parameter) {
            PyTypeObject *before = current.parameter;
            current.parameter = reinterpret_cast<PyTypeObject *>(Py_NewRef(reinterpret_cast<PyObject *>(Py_TYPE(x))));
            Py_XDECREF(reinterpret_cast<PyObject *>(before));
        }
        const int node = parameters_of_current->parameter(-2 - object->table);
        if (node >= 0) return node;
    }
    // an object of an earlier graph: a parameter enters the current one; for an expression, Python raises the error
    // later
    PyObject *found = PyObject_CallMethod(x, "enter", nullptr);
    if (!found) return fall_back_to_python(), -1;
    const long node = PyLong_AsLong(found);
    Py_DECREF(found);
    if (node == -1 && PyErr_Occurred()) throw PythonError();
    return static_cast<int>(node);
}

}  // namespace dpmodule::autobatch

int dpmodule::add_autobatch_node(PyObject *module) {
    using namespace autobatch;
    node_type = add_type(module, node_spec);
    expression_base = node_type ? add_type(module, expression_spec, node_type) : nullptr;
    if (!expression_base) return -1;
    current.expression = reinterpret_cast<PyTypeObject *>(Py_NewRef(reinterpret_cast<PyObject *>(expression_base)));
    return PyModule_AddFunctions(module, node_functions);
}
