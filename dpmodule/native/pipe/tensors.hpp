// Tensors of torch as memory, and memory as tensors.
#pragma once

#include "python.hpp"

#include "pipe/dlpack.hpp"

namespace dpmodule::pipe {

constexpr int most_axes = 64;

// A tensor on the CPU, as it is in memory. Holds a reference to it.
struct Leaf {
    PyObject *object = nullptr;
    char *data = nullptr;
    int code = 0, ndim = 0, item = 0;
    bool dense = false;
    int64_t bytes = 0;
    const int64_t *shape = nullptr, *strides = nullptr;

    // How far its elements reach, in bytes from its first one; torch has no negative strides.
    int64_t extent() const;
};

// What looking at an object found: a tensor that can be copied, something else, a tensor on a device, an exception.
enum class Look { fine, other, foreign, failed };

// Torch's functions and types, found once per process.
struct Torch {
    const dlpack::Exchange *exchange = nullptr;
    PyObject *tensor = nullptr, *parameter = nullptr;  // types
    PyObject *is_neg = nullptr, *is_conj = nullptr;
    PyObject *plain = nullptr;  // makes an ordinary tensor of one with a lazy sign or of a class of its own
    int count = 0;
    dlpack::Type types[64] = {};
    PyObject *dtypes[64] = {};  // None where this torch has no such type

    // Take the tuple that streams/pipe/backend.py makes. False with an exception.
    bool load(PyObject *table);
    bool is_tensor(PyObject *object) const {
        PyTypeObject *type = Py_TYPE(object);
        return type == reinterpret_cast<PyTypeObject *>(tensor) ||
               type == reinterpret_cast<PyTypeObject *>(parameter) ||
               PyType_IsSubtype(type, reinterpret_cast<PyTypeObject *>(tensor));
    }
    Look look(PyObject *object, Leaf &leaf) const;
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

// Whether the elements fill one block exactly, in whatever order of axes.
bool is_dense(int ndim, const int64_t *shape, const int64_t *strides);

// Copy a tensor to memory: as it lies if it is dense, else in the order of its axes. Needs no GIL.
void copy(char *target, const Leaf &leaf);

}  // namespace dpmodule::pipe
