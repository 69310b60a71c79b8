#include "function_arguments.hpp"

#include <algorithm>
#include <cstring>

namespace dpmodule::autobatch {
namespace {

// An integer must be exact as a double.
bool number(PyObject *x, float &found) {
    if (PyFloat_Check(x)) {
        found = static_cast<float>(PyFloat_AS_DOUBLE(x));
        return true;
    }
    constexpr long long most = 1LL << 53;
    int overflow = 1;
    const long long value = PyLong_CheckExact(x) ? PyLong_AsLongLongAndOverflow(x, &overflow) : 0;
    found = static_cast<float>(value);
    return !overflow && value <= most && value >= -most;
}

bool size(PyObject *x, int &found) {
    int overflow = 1;
    const long value = PyLong_CheckExact(x) ? PyLong_AsLongAndOverflow(x, &overflow) : 0;
    found = static_cast<int>(value);
    return !overflow && value == found && value > 0;
}

bool is_list(PyObject *x) { return PyList_CheckExact(x) || PyTuple_CheckExact(x); }

int filled(const std::vector<int> &dims, float value) {
    float *at;
    const int node = current_builder().input(dims, at);
    std::fill_n(at, current.engine->graph.signature(node).width, value);
    return node;
}

int of_list(PyObject *list) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    if (count == 0 || count > INT32_MAX) return -1;
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!number(PySequence_Fast_GET_ITEM(list, i), numbers[static_cast<std::size_t>(i)])) return -1;
    }
    float *at;
    const int node = current_builder().input({static_cast<int>(count)}, at);
    std::copy(numbers.begin(), numbers.end(), at);
    return node;
}

struct Axis {
    Py_ssize_t size, step;  // in bytes
};

// Row by row, the first axis outermost.
template <class T>
float *copy(const char *from, const Axis *axis, const Axis *end, float *to) {
    if (axis + 1 < end) {
        for (Py_ssize_t i = 0; i < axis->size; i++) to = copy<T>(from + i * axis->step, axis + 1, end, to);
        return to;
    }
    for (Py_ssize_t i = 0; i < axis->size; i++, from += axis->step) {
        T x;
        std::memcpy(&x, from, sizeof x);  // arrays may be unaligned
        *to++ = static_cast<float>(x);
    }
    return to;
}

enum class As { Vector, Tensor, Minibatch };  // a minibatch has its elements along the last axis

// Of float32 or float64.
int of_array(PyObject *array, As as) {
    struct Data : Py_buffer {
        explicit Data(PyObject *array) {
            is_there = PyObject_GetBuffer(array, this, PyBUF_STRIDED_RO | PyBUF_FORMAT) == 0;
        }
        ~Data() {
            if (is_there) PyBuffer_Release(this);
            else PyErr_Clear();
        }
        bool is_there;
    } data(array);
    if (!data.is_there || data.ndim < 1 || !data.format) return -1;
    const bool doubles = !std::strcmp(data.format, "d");
    if (!doubles && std::strcmp(data.format, "f")) return -1;
    std::vector<Axis> axes;
    std::vector<int> dims;
    for (int k = 0; k < data.ndim; k++) {
        if (data.shape[k] < 1 || data.shape[k] > INT32_MAX) return -1;
        axes.push_back({data.shape[k], data.strides[k]});
        dims.push_back(static_cast<int>(data.shape[k]));
    }
    int batch = 1;
    if (as == As::Vector) {
        if (data.len / data.itemsize > INT32_MAX) return -1;
        dims = {static_cast<int>(data.len / data.itemsize)};
    }
    if (as == As::Minibatch) {
        std::rotate(axes.begin(), axes.end() - 1, axes.end());
        batch = dims.back();
        dims.pop_back();
        if (dims.empty()) dims = {1};
    }
    float *at;
    const int node = current_builder().input(dims, at, batch);
    const char *from = static_cast<const char *>(data.buf);
    if (doubles) copy<double>(from, axes.data(), axes.data() + axes.size(), at);
    else copy<float>(from, axes.data(), axes.data() + axes.size(), at);
    return node;
}

}  // namespace

bool sizes(PyObject *x, std::vector<int> &found) {
    found.assign(1, 0);
    if (!is_list(x)) return size(x, found[0]);
    found.resize(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(x)));
    for (std::size_t i = 0; i < found.size(); i++) {
        if (!size(PySequence_Fast_GET_ITEM(x, static_cast<Py_ssize_t>(i)), found[i])) return false;
    }
    return !found.empty();
}

int input_of(InputKind given, PyObject *const *args, Py_ssize_t count) {
    // device and reusable_expr, which follow the flag, are ignored
    const bool has_flag = given == InputKind::Tensor && count >= 2 && count <= 4 && PyBool_Check(args[1]);
    if (!has_flag && count != (given == InputKind::Constant || given == InputKind::Matrix ? 2 : 1)) return -1;
    std::vector<int> dims;
    float value = given == InputKind::Ones ? 1.0f : 0.0f;
    switch (given) {
        case InputKind::Number: return number(args[0], value) ? filled({1}, value) : -1;
        case InputKind::Vector:
        case InputKind::Tensor:
            if (is_list(args[0])) return has_flag ? -1 : of_list(args[0]);
            if (!PyObject_CheckBuffer(args[0])) return -1;
            return of_array(args[0], has_flag && args[1] == Py_True ? As::Minibatch
                                     : given == InputKind::Vector   ? As::Vector
                                                                    : As::Tensor);
        case InputKind::Matrix:
            dims.resize(2);
            return size(args[0], dims[0]) && size(args[1], dims[1]) ? filled(dims, value) : -1;
        case InputKind::Constant:
            if (!number(args[1], value)) return -1;
            [[fallthrough]];
        default: return sizes(args[0], dims) ? filled(dims, value) : -1;
    }
}

}  // namespace dpmodule::autobatch
