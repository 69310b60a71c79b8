#include "errors.hpp"

#include <cstdarg>
#include <iterator>

namespace dpmodule {
namespace {

struct ExceptionName {
    const char *module, *name;
};

// In the order of Kind. Modules are imported only when an error occurs.
constexpr ExceptionName exception_names[] = {
    {"dpmodule.native.errors", "FunctorError"},
    {"dpmodule.base", "ArgumentError"},
    {"dpmodule.base", "BoundsError"},
    {"dpmodule.base", "ShapeError"},
    {"dpmodule.base", "DTypeError"},
    {"dpmodule.base", "StateError"},
    {"dpmodule.base", "FileError"},
    {"dpmodule.base", "FileFormatError"},
};

PyObject *class_of(const ExceptionName &name) {
    PyObject *module = PyImport_ImportModule(name.module);
    if (!module) return nullptr;
    PyObject *type = PyObject_GetAttrString(module, name.name);
    Py_DECREF(module);
    return type;
}

PyObject *set_in(const ExceptionName &name, PyObject *text) {
    if (!text) return nullptr;
    if (PyObject *type = class_of(name)) {
        PyErr_SetObject(type, text);
        Py_DECREF(type);
    }
    Py_DECREF(text);
    return nullptr;
}

// A functor's text may be in any encoding; bytes that are not UTF-8 are replaced so that the error itself is shown.
PyObject *decode(const char *text) {
    return PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(strlen(text)), "replace");
}

}  // namespace

PyObject *set_error(Kind kind, const char *text) noexcept {
    auto index = static_cast<std::size_t>(kind);
    if (kind == Kind::memory && !*text) return PyErr_NoMemory();
    if (kind == Kind::memory) {
        PyObject *decoded = decode(text);
        if (decoded) PyErr_SetObject(PyExc_MemoryError, decoded);
        Py_XDECREF(decoded);
        return nullptr;
    }
    return set_in(exception_names[index < std::size(exception_names) ? index : 0], decode(text));
}

PyObject *set_error_format(Kind kind, const char *format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    PyObject *text = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    if (kind == Kind::memory) {
        Py_XDECREF(text);
        return PyErr_NoMemory();
    }
    return set_in(exception_names[static_cast<std::size_t>(kind)], text);
}

PyObject *set_named_error(const char *module, const char *name, const char *text) noexcept {
    return set_in({module, name}, decode(text));
}

PyObject *set_system_error(const std::system_error &error) noexcept {
    return set_in(exception_names[static_cast<std::size_t>(Kind::file)],
                  Py_BuildValue("(is)", error.code().value(), error.what()));
}

Kind describe_current_exception(std::string &text) noexcept {
    try {
        try {
            throw;
        } catch (const Error &error) {
            text = error.what();
            return error.kind();
        } catch (const std::bad_alloc &) {
            text.clear();
            return Kind::memory;
        } catch (const std::exception &error) {
            text = error.what();
        } catch (...) {
            text = "the functor threw something that is not a std::exception";
        }
        return Kind::functor;
    } catch (...) {  // no memory for the text
        text.clear();
        return Kind::memory;
    }
}

PyObject *set_current_exception() noexcept {
    try {
        throw;
    } catch (const std::system_error &error) {  // has an error number in addition to its text
        return set_system_error(error);
    } catch (...) {
    }
    std::string text;
    Kind kind = describe_current_exception(text);
    return set_error(kind, text.c_str());
}

PyObject *take_exception() noexcept {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

}  // namespace dpmodule
