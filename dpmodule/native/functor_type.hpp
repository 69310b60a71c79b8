// dpmodule._native.Functor: a functor as a Python object. It saves making a capsule for every call.
#pragma once

#include <memory>

#include "python.hpp"
#include <dpmodule/functor.h>

namespace dpmodule {

struct FunctorObject {
    PyObject_HEAD std::shared_ptr<Functor> functor;
};

// The type; subclasses of it only say how a functor is made.
extern PyTypeObject *functor_type;

// Make an object of `type`, functor_type or a subclass, around a functor. A new reference, or nullptr with an exception.
PyObject *make_functor(PyTypeObject *type, std::shared_ptr<Functor> functor) noexcept;

// The functor of whatever a worker is called with; empty with an ArgumentError set if it is none.
std::shared_ptr<Functor> functor_of(PyObject *object) noexcept;

}  // namespace dpmodule
