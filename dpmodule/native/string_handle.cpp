#include "types.hpp"

#include <cstring>
#include <structmember.h>

#include "errors.hpp"
#include "python.hpp"

namespace dpmodule {
namespace {

// The Python object. `source` is the Python object that owns the memory, if any. `bytes.owner`, which C++ shares, also
// holds it; here it serves `handle.source`, pickling of shared tensors, and the check whether a tensor's memory has
// moved, which is made if `tensor` is set.
struct Handle {
    PyObject_HEAD Bytes bytes;
    PyObject *source;
    const std::byte *base;  // start of the source's memory when the handle was made
    Py_hash_t hash;         // -1: not computed yet
    bool tensor;
    PyObject *weak;
};

PyTypeObject *handle_type = nullptr;
PyObject *data_ptr_name = nullptr;

Handle *as_handle(PyObject *object) noexcept { return reinterpret_cast<Handle *>(object); }

bool is_handle(PyObject *object) noexcept { return Py_TYPE(object) == handle_type; }

PyObject *allocate(Bytes bytes, PyObject *source, const std::byte *base, bool tensor) noexcept {
    PyObject *self = handle_type->tp_alloc(handle_type, 0);
    if (!self) return nullptr;
    Handle *handle = as_handle(self);
    new (&handle->bytes) Bytes(std::move(bytes));
    handle->source = Py_XNewRef(source);
    handle->base = base;
    handle->hash = -1;
    handle->tensor = tensor;
    return self;
}

// Get the current address of a tensor's memory; false with an exception. Callers of the buffer protocol may have an
// exception set (torch.frombuffer does). Methods must not be called with one, so it is saved and restored.
bool tensor_address(PyObject *tensor, const void *&now) noexcept {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *address = PyObject_CallMethodNoArgs(tensor, data_ptr_name);
    now = address ? PyLong_AsVoidPtr(address) : nullptr;
    Py_XDECREF(address);
    if (!PyErr_Occurred()) {
        PyErr_Restore(type, value, traceback);
        return true;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return false;
}

// Return true if the memory may be read: a tensor releases it when resized or moved into shared memory.
bool readable(Handle *handle) noexcept {
    if (!handle->tensor) return true;
    const void *now;
    if (!tensor_address(handle->source, now)) return false;
    if (now == handle->base) return true;
    PyErr_Clear();  // see above
    set_error(Kind::state,
              "StringHandle: its tensor's memory has moved since (share_memory_, resize_ or set_ was called); make the "
              "handle afterwards");
    return false;
}

// Get address and size of a tensor's memory from dpmodule.native.string_handle.tensor_memory.
bool tensor_bytes(PyObject *object, Bytes &out) {
    PyObject *module = PyImport_ImportModule("dpmodule.native.string_handle");
    if (!module) return false;
    PyObject *found = PyObject_CallMethod(module, "tensor_memory", "O", object);
    Py_DECREF(module);
    if (!found) return false;
    unsigned long long address;
    Py_ssize_t size;
    const bool fine = PyArg_ParseTuple(found, "Kn", &address, &size);
    Py_DECREF(found);
    if (!fine) return false;
    out = {reinterpret_cast<const std::byte *>(static_cast<std::uintptr_t>(address)), static_cast<std::size_t>(size),
           keep(object)};
    return true;
}

bool buffer_bytes(PyObject *object, Bytes &out) {
    if (bytes_from(object, out)) return true;
    // Exporters raise these for an array that is not contiguous.
    if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        set_error_format(Kind::argument, "StringHandle: data is a %.200s that is not contiguous",
                         Py_TYPE(object)->tp_name);
    }
    return false;
}

// Object that a handle must keep as its source.
enum class Held { failed, nothing, object, tensor };

Held hold(PyObject *object, Bytes &out) {
    if (is_handle(object)) {
        if (!readable(as_handle(object))) return Held::failed;
        out = as_handle(object)->bytes;
        return as_handle(object)->source ? Held::object : Held::nothing;
    }
    if (PyBytes_CheckExact(object)) {
        out = {reinterpret_cast<const std::byte *>(PyBytes_AS_STRING(object)),
               static_cast<std::size_t>(PyBytes_GET_SIZE(object)), keep(object)};
        return Held::object;
    }
    if (PyCapsule_CheckExact(object)) return bytes_from(object, out) ? Held::nothing : Held::failed;
    if (PyObject_CheckBuffer(object)) return buffer_bytes(object, out) ? Held::object : Held::failed;
    if (PyObject_HasAttrString(reinterpret_cast<PyObject *>(Py_TYPE(object)), "__dpmodule_bytes__")) {
        return bytes_from(object, out) ? Held::nothing : Held::failed;
    }
    return tensor_bytes(object, out) ? Held::tensor : Held::failed;
}

PyObject *handle_over(PyObject *object) {
    Bytes bytes;
    const Held held = hold(object, bytes);
    if (held == Held::failed) return nullptr;
    if (is_handle(object)) return Py_NewRef(object);  // immutable, so a copy is not needed
    const std::byte *base = bytes.data;
    return allocate(std::move(bytes), held == Held::nothing ? nullptr : object, base, held == Held::tensor);
}

PyObject *handle_new(PyTypeObject *, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"data", nullptr};
    PyObject *data;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:StringHandle", const_cast<char **>(names), &data)) return nullptr;
    try {
        return handle_over(data);
    } catch (...) {
        return set_current_exception();
    }
}

void handle_dealloc(PyObject *self) {
    Handle *handle = as_handle(self);
    if (handle->weak) PyObject_ClearWeakRefs(self);
    handle->bytes.~Bytes();
    Py_XDECREF(handle->source);
    free_object(self);
}

int handle_buffer(PyObject *self, Py_buffer *view, int flags) {
    Handle *handle = as_handle(self);
    if (!readable(handle)) {
        view->obj = nullptr;
        return -1;
    }
    void *memory = const_cast<std::byte *>(handle->bytes.data);
    static char nothing;  // a view of no bytes still has an address
    return PyBuffer_FillInfo(view, self, memory ? memory : &nothing, static_cast<Py_ssize_t>(handle->bytes.size), 1,
                             flags);
}

Py_ssize_t handle_length(PyObject *self) { return static_cast<Py_ssize_t>(as_handle(self)->bytes.size); }

PyObject *handle_item(PyObject *self, Py_ssize_t index) {
    Handle *handle = as_handle(self);
    if (index < 0 || index >= handle_length(self)) {
        return set_error_format(Kind::bounds, "StringHandle: index %zd is outside of its %zd bytes", index,
                                handle_length(self));
    }
    if (!readable(handle)) return nullptr;
    return PyLong_FromLong(handle->bytes.begin()[index]);
}

PyObject *handle_slice(PyObject *self, PyObject *slice) {
    Handle *handle = as_handle(self);
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return nullptr;
    if (step != 1) {
        return set_error_format(Kind::argument,
                                "StringHandle: a slice with step %zd would be a copy; write bytes(handle)[...] for one",
                                step);
    }
    const Py_ssize_t count = PySlice_AdjustIndices(handle_length(self), &start, &stop, 1);
    if (!readable(handle)) return nullptr;
    Bytes part = handle->bytes.slice(static_cast<std::size_t>(start), static_cast<std::size_t>(count));
    return allocate(std::move(part), handle->source, handle->base, handle->tensor);
}

PyObject *handle_subscript(PyObject *self, PyObject *key) {
    if (PySlice_Check(key)) return handle_slice(self, key);
    Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred()) return nullptr;
    return handle_item(self, index < 0 ? index + handle_length(self) : index);
}

