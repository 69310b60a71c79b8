#include "python_inputs.hpp"

#include <algorithm>
#include <cstring>

namespace dpmodule::autobatch {
namespace {

// An integer must be one that doubles have.
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

// Of floats or doubles that lie side by side.
int of_array(PyObject *array, bool flat) {
    struct Data : Py_buffer {
        explicit Data(PyObject *array) { is_there = PyObject_GetBuffer(array, this, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0; }
        ~Data() {
            if (is_there) PyBuffer_Release(this);
            else PyErr_Clear();
        }
        bool is_there;
    } data(array);
    if (!data.is_there || data.ndim < 1 || !data.format) return -1;
    const bool doubles = !std::strcmp(data.format, "d");
    if (!doubles && std::strcmp(data.format, "f")) return -1;
    std::vector<int> dims(1, 1);
    if (flat) {
        if (data.len > INT32_MAX) return -1;
        dims[0] = static_cast<int>(data.len / data.itemsize);
    } else {
        dims.assign(data.shape, data.shape + data.ndim);
        if (!std::equal(dims.begin(), dims.end(), data.shape)) return -1;
    }
    if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return -1;
    float *at;
    const int node = current_builder().input(dims, at);
    const auto copy = [&](const auto *from) {
        std::transform(from, from + data.len / data.itemsize, at, [](auto x) { return static_cast<float>(x); });
    };
    if (doubles) copy(static_cast<const double *>(data.buf));
    else copy(static_cast<const float *>(data.buf));
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

int input_of(Given given, PyObject *const *args, Py_ssize_t count) {
    if (count != (given == Given::Constant || given == Given::Matrix ? 2 : 1)) return -1;
    std::vector<int> dims;
    float value = given == Given::Ones ? 1.0f : 0.0f;
    switch (given) {
        case Given::Number: return number(args[0], value) ? filled({1}, value) : -1;
        case Given::Vector:
        case Given::Tensor:
            if (is_list(args[0])) return of_list(args[0]);
            return PyObject_CheckBuffer(args[0]) ? of_array(args[0], given == Given::Vector) : -1;
        case Given::Matrix:
            dims.resize(2);
            return size(args[0], dims[0]) && size(args[1], dims[1]) ? filled(dims, value) : -1;
        case Given::Constant:
            if (!number(args[1], value)) return -1;
            [[fallthrough]];
        default: return sizes(args[0], dims) ? filled(dims, value) : -1;
    }
}

}  // namespace dpmodule::autobatch
