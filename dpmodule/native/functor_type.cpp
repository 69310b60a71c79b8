#include "types.hpp"

#include <cstring>
#include <new>

#include "errors.hpp"

namespace dpmodule {

PyTypeObject *functor_type = nullptr;

namespace {

class Noop : public Functor {
  public:
    void operator()() override {}
    bool reentrant() const noexcept override { return true; }
};

void functor_dealloc(PyObject *self) {
    reinterpret_cast<FunctorObject *>(self)->functor.~shared_ptr();
    free_object(self);
}

PyObject *new_base(PyTypeObject *type, PyObject *, PyObject *) {
    return set_error_format(Kind::argument, "%s has no constructor; use the class or function that makes this functor",
                            type->tp_name);
}

PyObject *new_noop(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    if (PyTuple_GET_SIZE(arguments) || (keywords && PyDict_GET_SIZE(keywords))) {
        return PyErr_SetString(PyExc_TypeError, "NoopFunctor() takes no arguments"), nullptr;
    }
    try {
        return make_functor(type, std::make_shared<Noop>());
    } catch (...) {
        return set_current_exception();
    }
}

PyObject *functor_as_capsule(PyObject *self, PyObject *) {
    return make_capsule(reinterpret_cast<FunctorObject *>(self)->functor);
}

PyMethodDef functor_methods[] = {
    {"__dpmodule_functor__", functor_as_capsule, METH_NOARGS, "Return the functor as a capsule."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot functor_slots[] = {
    {Py_tp_dealloc, slot(functor_dealloc)},
    {Py_tp_new, slot(new_base)},
    {Py_tp_methods, functor_methods},
    {Py_tp_doc, const_cast<char *>("A job in C++ for a worker of a ThreadPool.")},
    {0, nullptr},
};
PyType_Spec functor_spec = {"dpmodule._native.Functor", sizeof(FunctorObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, functor_slots};

PyType_Slot noop_slots[] = {
    {Py_tp_new, slot(new_noop)},
    {Py_tp_doc, const_cast<char *>("A job that does nothing, for benchmarks; its result is None.")},
    {0, nullptr},
};
PyType_Spec noop_spec = {"dpmodule._native.NoopFunctor", sizeof(FunctorObject), 0, Py_TPFLAGS_DEFAULT, noop_slots};

}  // namespace

PyObject *make_functor(PyTypeObject *type, std::shared_ptr<Functor> functor) noexcept {
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    new (&reinterpret_cast<FunctorObject *>(self)->functor) std::shared_ptr<Functor>(std::move(functor));
    return self;
}

std::shared_ptr<Functor> functor_of(PyObject *object) noexcept {
    if (PyObject_TypeCheck(object, functor_type)) return reinterpret_cast<FunctorObject *>(object)->functor;
    std::shared_ptr<Functor> functor = functor_from(object);
    if (!functor && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        const char *name = PyCapsule_CheckExact(object) ? PyCapsule_GetName(object) : nullptr;
        if (name && std::strncmp(name, "dpmodule.functor.", 17) == 0) {
            set_error_format(Kind::argument,
                             "got a functor \"%.200s\", expected \"%s\": rebuild its extension with the "
                             "header of this dpmodule (dpmodule.get_include())",
                             name, functor_capsule);
            return functor;
        }
        set_error_format(Kind::argument,
                         "expected a functor: a capsule \"%s\" or an object whose __dpmodule_functor__() returns "
                         "one, got %.200s; for a Python function use asyncio.to_thread",
                         functor_capsule, Py_TYPE(object)->tp_name);
    }
    return functor;
}

int add_functor(PyObject *module) {
    functor_type = add_type(module, functor_spec);
    return functor_type && add_type(module, noop_spec, functor_type) ? 0 : -1;
}

}  // namespace dpmodule
