// Conversion of torch tensors to memory and back.
#pragma once

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
