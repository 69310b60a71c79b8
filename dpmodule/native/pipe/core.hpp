// Shared parts of the two Python types of a pipe.
#pragma once

#include "python.hpp"

#include <chrono>
#include <memory>

#include "errors.hpp"
#include "pipe/control.hpp"

namespace dpmodule::pipe {

// Waiting of one side: its descriptors, and whether spinning before sleeping has paid off recently.
class Waiting {
  public:
    explicit Waiting(int wake_fd) : wake_fd_(wake_fd) {}

    // Also watch the socket and the other side's process; -1 for none.
    void watch(int socket, int process) {
        socket_ = socket;
        process_ = process;
    }

    // Wait for work or news, for at most `seconds` (below 0: forever). Needs no GIL.
    // Returns `WaitEvent` added up, 0 on a timeout, -1 after a signal.
    template <class IsReady>
    int wait(Control &control, double seconds, IsReady is_ready) {
        if (is_ready() || spin(is_ready) || arm(control, is_ready)) return ready;
        if (control.other_closed()) {  // its signal may have been cleared together with that of its last work
            control.mark_awake();
            return ready;
        }
        int found = poll_all(wake_fd_, socket_, process_, seconds);
        control.mark_awake();
        return found;
    }

    // Spin for work for some microseconds. That is useless if the other side does not run at the same time, so each
    // failure makes attempts rarer.
    template <class IsReady>
    bool spin(IsReady is_ready) {
        static const bool allowed = may_spin();
        if (!allowed || rest_-- > 0) return false;
        auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
        do {
            for (int i = 0; i < 32; i++) {
                if (is_ready()) return rest_ = failures_ = 0, true;
                relax();
            }
        } while (std::chrono::steady_clock::now() < end);
        failures_ = failures_ < most_failures ? failures_ + 1 : failures_;
        rest_ = (1 << failures_) - 2;
        return false;
    }

    // Like spin, but called with the GIL, which it releases only if it spins.
    template <class IsReady>
    bool spin_unlocked(IsReady is_ready) {
        if (rest_ > 0) return rest_--, false;
        bool found;
        Py_BEGIN_ALLOW_THREADS
        found = spin(is_ready);
        Py_END_ALLOW_THREADS
        return found;
    }

    // Mark this side as sleeping and return false; return true if there is work instead.
    template <class IsReady>
    static bool arm(Control &control, IsReady is_ready) {
        control.mark_sleeping();
        if (!is_ready()) return false;
        control.mark_awake();
        return true;
    }

  private:
    // Longer than waking a sleeping process takes; else two sides that alternate would sleep on every message.
    static constexpr int spin_us = 60, most_failures = 6;
    int wake_fd_, socket_ = -1, process_ = -1;
    int failures_ = 0, rest_ = 0;
};

// `wait(seconds)` of the Python types: `seconds` may be None; returns the events as an int.
template <class IsReady>
PyObject *wait_for(Waiting &waiting, Control &control, PyObject *seconds, IsReady is_ready) {
    double limit = seconds == Py_None ? -1.0 : PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) return nullptr;
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = waiting.wait(control, limit, is_ready);
    Py_END_ALLOW_THREADS
    if (found < 0 && PyErr_CheckSignals() < 0) return nullptr;
    return PyLong_FromLong(found < 0 ? 0 : found);
}

inline Control &control_of(Control &control) { return control; }
inline Control &control_of(const std::shared_ptr<Control> &control) { return *control; }

// Methods of both types; `side_of` returns the state of an object.
template <auto side_of>
struct SideMethods {
    static PyObject *arm(PyObject *self, PyObject *) {
        auto &side = side_of(self);
        return PyBool_FromLong(Waiting::arm(control_of(side.control), [&] { return side.is_ready(); }));
    }
    static PyObject *wait(PyObject *self, PyObject *seconds) {
        auto &side = side_of(self);
        return wait_for(side.waiting, control_of(side.control), seconds, [&] { return side.is_ready(); });
    }
    static PyObject *watch(PyObject *self, PyObject *arguments) {
        int socket, process;
        if (!PyArg_ParseTuple(arguments, "ii", &socket, &process)) return nullptr;
        side_of(self).waiting.watch(socket, process);
        Py_RETURN_NONE;
    }
    static PyObject *release(PyObject *self, PyObject *) {
        side_of(self).release();
        Py_RETURN_NONE;
    }
    static PyObject *is_busy(PyObject *self, void *) { return PyBool_FromLong(side_of(self).busy); }
};

// References to the leaves of a structure being built, dropped unless taken. Needs the GIL.
class LeafReferences {
  public:
    explicit LeafReferences(int size) : objects_(size <= most_inline ? inline_ : new PyObject *[size]), size_(size) {}
    ~LeafReferences() {
        while (count_) Py_DECREF(objects_[--count_]);
        if (objects_ != inline_) delete[] objects_;
    }
    LeafReferences(const LeafReferences &) = delete;
    LeafReferences &operator=(const LeafReferences &) = delete;

    int size() const { return size_; }
    bool add(PyObject *object) {
        if (object) objects_[count_++] = object;
        return object != nullptr;
    }
    // Transfer the references to the caller.
    PyObject **take() {
        count_ = 0;
        return objects_;
    }

  private:
    static constexpr int most_inline = 32;
    PyObject *inline_[most_inline];
    PyObject **objects_;
    int size_, count_ = 0;
};

}  // namespace dpmodule::pipe
