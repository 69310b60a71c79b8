#include "ready.hpp"

#include <string>

#include "errors.hpp"
#include "functor_type.hpp"
#include "python.hpp"

namespace dpmodule {
namespace {

// A Python object with a writable buffer.
struct MemoryObject {
    PyObject_HEAD Bytes bytes;
};

PyTypeObject *ready_type = nullptr, *memory_type = nullptr;

void memory_dealloc(PyObject *self) {
    reinterpret_cast<MemoryObject *>(self)->bytes.~Bytes();
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *ready_run(PyObject *self, PyObject *) {
    Functor &functor = *reinterpret_cast<FunctorObject *>(self)->functor;
    bool failed = false;
    Kind kind{};
    std::string text;
    Py_BEGIN_ALLOW_THREADS;
    try {
        functor();
    } catch (...) {
        kind = describe_current_exception(text);
        failed = true;
    }
    Py_END_ALLOW_THREADS;
    if (failed) return set_error(kind, text.c_str());
    return functor.result();
}

int memory_buffer(PyObject *self, Py_buffer *view, int flags) {
    const Bytes &bytes = reinterpret_cast<MemoryObject *>(self)->bytes;
    void *memory = const_cast<std::byte *>(bytes.data);
    static char nothing;  // a view of no bytes still has an address
    return PyBuffer_FillInfo(view, self, memory ? memory : &nothing, static_cast<Py_ssize_t>(bytes.size), 0, flags);
}

PyMethodDef ready_methods[] = {
    {"run", ready_run, METH_NOARGS, "Do the work in this thread, without the GIL, and return the result."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot ready_slots[] = {
    {Py_tp_doc, const_cast<char *>("A functor that dpmodule brings along; see dpmodule.streams.functors.")},
    {Py_tp_methods, ready_methods},
    {0, nullptr},
};

PyType_Slot memory_slots[] = {
    {Py_tp_doc, const_cast<char *>("Memory that a functor made, as a writable buffer.")},
    {Py_tp_dealloc, reinterpret_cast<void *>(memory_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void *>(memory_buffer)},
    {0, nullptr},
};

constexpr unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
PyType_Spec ready_spec = {"dpmodule._native.ReadyFunctor", sizeof(FunctorObject), 0, flags, ready_slots};
PyType_Spec memory_spec = {"dpmodule._native.Memory", sizeof(MemoryObject), 0, flags, memory_slots};

int add_type(PyObject *module, PyType_Spec &spec, PyTypeObject *base, const char *name, PyTypeObject *&type) {
    type = reinterpret_cast<PyTypeObject *>(PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject *>(base)));
    return type ? PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject *>(type)) : -1;
}

}  // namespace

PyObject *make_ready(std::shared_ptr<Functor> functor) noexcept {
    if (!functor) return nullptr;  // an exception is set
    return make_functor(ready_type, std::move(functor));
}

PyObject *make_memory(Bytes bytes) noexcept {
    PyObject *self = memory_type->tp_alloc(memory_type, 0);
    if (self) new (&reinterpret_cast<MemoryObject *>(self)->bytes) Bytes(std::move(bytes));
    return self;
}

PyObject *ready_failed() noexcept { return set_current_exception(); }

int add_ready(PyObject *module) {
    if (add_type(module, ready_spec, functor_type, "ReadyFunctor", ready_type) < 0) return -1;
    return add_type(module, memory_spec, nullptr, "Memory", memory_type);
}

}  // namespace dpmodule
