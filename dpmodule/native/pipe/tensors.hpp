// Conversion of torch tensors to memory and back.
#pragma once

#include <algorithm>
#include <cstring>

#include "python.hpp"

// Part of the DLPack standard, version 1: reads and creates tensors of torch without its headers.
// Source: the DLPack specification, "Python Specification" and "C API"; the table is torch.Tensor.__dlpack_c_exchange_api__.
namespace dpmodule::dlpack {

enum Device : int32_t { cpu = 1, cuda = 2, cuda_host = 3 };

struct Type {
    uint8_t code, bits;
    uint16_t lanes;
};

struct Version {
    uint32_t major, minor;
};

// Shape and strides are in elements and belong to the producer.
struct Tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    Type type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct Managed {
    Version version;
    void *context;
    void (*deleter)(Managed *self);
    uint64_t flags;
    Tensor tensor;
};

struct Exchange {
    Version version;
    Exchange *previous;
    int (*allocate)(Tensor *, Managed **, void *, void (*)(void *, const char *, const char *));
    int (*managed_from_object)(void *object, Managed **out);
    int (*object_from_managed)(Managed *managed, void **out);
    int (*tensor_from_object)(void *object, Tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
};

}  // namespace dpmodule::dlpack

namespace dpmodule::pipe {

constexpr int most_axes = 64;

// Memory layout of a CPU tensor. Holds a reference to the tensor.
struct Leaf {
    PyObject *object = nullptr;
    char *data = nullptr;
    int code = 0, ndim = 0, item = 0;
    bool dense = false;
    int64_t bytes = 0;
    const int64_t *shape = nullptr, *strides = nullptr;

    // Return the bytes from the first element to the end of the last; torch has no negative strides.
    int64_t extent() const {
        if (bytes == 0) return 0;
        int64_t last = 0;
        for (int i = 0; i < ndim; i++) last += (shape[i] - 1) * strides[i];
        return (last + 1) * item;
    }
};

// Kinds of objects: a tensor that can be copied, something else, a tensor on a device, an exception.
enum class TensorKind { copyable, other, foreign, failed };

constexpr uint8_t code_int = 0, code_uint = 1, code_complex = 5;

inline bool is_true(PyObject *function, PyObject *object, bool &failed) {
    PyObject *answer = PyObject_CallOneArg(function, object);
    if (!answer) return failed = true;
    Py_DECREF(answer);  // True and False are immortal
    return answer == Py_True;
}

inline int64_t elements(const Leaf &leaf) {
    int64_t count = 1;
    for (int i = 0; i < leaf.ndim; i++) count *= leaf.shape[i];
    return count;
}

// Copy the axes from `axis` on; returns the end of the copy.
inline char *copy_axes(char *target, const char *source, const Leaf &leaf, int axis) {
    if (axis == leaf.ndim) {
        std::memcpy(target, source, leaf.item);
        return target + leaf.item;
    }
    int64_t size = leaf.shape[axis], step = leaf.strides[axis] * leaf.item;
    if (axis == leaf.ndim - 1 && step == leaf.item) {
        std::memcpy(target, source, size * leaf.item);
        return target + size * leaf.item;
    }
    for (int64_t i = 0; i < size; i++) target = copy_axes(target, source + i * step, leaf, axis + 1);
    return target;
}

// Copy the last axis, which has a stride, for elements of a native size.
template <class Item>
char *copy_items(char *target, const char *source, const Leaf &leaf, int axis) {
    int64_t size = leaf.shape[axis], step = leaf.strides[axis] * leaf.item;
    if (axis + 1 < leaf.ndim) {
        for (int64_t i = 0; i < size; i++) target = copy_items<Item>(target, source + i * step, leaf, axis + 1);
        return target;
    }
    if (step == leaf.item) return copy_axes(target, source, leaf, axis);
    for (int64_t i = 0; i < size; i++, target += sizeof(Item)) std::memcpy(target, source + i * step, sizeof(Item));
    return target;
}

// Return true if the elements fill one block without gaps, in any order of axes.
inline bool is_dense(int ndim, const int64_t *shape, const int64_t *strides) {
    int64_t expected = 1;
    bool ordered = true;
    for (int i = ndim - 1; i >= 0 && ordered; i--) {  // true for nearly all tensors
        if (shape[i] == 1) continue;
        ordered = strides[i] == expected;
        expected *= shape[i];
    }
    if (ordered) return true;
    int axes[most_axes], count = 0;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] != 1) axes[count++] = i;
    }
    std::sort(axes, axes + count,
              [&](int a, int b) { return strides[a] != strides[b] ? strides[a] < strides[b] : shape[a] < shape[b]; });
    expected = 1;
    for (int i = 0; i < count; i++) {
        if (strides[axes[i]] != expected) return false;
        expected *= shape[axes[i]];
    }
    return true;
}

// Copy a tensor to memory: as one block if it is dense, else in the order of its axes. Needs no GIL.
inline void copy(char *target, const Leaf &leaf) {
    if (leaf.bytes == 0) return;
    if (leaf.dense || leaf.ndim == 0) {
        std::memmove(target, leaf.data, leaf.bytes);  // a view of the slot may be sent into it
        return;
    }
    switch (leaf.item) {
        case 1: copy_items<uint8_t>(target, leaf.data, leaf, 0); break;
        case 2: copy_items<uint16_t>(target, leaf.data, leaf, 0); break;
        case 4: copy_items<uint32_t>(target, leaf.data, leaf, 0); break;
        case 8: copy_items<uint64_t>(target, leaf.data, leaf, 0); break;
        default: copy_axes(target, leaf.data, leaf, 0);
    }
}

