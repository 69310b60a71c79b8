// Declarations shared by the methods of AutobatchEngine.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "python_parameters.hpp"
#include "python_recipes.hpp"
#include "python_state.hpp"

namespace dpmodule::autobatch {

inline unsigned long long address(const float *p) {
    return static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(p));
}

// Return a function of set_caller, which must have been called.
inline PyObject *needed(PyObject *function) {
    if (function) return function;
    PyErr_SetString(PyExc_RuntimeError, "operations without a kernel cannot run: call set_caller first");
    throw PythonError();
}

inline PyObject *integers_of(const std::vector<int> &numbers) {
    return list_of(numbers.size(), [&](std::size_t i) { return PyLong_FromLong(numbers[i]); });
}

// Runs operations without a kernel through Python functions.
class PythonCaller : public Caller {
  public:
    void forward(const CallBatch &batch) override { call(needed(forward_), batch); }
    void backward(const CallBatch &batch) override { call(needed(backward_), batch); }
    // draw(kind, first number, second number, address, how many)
    void draw(int kind, const double *numbers, float *to, std::size_t count) override {
        PyObject *done = PyObject_CallFunction(needed(draw_), "iddKK", kind, numbers[0], numbers[1], address(to),
                                               static_cast<unsigned long long>(count));
        if (!done) throw PythonError();
        Py_DECREF(done);
    }
    void set(PyObject *forward, PyObject *backward, PyObject *draw) {
        Py_INCREF(forward);
        Py_INCREF(backward);
        Py_INCREF(draw);
        Py_XSETREF(draw_, draw);
        Py_XSETREF(forward_, forward);
        Py_XSETREF(backward_, backward);
    }
    int traverse(visitproc visit, void *arg) {
        Py_VISIT(forward_);
        Py_VISIT(backward_);
        Py_VISIT(draw_);
        return 0;
    }
    void clear() {
        Py_CLEAR(forward_);
        Py_CLEAR(backward_);
        Py_CLEAR(draw_);
    }

  private:
    // function(key, kind, rows, [(address, shared, gradient address or 0)], aux, counts, address of the result or its
    // gradient)
    void call(PyObject *function, const CallBatch &batch) {
        PyObject *arguments = list_of(batch.arguments.size(), [&](std::size_t i) {
            const CallBatch::Argument &each = batch.arguments[i];
            return Py_BuildValue("(KiK)", address(each.at), static_cast<int>(each.shared), address(each.grad));
        });
        // missing values, after a Python error, make the call fail
        PyObject *done =
            PyObject_CallFunction(function, "LiiNNNK", static_cast<long long>(batch.key), batch.kind, batch.rows,
                                  arguments, integers_of(batch.aux), integers_of(batch.counts), address(batch.out));
        if (!done) throw PythonError();
        Py_DECREF(done);
    }
    PyObject *forward_ = nullptr, *backward_ = nullptr, *draw_ = nullptr;
};

// The state of one engine, owned by the Python object.
struct Machine {
    Machine() : engine(&caller), builder(engine.graph), recipes(engine.graph), parameters(engine) {
        static int serials = 0;
        serial = ++serials;
    }
    PythonCaller caller;
    Engine engine;
    Builder builder;
    PythonRecipes recipes;
    PythonParameters parameters;
    int serial;
};

struct EngineObject {
    PyObject_HEAD Machine *machine;
};

inline Machine &machine_of(PyObject *self) { return *reinterpret_cast<EngineObject *>(self)->machine; }
inline Graph &graph_of(PyObject *self) { return machine_of(self).engine.graph; }

[[noreturn]] inline void refuse(PyObject *kind, const char *text) {
    PyErr_SetString(kind, text);
    throw PythonError();
}

inline void check(int ok) {
    if (!ok) throw PythonError();
}

// Wraps a function of the machine and an argument, or a tuple of arguments, as a Python method.
template <auto method>
PyObject *call(PyObject *self, PyObject *given) {
    return guarded([&]() -> PyObject * {
        using Result = decltype(method(machine_of(self), given));
        if constexpr (std::is_void_v<Result>) method(machine_of(self), given);
        else if constexpr (std::is_same_v<Result, int>) return PyLong_FromLong(method(machine_of(self), given));
        else if constexpr (std::is_same_v<Result, bool>) return PyBool_FromLong(method(machine_of(self), given));
        else return method(machine_of(self), given);
        return Py_NewRef(Py_None);
    });
}

inline int checked_node(const Machine &machine, PyObject *number) {
    const long node = PyLong_AsLong(number);
    if (node == -1 && PyErr_Occurred()) throw PythonError();
    if (node < 0 || node >= machine.engine.graph.size())
        refuse(PyExc_IndexError, "no such node in the graph under construction");
    return static_cast<int>(node);
}

inline std::vector<int> integers(PyObject *sequence) {
    PyObject *fast = PySequence_Fast(sequence, "a sequence of integers is needed");
    if (!fast) throw PythonError();
    std::vector<int> found;
    bool fits = true;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        int overflow;
        const long value = PyLong_AsLongAndOverflow(PySequence_Fast_GET_ITEM(fast, i), &overflow);
        found.push_back(static_cast<int>(value));
        fits &= !overflow && value == found.back();
    }
    Py_DECREF(fast);
    if (PyErr_Occurred()) throw PythonError();
    if (!fits) throw TooLarge();
    return found;
}

inline PyObject *tuple_of(const std::vector<int> &numbers) {
    return dpmodule::tuple_of(numbers.size(), [&](std::size_t i) { return PyLong_FromLong(numbers[i]); });
}

// Methods by subject, each table ending with an empty entry.
extern const PyMethodDef parameter_methods[];  // engine_parameters.cpp
extern const PyMethodDef node_methods[];       // engine_nodes.cpp
extern const PyMethodDef value_methods[];      // engine_values.cpp

}  // namespace dpmodule::autobatch