// Iteration and other protocols that this type delegates to a memoryview.
PyObject *handle_iter(PyObject *self) {
    PyObject *view = PyMemoryView_FromObject(self);
    if (!view) return nullptr;
    PyObject *iterator = PyObject_GetIter(view);
    Py_DECREF(view);
    return iterator;
}

int contains_byte(const Bytes &bytes, PyObject *object) {
    const long byte = PyLong_AsLong(object);
    if (byte == -1 && PyErr_Occurred()) PyErr_Clear();  // does not fit a long, so it is not a byte
    else if (byte >= 0 && byte < 256) return bytes.size && std::memchr(bytes.data, static_cast<int>(byte), bytes.size);
    set_error(Kind::argument, "StringHandle: only integers from 0 to 255 can be bytes of it");
    return -1;
}

int handle_contains(PyObject *self, PyObject *object) {
    Handle *handle = as_handle(self);
    if (!readable(handle)) return -1;
    if (PyLong_Check(object)) return contains_byte(handle->bytes, object);
    Py_buffer other;
    if (PyObject_GetBuffer(object, &other, PyBUF_SIMPLE) < 0) return -1;
    const std::string_view part(static_cast<const char *>(other.buf), static_cast<std::size_t>(other.len));
    const bool found = handle->bytes.text().find(part) != std::string_view::npos;
    PyBuffer_Release(&other);
    return found;
}

PyObject *handle_compare(PyObject *self, PyObject *other, int how) {
    if ((how != Py_EQ && how != Py_NE) || !PyObject_CheckBuffer(other)) Py_RETURN_NOTIMPLEMENTED;
    Handle *handle = as_handle(self);
    if (!readable(handle)) return nullptr;
    Py_buffer view;
    if (PyObject_GetBuffer(other, &view, PyBUF_SIMPLE) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_BufferError)) return nullptr;
        PyErr_Clear();  // not contiguous: not like bytes
        Py_RETURN_NOTIMPLEMENTED;
    }
    const auto size = static_cast<std::size_t>(view.len);
    const bool equal = size == handle->bytes.size && (size == 0 || view.buf == handle->bytes.data ||
                                                      std::memcmp(view.buf, handle->bytes.data, size) == 0);
    PyBuffer_Release(&view);
    return PyBool_FromLong(equal == (how == Py_EQ));
}

