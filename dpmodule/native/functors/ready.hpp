// Shared parts of the built-in functors: delivery of their result, and the Python object that holds them.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "dpmodule/functor.h"
#include "errors.hpp"

namespace dpmodule {

// Functor whose work is a pure function of its constructor's arguments. Two calls may run concurrently, since their
// results are equal.
template <typename Result>
class Ready : public Functor {
  public:
    // `finish`, unless nullptr or None, converts the result's Python object to the returned one.
    explicit Ready(PyObject *finish = nullptr) : finish_(finish && finish != Py_None ? keep(finish) : nullptr) {}

    void operator()() final {
        auto made = std::make_shared<const Result>(work());
        std::lock_guard<std::mutex> guard(mutex_);
        made_.swap(made);  // the old result is destroyed after unlocking: it may need the GIL
    }

    bool reentrant() const noexcept final { return true; }

    PyObject *result() final {
        std::shared_ptr<const Result> made;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            made = made_;
        }
        PyObject *object = to_python(*made);
        if (!object || !finish_) return object;
        PyObject *finished = PyObject_CallOneArg(finish_.get(), object);
        Py_DECREF(object);
        return finished;
    }

  protected:
    virtual Result work() const = 0;  // without the GIL
    virtual PyObject *
    to_python(const Result &made) const = 0;  // with the GIL: a new reference, or nullptr and an exception

  private:
    std::shared_ptr<PyObject> finish_;
    std::mutex mutex_;
    std::shared_ptr<const Result> made_;
};

// Make the Python object of a functor: a new reference, or nullptr with an exception, also for an empty pointer.
PyObject *make_ready(std::shared_ptr<Functor> functor) noexcept;

// Make a Python object with a writable buffer over bytes whose owner permits writing.
PyObject *make_memory(Bytes bytes) noexcept;

// Make the Python object of the functor returned by `make()`; C++ exceptions become Python exceptions.
template <typename Make>
PyObject *ready_from(Make make) noexcept {
    try {
        return make_ready(make());
    } catch (...) {
        return set_current_exception();
    }
}

}  // namespace dpmodule
