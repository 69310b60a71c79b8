// Translation of C++ exceptions to dpmodule's Python exceptions.
#pragma once

#include <system_error>

#include <dpmodule/functor.h>

namespace dpmodule {

// Set the Python exception of a kind; needs the GIL. Returns nullptr, for `return set_error(...)`.
PyObject *set_error(Kind kind, const char *text) noexcept;

// Like set_error, with a format of PyErr_Format.
PyObject *set_error_format(Kind kind, const char *format, ...) noexcept;

// Set a dpmodule exception by module and class name; returns nullptr.
PyObject *set_named_error(const char *module, const char *name, const char *text) noexcept;

// Inside a catch block: return the kind of the exception and store its text. Needs no GIL and does not throw.
Kind describe_current_exception(std::string &text) noexcept;

// Set FileError, an OSError, with the error number of the system; returns nullptr.
PyObject *set_system_error(const std::system_error &error) noexcept;

// Inside a catch block: set the exception's Python counterpart; needs the GIL. Returns nullptr.
PyObject *set_current_exception() noexcept;

// Take the current exception, normalized and with its traceback, and clear it. Needs the GIL.
PyObject *take_exception() noexcept;

// Python method that translates the C++ exceptions of `method`.
template <PyObject *(*method)(PyObject *, PyObject *)>
PyObject *guard(PyObject *self, PyObject *given) noexcept {
    try {
        return method(self, given);
    } catch (...) {
        return set_current_exception();
    }
}

}  // namespace dpmodule
