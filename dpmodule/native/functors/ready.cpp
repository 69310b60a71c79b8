#include "ready.hpp"

#include <string>

#include "errors.hpp"
#include "types.hpp"
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
    free_object(self);
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
    {Py_tp_doc, const_cast<char *>("A built-in functor; see dpmodule.streams.functors.")},
    {Py_tp_methods, ready_methods},
    {0, nullptr},
};

PyType_Slot memory_slots[] = {
    {Py_tp_doc, const_cast<char *>("Memory that a functor made, as a writable buffer.")},
    {Py_tp_dealloc, slot(memory_dealloc)},
    {Py_bf_getbuffer, slot(memory_buffer)},
    {0, nullptr},
};

constexpr unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
PyType_Spec ready_spec = {"dpmodule._native.ReadyFunctor", sizeof(FunctorObject), 0, flags, ready_slots};
PyType_Spec memory_spec = {"dpmodule._native.Memory", sizeof(MemoryObject), 0, flags, memory_slots};

// Functor that calls Python, for work whose library is missing: slower and with the GIL, but with the same interface.
class Callback final : public Functor {
  public:
    explicit Callback(PyObject *function) : function_(keep(function)) {}

    void operator()() override {
        if (finalizing()) throw Error(Kind::state, "Python is ending");
        PyGILState_STATE state = PyGILState_Ensure();
        PyObject *result = PyObject_CallNoArgs(function_.get());
        Py_XSETREF(error_, result ? nullptr : take_exception());
        Py_XSETREF(result_, result);
        PyGILState_Release(state);
    }

    PyObject *result() override {
        if (result_) return Py_NewRef(result_);
        if (error_) PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error_)), error_);
        return nullptr;
    }

    ~Callback() override {
        Py_XDECREF(result_);
        Py_XDECREF(error_);
    }

  private:
    const std::shared_ptr<PyObject> function_;
    PyObject *result_ = nullptr, *error_ = nullptr;  // read and written with the GIL
};

PyObject *make_callback(PyObject *, PyObject *function) { return make_ready(std::make_shared<Callback>(function)); }

PyMethodDef callback_functions[] = {
    {"callback", guard<make_callback>, METH_O, "callback(function): a functor that calls a function of Python."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject *make_ready(std::shared_ptr<Functor> functor) noexcept { return make_functor(ready_type, std::move(functor)); }

PyObject *make_memory(Bytes bytes) noexcept {
    PyObject *self = memory_type->tp_alloc(memory_type, 0);
    if (self) new (&reinterpret_cast<MemoryObject *>(self)->bytes) Bytes(std::move(bytes));
    return self;
}

int add_ready(PyObject *module) {
    ready_type = add_type(module, ready_spec, functor_type);
    memory_type = add_type(module, memory_spec);
    return ready_type && memory_type ? PyModule_AddFunctions(module, callback_functions) : -1;
}

}  // namespace dpmodule
