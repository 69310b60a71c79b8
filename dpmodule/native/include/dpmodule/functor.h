// C++ jobs for dpmodule.streams.ThreadPool: the interface for extensions that define functors.
//
// This header needs only Python.h and C++17; pass -I with dpmodule.get_include() to the compiler.
// A functor reaches Python as a capsule that holds a shared pointer, so any binding tool works:
//
//     class Sum : public dpmodule::Functor {
//     public:
//         explicit Sum(dpmodule::Bytes bytes) : bytes_(std::move(bytes)) {}
//         void operator()() override { for (unsigned char byte : bytes_) sum_ += byte; }        // in a pool's thread
//         PyObject *result() override { return PyLong_FromUnsignedLongLong(sum_); }             // in the loop's thread
//     private:
//         dpmodule::Bytes bytes_;
//         unsigned long long sum_ = 0;
//     };
//
//     PyObject *sum(PyObject *, PyObject *argument) {                       // Python: await worker(extension.sum(b"..."))
//         dpmodule::Bytes bytes;
//         if (!dpmodule::bytes_from(argument, bytes)) return nullptr;
//         return dpmodule::make_capsule(std::make_shared<Sum>(std::move(bytes)));
//     }
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

// Exceptions and functors cross shared libraries, so their types must be identical in all of them.
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

namespace dpmodule {

// Capsule names. The number increases when the layout of Functor or Bytes changes, so that old extensions are refused.
inline constexpr const char *functor_capsule = "dpmodule.functor.v2";
inline constexpr const char *bytes_capsule = "dpmodule.bytes.v1";

// A job. It is created and destroyed with the GIL held; only operator() runs without it.
//
// A functor runs in one thread at a time: any worker called with a functor that is still in flight raises StateError. So
// operator() and result() need no lock. A functor may be sent again once its future has a result or exception or, if the
// future was cancelled, once operator() has returned. Make two functors to run the same work concurrently.
class Functor {
  public:
    Functor() = default;
    Functor(const Functor &) = delete;
    Functor &operator=(const Functor &) = delete;
    virtual ~Functor() = default;

    // Do the work: once per call of the worker, in a thread of the pool, without the GIL. Do not touch Python objects
    // here, not even a reference count. C++ exceptions become Python exceptions: Error that of its kind, std::bad_alloc
    // MemoryError, all others FunctorError.
    virtual void operator()() = 0;

    // Return the value of `await`: a new reference, or nullptr with a Python exception. Runs in the event loop's thread
    // with the GIL after operator() has returned, unless the future was cancelled. Keep it short.
    virtual PyObject *result() { Py_RETURN_NONE; }

    // Return true if operator() may run in several threads concurrently, since it locks its writes or makes none; result()
    // then returns the result of any of them. Such a functor may be sent while it is in flight.
    virtual bool reentrant() const noexcept { return false; }

  private:
    friend class Flight;  // internal to dpmodule; holds the GIL
    unsigned flight_ = 0;
};

// Kinds of errors, each with its Python exception.
enum class Kind : int {
    functor,      // FunctorError
    argument,     // ArgumentError, a ValueError
    bounds,       // BoundsError, an IndexError
    shape,        // ShapeError, a ValueError
    dtype,        // DTypeError, a TypeError
    state,        // StateError
    file,         // FileError, an OSError
    file_format,  // FileFormatError, a ValueError
    memory,       // MemoryError
};

// C++ exception that Python receives as the exception of its kind, with this text (UTF-8).
class Error : public std::runtime_error {
  public:
    Error(Kind kind, const std::string &text) : std::runtime_error(text), kind_(kind) {}
    Kind kind() const noexcept { return kind_; }

  private:
    Kind kind_;
};

// View of bytes that `owner` keeps alive; copied and passed by value.
struct Bytes {
    const std::byte *data = nullptr;
    std::size_t size = 0;
    std::shared_ptr<const void> owner;

    const unsigned char *begin() const noexcept { return reinterpret_cast<const unsigned char *>(data); }
    const unsigned char *end() const noexcept { return begin() + size; }
    std::string_view text() const noexcept { return {reinterpret_cast<const char *>(data), size}; }

