// Conversion of torch tensors to memory and back.
#pragma once

#include "python.hpp"

#include "pipe/dlpack.hpp"

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
    int64_t extent() const;
};

// Kinds of objects: a tensor that can be copied, something else, a tensor on a device, an exception.
enum class TensorKind { copyable, other, foreign, failed };

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
    bool load(PyObject *table);
    bool is_tensor(PyObject *object) const {
        PyTypeObject *type = Py_TYPE(object);
        return type == reinterpret_cast<PyTypeObject *>(tensor) ||
               type == reinterpret_cast<PyTypeObject *>(parameter) ||
               PyType_IsSubtype(type, reinterpret_cast<PyTypeObject *>(tensor));
    }
    TensorKind inspect(PyObject *object, Leaf &leaf) const;
    int item(int code) const { return types[code].bits * types[code].lanes / 8; }

  private:
    bool exact(PyObject *object) const {
        PyTypeObject *type = Py_TYPE(object);
        return type == reinterpret_cast<PyTypeObject *>(tensor) || type == reinterpret_cast<PyTypeObject *>(parameter);
    }
    int code_of(const dlpack::Type &type, PyObject *object) const;
    int lazy(PyObject *object, int code) const;
};

extern Torch torch;

// Return true if the elements fill one block without gaps, in any order of axes.
bool is_dense(int ndim, const int64_t *shape, const int64_t *strides);

// Copy a tensor to memory: as one block if it is dense, else in the order of its axes. Needs no GIL.
void copy(char *target, const Leaf &leaf);

}  // namespace dpmodule::pipe
