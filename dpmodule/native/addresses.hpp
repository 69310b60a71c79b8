// Helpers for functions that take tensors as addresses. Python has checked their shapes, types and strides and keeps the
// tensors alive.
#pragma once

#include <new>
#include <tuple>
#include <type_traits>

#include "python.hpp"

namespace dpmodule {

// Reader of positional arguments. The first invalid one sets a Python exception; the remaining ones read as 0.
class Arguments {
  public:
    Arguments(PyObject *const *given, Py_ssize_t count, Py_ssize_t expected) : given_(given), good_(count == expected) {
        if (!good_) PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, count);
    }

    // Read sizes, numbers, addresses, arrays of them, and records whose `fields` lists the members in argument order.
    template <class... Fields>
    bool read(Fields &...to) {
        (read_one(to), ...);
        return good_;
    }

    // Number of arguments that a field takes.
    template <class Field>
    static constexpr Py_ssize_t count_of() {
        if constexpr (std::is_array_v<Field>) return std::extent_v<Field> * count_of<std::remove_extent_t<Field>>();
        else if constexpr (std::is_class_v<Field>)
            return count_in(static_cast<decltype(fields(std::declval<Field &>())) *>(nullptr));
        else return 1;
    }

  private:
    template <class... Fields>
    static constexpr Py_ssize_t count_in(std::tuple<Fields &...> *) {
        return (0 + ... + count_of<Fields>());
    }

    template <class Field>
    void read_one(Field &to) {
        if constexpr (std::is_array_v<Field>) {
            for (auto &each : to) read_one(each);
        } else if constexpr (std::is_class_v<Field>) {
            std::apply([this](auto &...each) { read(each...); }, fields(to));
        } else if (!good_) {
            to = {};
        } else if constexpr (std::is_pointer_v<Field>) {
            to = static_cast<Field>(PyLong_AsVoidPtr(*given_++));
            good_ = to || !PyErr_Occurred();
        } else if constexpr (std::is_floating_point_v<Field>) {
            to = PyFloat_AsDouble(*given_++);
            good_ = to != -1.0 || !PyErr_Occurred();
        } else {
            const Py_ssize_t found = PyLong_AsSsize_t(*given_++);
            to = static_cast<Field>(found);
            good_ = found != -1 || !PyErr_Occurred();
        }
    }

    PyObject *const *given_;
    bool good_;
};

// Run a function that does not use Python; it throws std::bad_alloc or returns false if it runs out of memory.
template <class Run, class Record>
PyObject *without_gil(const Run &function, const Record &record) {
    bool done = true;
    Py_BEGIN_ALLOW_THREADS
    try {
        if constexpr (std::is_void_v<decltype(function(record))>) function(record);
        else done = function(record);
    } catch (const std::bad_alloc &) {
        done = false;
    }
    Py_END_ALLOW_THREADS
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

// Python function that reads a record and runs `function` on it without the GIL.
template <auto function>
struct Call;
template <class Result, class Record, Result (*function)(const Record &)>
struct Call<function> {
    static PyObject *run(PyObject *, PyObject *const *given, Py_ssize_t count) {
        Record record{};
        Arguments next(given, count, Arguments::count_of<Record>());
        return next.read(record) ? without_gil(function, record) : nullptr;
    }
};

// Method table entry of a function that takes its arguments as an array (METH_FASTCALL).
template <class Function>
PyMethodDef method(const char *name, Function function, const char *doc, int flags = METH_FASTCALL) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), flags, doc};
}

}  // namespace dpmodule