    // View of `count` bytes from `from` on; the caller checks the bounds.
    Bytes slice(std::size_t from, std::size_t count) const { return {data + from, count, owner}; }
};

// Make bytes that own a string.
inline Bytes bytes_of(std::string text) {
    auto owner = std::make_shared<const std::string>(std::move(text));
    return {reinterpret_cast<const std::byte *>(owner->data()), owner->size(), owner};
}

// Return true if Python is finalizing; the GIL must then not be requested.
inline bool finalizing() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
    return !Py_IsInitialized() || Py_IsFinalizing();
#else
    return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

// Call `release` with the GIL, whether this thread has it or not. Skipped while Python finalizes, when a leak is harmless.
template <typename Release>
void with_gil(Release release) noexcept {
    if (finalizing()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    release();
    PyGILState_Release(state);
}

// Keep a Python object alive by a shared pointer that any thread may drop. Takes a new reference; needs the GIL. Throws
// std::bad_alloc.
inline std::shared_ptr<PyObject> keep(PyObject *object) {
    Py_INCREF(object);  // the deleter releases it, also if constructing the pointer fails
    return {object, [](PyObject *kept) { with_gil([kept] { Py_DECREF(kept); }); }};
}

namespace detail {

template <typename Value>
PyObject *wrap(Value value, const char *name) noexcept {
    Value *held = new (std::nothrow) Value(std::move(value));
    if (!held) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(held, name, [](PyObject *self) {
        delete static_cast<Value *>(PyCapsule_GetPointer(self, PyCapsule_GetName(self)));
    });
    if (!capsule) delete held;
    return capsule;
}

// Copy a capsule's value out of `object`, which is the capsule or has a method that returns it.
// Returns 1; 0 if it is neither; -1 with an exception set.
template <typename Value>
int unwrap(PyObject *object, const char *name, const char *method, Value &out) {
    PyObject *capsule;
    if (PyCapsule_CheckExact(object)) {
        capsule = Py_NewRef(object);
    } else {
        if (!PyObject_HasAttrString(reinterpret_cast<PyObject *>(Py_TYPE(object)), method)) return 0;
        capsule = PyObject_CallMethod(object, method, nullptr);
        if (!capsule) return -1;
    }
    int found = PyCapsule_IsValid(capsule, name) ? 1 : 0;
    if (found) out = *static_cast<Value *>(PyCapsule_GetPointer(capsule, name));
    Py_DECREF(capsule);
    return found;
}

}  // namespace detail

// Make the capsule of a functor: a new reference, or nullptr with an exception. Needs the GIL, as do all functions below.
inline PyObject *make_capsule(std::shared_ptr<Functor> functor) noexcept {
    return detail::wrap(std::move(functor), functor_capsule);
}

// Return the functor of a capsule, or of an object whose method __dpmodule_functor__() returns one.
// Returns an empty pointer with an exception if there is none.
inline std::shared_ptr<Functor> functor_from(PyObject *object) {
    std::shared_ptr<Functor> functor;
    int found = detail::unwrap(object, functor_capsule, "__dpmodule_functor__", functor);
    if (found == 0) {
        PyErr_Format(PyExc_TypeError,
                     "expected a functor (a capsule %s or an object with __dpmodule_functor__()), got %.200s",
                     functor_capsule, Py_TYPE(object)->tp_name);
    }
    return functor;
}

// Make the capsule of bytes: a new reference, or nullptr with an exception set.
inline PyObject *make_capsule(Bytes bytes) noexcept { return detail::wrap(std::move(bytes), bytes_capsule); }

// Make a dpmodule.streams.StringHandle over bytes, which Python reads without copying: a new reference, or nullptr with an
// exception. Use it in `result()` to return bytes.
inline PyObject *handle_of(Bytes bytes) noexcept {
    PyObject *capsule = make_capsule(std::move(bytes));
    PyObject *module = capsule ? PyImport_ImportModule("dpmodule.streams") : nullptr;
    PyObject *handle = module ? PyObject_CallMethod(module, "StringHandle", "O", capsule) : nullptr;
    Py_XDECREF(module);
    Py_XDECREF(capsule);
    return handle;
}

// Fill `out` without copying from a capsule, an object whose method __dpmodule_bytes__() returns one (StringHandle), or
// any contiguous buffer (bytes, bytearray, memoryview, NumPy array). Returns false with an exception set.
inline bool bytes_from(PyObject *object, Bytes &out) {
    int found = detail::unwrap(object, bytes_capsule, "__dpmodule_bytes__", out);
    if (found != 0) return found > 0;
    auto view = std::unique_ptr<Py_buffer>(new (std::nothrow) Py_buffer());
    if (!view) return PyErr_NoMemory(), false;
    if (PyObject_GetBuffer(object, view.get(), PyBUF_SIMPLE) < 0) return false;
    auto release = [](Py_buffer *held) {
        with_gil([held] {
            PyBuffer_Release(held);
            delete held;
        });
    };
    try {
        std::shared_ptr<Py_buffer> owner(view.release(), release);  // calls `release` itself if it throws
        out = {static_cast<const std::byte *>(owner->buf), static_cast<std::size_t>(owner->len), owner};
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory(), false;
    }
    return true;
}

}  // namespace dpmodule

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