Py_hash_t handle_hash(PyObject *self) {
    Handle *handle = as_handle(self);
    if (handle->hash != -1) return handle->hash;
    if (!readable(handle)) return -1;
#if PY_VERSION_HEX >= 0x030E0000
    const Py_hash_t hash = Py_HashBuffer(handle->bytes.data, handle_length(self));
#else  // like hash(bytes), whose function is hidden in Python 3.13
    const Py_ssize_t size = handle_length(self);
    Py_hash_t hash = size ? PyHash_GetFuncDef()->hash(handle->bytes.data, size) : 0;
    if (hash == -1) hash = -2;
#endif
    const bool constant = !handle->source || PyBytes_CheckExact(handle->source);
    if (constant) handle->hash = hash;
    return hash;
}

PyObject *handle_repr(PyObject *self) {
    constexpr Py_ssize_t shown = 16;
    Handle *handle = as_handle(self);
    if (!readable(handle)) return nullptr;
    const Py_ssize_t size = handle_length(self);
    PyObject *head =
        PyBytes_FromStringAndSize(reinterpret_cast<const char *>(handle->bytes.data), size < shown ? size : shown);
    if (!head) return nullptr;
    PyObject *text = size <= shown ? PyUnicode_FromFormat("StringHandle(%R)", head)
                                   : PyUnicode_FromFormat("<StringHandle %R... of %zd bytes>", head, size);
    Py_DECREF(head);
    return text;
}

PyObject *handle_reduce(PyObject *self, PyObject *) {
    PyObject *value = PyBytes_FromObject(self);
    return value ? Py_BuildValue("O(N)", handle_type, value) : nullptr;
}

PyObject *handle_capsule(PyObject *self, PyObject *) {
    return readable(as_handle(self)) ? make_capsule(as_handle(self)->bytes) : nullptr;
}

PyObject *handle_offset(PyObject *self, void *) {
    return PyLong_FromSsize_t(as_handle(self)->bytes.data - as_handle(self)->base);
}

PyMethodDef handle_methods[] = {
    {"__reduce__", handle_reduce, METH_NOARGS, "Pickle by value; multiprocessing passes handles by shared memory."},
    {"__dpmodule_bytes__", handle_capsule, METH_NOARGS, "Return the capsule that passes the bytes to C++."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef handle_members[] = {
    {"source", T_OBJECT, offsetof(Handle, source), READONLY, "Object that owns the memory; None for a C++ string."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Handle, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef handle_properties[] = {
    {"offset", handle_offset, nullptr, "Offset of the first byte in the memory of its source.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot handle_slots[] = {
    {Py_tp_doc,
     const_cast<char *>("See dpmodule.native.string_handle; dpmodule.streams replaces this text by its docstring.")},
    {Py_tp_new, slot(handle_new)},
    {Py_tp_dealloc, slot(handle_dealloc)},
    {Py_tp_repr, slot(handle_repr)},
    {Py_tp_hash, slot(handle_hash)},
    {Py_tp_richcompare, slot(handle_compare)},
    {Py_tp_iter, slot(handle_iter)},
    {Py_tp_methods, handle_methods},
    {Py_tp_members, handle_members},
    {Py_tp_getset, handle_properties},
    {Py_mp_length, slot(handle_length)},
    {Py_mp_subscript, slot(handle_subscript)},
    {Py_sq_length, slot(handle_length)},
    {Py_sq_item, slot(handle_item)},
    {Py_sq_contains, slot(handle_contains)},
    {Py_bf_getbuffer, slot(handle_buffer)},
    {0, nullptr},
};

PyType_Spec handle_spec = {"dpmodule.streams.StringHandle", sizeof(Handle), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_SEQUENCE,
                           handle_slots};

}  // namespace

PyObject *make_handle(Bytes bytes) noexcept {
    const std::byte *base = bytes.data;
    return allocate(std::move(bytes), nullptr, base, false);
}

bool bytes_of_any(PyObject *object, Bytes &out) noexcept {
    try {
        return hold(object, out) != Held::failed;
    } catch (...) {
        set_current_exception();
        return false;
    }
}

int add_string_handle(PyObject *module) {
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    if (!data_ptr_name) return -1;
    handle_type = add_type(module, handle_spec);
    return handle_type ? 0 : -1;
}

}  // namespace dpmodule
