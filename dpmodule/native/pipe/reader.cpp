// dpmodule._native.PipeReader: the receiving side of a tensor pipe; streams/pipe/reader.py wraps it.
#include "python.hpp"

#include <new>
#include <structmember.h>
#include <unordered_map>

#include "pipe/core.hpp"
#include "pipe/loan.hpp"
#include "pipe/outline.hpp"
#include "pipe/tensors.hpp"

namespace dpmodule {
namespace pipe {
namespace {

struct Slot {
    Loan *loan = nullptr;
    std::shared_ptr<Outline> outline;  // kept by calls that build with it
    void clear() {
        if (loan) loan->drop();
        loan = nullptr;
        outline.reset();
    }
};

struct State {
    State(int fd, int own_fd, int other_fd)
        : control(std::make_shared<Control>(fd, other_fd, reader)), waiting(own_fd), slots(control->slots()) {}
    ~State() { release(); }

    std::shared_ptr<Control> control;
    Waiting waiting;
    bool busy = false;  // a thread waits in `recv_wait`
    std::vector<Slot> slots;
    std::unordered_map<int64_t, MemoryPtr> shared;

    bool is_ready() {
        return control->head().load(std::memory_order_acquire) != control->tail().load(std::memory_order_relaxed);
    }
    uint64_t entry() {
        return is_ready()
                   ? control->ring(control->tail().load(std::memory_order_relaxed)).load(std::memory_order_relaxed)
                   : 0;
    }
    void take() {
        control->tail().store(control->tail().load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    void release() {
        for (Slot &slot : slots) slot.clear();
        shared.clear();
    }
};

struct Reader {
    PyObject_HEAD State *state;
    unsigned frames;
    unsigned long long received;
};

Reader *cast(PyObject *self) { return reinterpret_cast<Reader *>(self); }

State &state_of(PyObject *self) { return *cast(self)->state; }

// Make the tensor of a message's leaf; nullptr with an exception.
PyObject *lend(State &state, Loan &loan, const Table &table, int leaf) {
    int64_t source = table[leaf].source;
    if (source == Table::own) return loan.lend(leaf, loan.memory());
    auto found = state.shared.find(source);
    if (found != state.shared.end()) return loan.lend(leaf, MemoryPtr(found->second));
    return PyErr_Format(PyExc_RuntimeError, "a message refers to the unknown shared block %lld",
                        static_cast<long long>(source));
}

PyObject *build(State &state, Loan &loan, const Outline &outline) {
    Table table(*loan.memory());
    LeafReferences leaves(table.leaves);
    for (int i = 0; i < table.leaves; i++) {
        if (!leaves.add(lend(state, loan, table, i))) return nullptr;
    }
    return outline.build(leaves.take());
}

PyObject *recv(PyObject *self, PyObject *) {
    State &state = state_of(self);
    uint64_t entry = state.entry();
    if ((entry & 0xff) != data || entry >> 32 != cast(self)->frames) Py_RETURN_NOTIMPLEMENTED;
    size_t number = entry >> 8 & 0xff;
    if (number >= state.slots.size() || !state.slots[number].loan) Py_RETURN_NOTIMPLEMENTED;
    Loan *loan = state.slots[number].loan;
    auto outline = state.slots[number].outline;
    loan->begin();  // keeps it alive until `finish`, whatever other threads do while Python code runs
    state.take();
    PyObject *made = nullptr;
    try {
        made = build(state, *loan, *outline);
    } catch (...) {
        set_current_exception();
    }
    loan->finish();
    if (made) cast(self)->received++;
    return made;
}

// Like recv, but spins for a few microseconds if there is no message.
PyObject *recv_soon(PyObject *self, PyObject *ignored) {
    State &state = state_of(self);
    if (!state.is_ready() && !state.waiting.spin_unlocked([&] { return state.is_ready(); })) Py_RETURN_NOTIMPLEMENTED;
    return recv(self, ignored);
}

// Like recv, but waits for a message. NotImplemented if something else comes first.
PyObject *recv_wait(PyObject *self, PyObject *ignored) {
    State &state = state_of(self);
    if (state.busy) Py_RETURN_NOTIMPLEMENTED;
    int found = ready;
    if (!state.is_ready()) {
        state.busy = true;
        Py_BEGIN_ALLOW_THREADS
        found = state.waiting.wait(*state.control, -1, [&] { return state.is_ready(); });
        Py_END_ALLOW_THREADS
        state.busy = false;
    }
    if (found < 0 && PyErr_CheckSignals() < 0) return nullptr;
    return recv(self, ignored);
}

PyObject *peek(PyObject *self, PyObject *) { return PyLong_FromUnsignedLongLong(state_of(self).entry()); }

PyObject *skip(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    State &state = state_of(self);
    long slot = count ? PyLong_AsLong(arguments[0]) : -1;
    if (slot == -1 && PyErr_Occurred()) return nullptr;
    state.take();
    if (slot >= 0 && slot < most_slots) {
        state.control->slot(static_cast<int>(slot)).store(0, std::memory_order_release);
        state.control->wake_other();
    }
    Py_RETURN_NONE;
}

PyObject *reader_set_slot(PyObject *self, PyObject *arguments) {
    State &state = state_of(self);
    NewSlot given;
    if (!given.read(arguments, state.slots.size())) return nullptr;
    Slot &slot = state.slots[given.number];
    auto *loan = new Loan(state.control, std::move(given.memory), given.number);
    slot.clear();
    slot.loan = loan;
    slot.outline = std::move(given.outline);
    Py_RETURN_NONE;
}

PyObject *reader_unset_slot(PyObject *self, PyObject *argument) {
    size_t number = PyLong_AsSize_t(argument);
    if (PyErr_Occurred()) return nullptr;
    if (number < state_of(self).slots.size()) state_of(self).slots[number].clear();
    Py_RETURN_NONE;
}

PyObject *set_shared(PyObject *self, PyObject *arguments) {
    long long number;
    int fd;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "Lin", &number, &fd, &size)) return nullptr;
    state_of(self).shared[number] = std::make_shared<Memory>(fd, size);
    Py_RETURN_NONE;
}

PyObject *forget_shared(PyObject *self, PyObject *argument) {
    long long number = PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) return nullptr;
    state_of(self).shared.erase(number);
    Py_RETURN_NONE;
}

using ReaderMethods = SideMethods<state_of>;

PyObject *reader_make(PyTypeObject *type, PyObject *arguments, PyObject *) {
    PyObject *table;
    int fd, own_fd, other_fd;
    if (!PyArg_ParseTuple(arguments, "O!iii", &PyTuple_Type, &table, &fd, &own_fd, &other_fd)) return nullptr;
    if (!torch.load(table)) return nullptr;
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    try {
        cast(self)->state = new State(fd, own_fd, other_fd);
    } catch (...) {
        Py_DECREF(self);
        return set_current_exception();
    }
    return self;
}

void reader_dealloc(PyObject *self) {
    delete cast(self)->state;
    free_object(self);
}

PyMethodDef reader_methods[] = {
    {"recv", recv, METH_NOARGS,
     "Return the next structure; NotImplemented if the next message is not one or there is none."},
    {"recv_soon", recv_soon, METH_NOARGS, "Like recv, but spin for a few microseconds if there is no message."},
    {"recv_wait", recv_wait, METH_NOARGS, "Like recv, but wait; NotImplemented if something else comes first."},
    {"peek", peek, METH_NOARGS, "Return the next message's word, 0 if there is none."},
    {"skip", reinterpret_cast<PyCFunction>(slot(skip)), METH_FASTCALL,
     "skip([slot]): count the next message as received and free a slot."},
    {"set_slot", guard<reader_set_slot>, METH_VARARGS, "set_slot(slot, fd, size, outline): use new memory for a slot."},
    {"unset_slot", reader_unset_slot, METH_O, "Forget the memory of a slot."},
    {"set_shared", guard<set_shared>, METH_VARARGS, "set_shared(number, fd, size): map a shared block."},
    {"forget_shared", forget_shared, METH_O, "Unmap a shared block."},
    {"arm", ReaderMethods::arm, METH_NOARGS,
     "Return True if there is work; otherwise the next message raises the signal."},
    {"watch", ReaderMethods::watch, METH_VARARGS,
     "watch(socket, process): let these interrupt waits, too; -1 for none."},
    {"wait", ReaderMethods::wait, METH_O, "wait(seconds): block until there is work or news."},
    {"release", ReaderMethods::release, METH_NOARGS, "Release all memory; received tensors keep theirs."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"frames", T_UINT, offsetof(Reader, frames), 0, "Number of frames taken."},
    {"received", T_ULONGLONG, offsetof(Reader, received), READONLY, "Number of structures received."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef reader_properties[] = {
    {"busy", ReaderMethods::is_busy, nullptr, "True while a thread waits.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot reader_slots[] = {
    {Py_tp_new, slot(reader_make)},
    {Py_tp_dealloc, slot(reader_dealloc)},
    {Py_tp_methods, reader_methods},
    {Py_tp_members, members},
    {Py_tp_getset, reader_properties},
    {Py_tp_doc, const_cast<char *>("PipeReader(table, fd, own_fd, other_fd): the receiving side of a tensor pipe.")},
    {0, nullptr},
};
PyType_Spec reader_spec = {"dpmodule._native.PipeReader", sizeof(Reader), 0, Py_TPFLAGS_DEFAULT, reader_slots};

}  // namespace
}  // namespace pipe

int add_pipe_reader(PyObject *module) { return add_type(module, pipe::reader_spec) ? 0 : -1; }

}  // namespace dpmodule
