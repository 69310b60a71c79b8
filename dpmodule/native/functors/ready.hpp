// What the ready-made functors have in common: how they give their result, and the Python object that carries them.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "dpmodule/functor.h"
#include "errors.hpp"

namespace dpmodule {

// A functor whose work is a pure function of what it was made with. Two calls of it may run at the same time in two
// threads; either result is as good as the other.
template <typename Result>
class Ready : public Functor {
  public:
    // `finish`, unless it is nullptr or None, turns the result's Python object into the one that is returned.
    explicit Ready(PyObject *finish = nullptr) : finish_(finish && finish != Py_None ? keep(finish) : nullptr) {}

    void operator()() final {
        auto made = std::make_shared<const Result>(work());
        std::lock_guard<std::mutex> guard(mutex_);
        made_.swap(made);  // what was there goes when the lock is open again: it may need the GIL
    }

    bool reentrant() const noexcept final { return true; }

    PyObject *result() final {
        std::shared_ptr<const Result> made;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            made = made_;
        }
        PyObject *given = give(*made);
        if (!given || !finish_) return given;
        PyObject *finished = PyObject_CallOneArg(finish_.get(), given);
        Py_DECREF(given);
        return finished;
    }

  protected:
    virtual Result work() const = 0;                       // without the GIL
    virtual PyObject *give(const Result &made) const = 0;  // with the GIL: a new reference, or nullptr and an exception

  private:
    std::shared_ptr<PyObject> finish_;
    std::mutex mutex_;
    std::shared_ptr<const Result> made_;
};

// Make the Python object of a functor: a new reference, or nullptr with an exception set, also for an empty pointer.
PyObject *make_ready(std::shared_ptr<Functor> functor) noexcept;

// Make a Python object with a writable buffer over bytes whose owner takes writing.
PyObject *make_memory(Bytes bytes) noexcept;

// Make the functor `make()` returns into its Python object; exceptions become Python's.
template <typename Make>
PyObject *ready_from(Make make) noexcept {
    try {
        return make_ready(make());
    } catch (...) {
        return set_current_exception();
    }
}

}  // namespace dpmodule
