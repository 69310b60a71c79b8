// Part of the DLPack standard, version 1: reads and creates tensors of torch without its headers.
// Source: the DLPack specification, "Python Specification" and "C API"; the table is torch.Tensor.__dlpack_c_exchange_api__.
#pragma once

#include <cstdint>

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
