// C++ exceptions as dpmodule's Python exceptions.
#pragma once

#include <system_error>

#include <dpmodule/functor.h>

namespace dpmodule {

// Set the Python exception of a kind; needs the GIL. Returns nullptr, for `return set_error(...)`.
PyObject *set_error(Kind kind, const char *text) noexcept;

// The same with a format of PyErr_Format.
PyObject *set_error_format(Kind kind, const char *format, ...) noexcept;

// Set a Python exception of dpmodule by the name of its module and its own; returns nullptr.
PyObject *set_named_error(const char *module, const char *name, const char *text) noexcept;

// Inside a catch block: what the exception is. Needs no GIL and does not throw.
Kind describe_current_exception(std::string &text) noexcept;

// Set FileError, an OSError, with an error number of the system; returns nullptr.
PyObject *set_system_error(const std::system_error &error) noexcept;

// Inside a catch block: set the exception's Python counterpart; needs the GIL. Returns nullptr.
PyObject *set_current_exception() noexcept;

// A method of Python whose C++ exceptions become Python's.
template <PyObject *(*method)(PyObject *, PyObject *)>
PyObject *guard(PyObject *self, PyObject *given) noexcept {
    try {
        return method(self, given);
    } catch (...) {
        return set_current_exception();
    }
}

}  // namespace dpmodule
