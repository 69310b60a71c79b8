#include "engine_object.hpp"

namespace dpmodule::autobatch {
namespace {

unsigned long long address(const float *p) {
    return static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(p));
}

// Runs operations without a kernel.
PyObject *found(PyObject *function) {
    if (function) return function;
    PyErr_SetString(PyExc_RuntimeError, "operations without a kernel cannot run: call set_caller first");
    throw PythonError();
}

PyObject *integers_of(const std::vector<int> &numbers) {
    return list_of(numbers.size(), [&](std::size_t i) { return PyLong_FromLong(numbers[i]); });
}

}  // namespace

void PythonCaller::set(PyObject *forward, PyObject *backward, PyObject *draw) {
    Py_INCREF(forward);
    Py_INCREF(backward);
    Py_INCREF(draw);
    Py_XSETREF(draw_, draw);
    Py_XSETREF(forward_, forward);
    Py_XSETREF(backward_, backward);
}

int PythonCaller::traverse(visitproc visit, void *arg) {
    Py_VISIT(forward_);
    Py_VISIT(backward_);
    Py_VISIT(draw_);
    return 0;
}

void PythonCaller::clear() {
    Py_CLEAR(forward_);
    Py_CLEAR(backward_);
    Py_CLEAR(draw_);
}

void PythonCaller::forward(const CallBatch &batch) { call(found(forward_), batch); }
void PythonCaller::backward(const CallBatch &batch) { call(found(backward_), batch); }

// draw(kind, first number, second number, address, how many)
void PythonCaller::draw(int kind, const double *numbers, float *to, std::size_t count) {
    PyObject *done = PyObject_CallFunction(found(draw_), "iddKK", kind, numbers[0], numbers[1], address(to),
                                           static_cast<unsigned long long>(count));
    if (!done) throw PythonError();
    Py_DECREF(done);
}

// function(key, kind, rows, [(address, shared, gradient address or 0)], aux, counts, address of the result or its
// gradient)
void PythonCaller::call(PyObject *function, const CallBatch &batch) {
    PyObject *arguments = list_of(batch.arguments.size(), [&](std::size_t i) {
        const CallBatch::Argument &each = batch.arguments[i];
        return Py_BuildValue("(KiK)", address(each.at), static_cast<int>(each.shared), address(each.grad));
    });
    // missing values, after a Python error, make the call fail
    PyObject *done =
        PyObject_CallFunction(function, "LiiNNNK", static_cast<long long>(batch.key), batch.kind, batch.rows, arguments,
                              integers_of(batch.aux), integers_of(batch.counts), address(batch.out));
    if (!done) throw PythonError();
    Py_DECREF(done);
}

}  // namespace dpmodule::autobatch
