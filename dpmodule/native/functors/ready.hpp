// Shared parts of the built-in functors: delivery of their result, and the Python object that holds them.
#pragma once

#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "dpmodule/functor.h"
#include "errors.hpp"

namespace dpmodule {

// Functor from a pure function, which runs without the GIL, and the conversion of its result to a new reference, or to
// nullptr with an exception. Two calls may run concurrently, since their results are equal.
template <class Work, class Convert>
class Ready final : public Functor {
  public:
    // `finish`, unless nullptr or None, converts the result's Python object to the returned one.
    Ready(Work work, Convert to_python, PyObject *finish)
        : work_(std::move(work)), to_python_(to_python), finish_(finish && finish != Py_None ? keep(finish) : nullptr) {
    }

    void operator()() override {
        auto made = std::make_shared<const Result>(work_());
        std::lock_guard<std::mutex> guard(mutex_);
        made_.swap(made);  // the old result is destroyed after unlocking: it may need the GIL
    }

    bool reentrant() const noexcept override { return true; }

    PyObject *result() override {
        std::shared_ptr<const Result> made;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            made = made_;
        }
        PyObject *object = to_python_(*made);
        if (!object || !finish_) return object;
        PyObject *finished = PyObject_CallOneArg(finish_.get(), object);
        Py_DECREF(object);
        return finished;
    }

  private:
    using Result = std::invoke_result_t<const Work &>;

    const Work work_;
    const Convert to_python_;
    const std::shared_ptr<PyObject> finish_;
    std::mutex mutex_;
    std::shared_ptr<const Result> made_;
};

// Make the Python object of a functor: a new reference, or nullptr with an exception.
PyObject *make_ready(std::shared_ptr<Functor> functor) noexcept;

// Make a Python object with a writable buffer over bytes whose owner permits writing.
PyObject *make_memory(Bytes bytes) noexcept;

// Make the Python object of a `Ready`.
template <class Work, class Convert>
PyObject *ready_from(Work work, Convert to_python, PyObject *finish = nullptr) {
    return make_ready(std::make_shared<Ready<Work, Convert>>(std::move(work), to_python, finish));
}

}  // namespace dpmodule