// Functions and types of torch, looked up once per process.
struct Torch {
    const dlpack::Exchange *exchange = nullptr;
    PyObject *tensor = nullptr, *parameter = nullptr;  // types
    PyObject *is_neg = nullptr, *is_conj = nullptr;
    PyObject *plain = nullptr;  // makes an ordinary tensor of a subclass or one with a pending sign
    int count = 0;
    dlpack::Type types[64] = {};
    PyObject *dtypes[64] = {};  // None where this torch has no such type

    // Read the tuple made by streams/pipe/backend.py. False with an exception.
    bool load(PyObject *table) {
        if (exchange) return true;  // a process has only one torch
        PyObject *capsule, *kinds, *names, *functions[5];
        if (!PyArg_ParseTuple(table, "OO!O!(OOOOO)", &capsule, &PyTuple_Type, &kinds, &PyTuple_Type, &names,
                              &functions[0], &functions[1], &functions[2], &functions[3], &functions[4])) {
            return false;
        }
        auto found = static_cast<dlpack::Exchange *>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
        if (!found) return false;
        if (found->version.major != 1 || !found->tensor_from_object) {
            return PyErr_SetString(PyExc_RuntimeError, "torch's DLPack functions have an unsupported version"), false;
        }
        Py_ssize_t size = PyTuple_GET_SIZE(kinds);
        if (size > 64 || size != PyTuple_GET_SIZE(names))
            return PyErr_SetString(PyExc_ValueError, "expected at most 64 types, and a name for each"), false;
        for (Py_ssize_t i = 0; i < size; i++) {
            int code, bits, lanes;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(kinds, i), "iii", &code, &bits, &lanes)) return false;
            types[i] = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), static_cast<uint16_t>(lanes)};
            dtypes[i] = Py_NewRef(PyTuple_GET_ITEM(names, i));
        }
        count = static_cast<int>(size);
        PyObject **targets[5] = {&tensor, &parameter, &is_neg, &is_conj, &plain};
        for (int i = 0; i < 5; i++) *targets[i] = Py_NewRef(functions[i]);
        exchange = found;
        return true;
    }
    bool is_tensor(PyObject *object) const {
        PyTypeObject *type = Py_TYPE(object);
        return type == reinterpret_cast<PyTypeObject *>(tensor) ||
               type == reinterpret_cast<PyTypeObject *>(parameter) ||
               PyType_IsSubtype(type, reinterpret_cast<PyTypeObject *>(tensor));
    }
    TensorKind inspect(PyObject *object, Leaf &leaf) const {
        dlpack::Tensor found;
        leaf.object = Py_NewRef(object);
        for (bool again = false;; again = true) {
            if (exact(leaf.object)) {
                if (exchange->tensor_from_object(leaf.object, &found) != 0) return PyErr_Clear(), TensorKind::other;
                if (found.device_type == dlpack::cuda) return TensorKind::foreign;
                if (found.device_type != dlpack::cpu && found.device_type != dlpack::cuda_host)
                    return TensorKind::other;
                leaf.code = code_of(found.type, leaf.object);
                if (leaf.code < 0 || found.ndim > most_axes) return TensorKind::other;
                int is_lazy = lazy(leaf.object, leaf.code);
                if (is_lazy < 0) return TensorKind::failed;
                if (!is_lazy) break;
            }
            if (again) return TensorKind::other;
            PyObject *simple = PyObject_CallOneArg(plain, leaf.object);
            if (!simple) return PyErr_Clear(), TensorKind::other;  // the Python side raises the error
            Py_SETREF(leaf.object, simple);
        }
        leaf.data = static_cast<char *>(found.data) + found.byte_offset;
        leaf.ndim = found.ndim;
        leaf.shape = found.shape;
        leaf.strides = found.strides;
        leaf.item = item(leaf.code);
        leaf.bytes = elements(leaf) * leaf.item;
        leaf.dense = leaf.bytes == 0 || is_dense(leaf.ndim, leaf.shape, leaf.strides);
        return TensorKind::copyable;
    }
    int item(int code) const { return types[code].bits * types[code].lanes / 8; }

  private:
    bool exact(PyObject *object) const {
        PyTypeObject *type = Py_TYPE(object);
        return type == reinterpret_cast<PyTypeObject *>(tensor) || type == reinterpret_cast<PyTypeObject *>(parameter);
    }
    // Return the number of a type, or -1. Types of fewer than 8 bits look like bytes, so bytes need a query.
    int code_of(const dlpack::Type &type, PyObject *object) const {
        for (int i = 0; i < count; i++) {
            if (types[i].code != type.code || types[i].bits != type.bits || types[i].lanes != type.lanes) continue;
            if (type.bits != 8 || (type.code != code_int && type.code != code_uint)) return i;
            PyObject *dtype = PyObject_GetAttrString(object, "dtype");
            if (!dtype) return PyErr_Clear(), -1;
            Py_DECREF(dtype);  // types of torch are immortal
            return dtype == dtypes[i] ? i : -1;
        }
        return -1;
    }
    // Return 1 if a negation or conjugation of the values is still pending; -1 with an exception.
    int lazy(PyObject *object, int code) const {
        bool failed = false;
        bool found =
            is_true(is_neg, object, failed) || (types[code].code == code_complex && is_true(is_conj, object, failed));
        return failed ? -1 : found;
    }
};

inline Torch torch;

}  // namespace dpmodule::pipe
