// dpmodule._native.PipeWriter: the sending side of a tensor pipe; streams/pipe/tensor_pipe.py wraps it.
#include "python.hpp"

#include <algorithm>
#include <new>
#include <structmember.h>

#include "pipe/core.hpp"
#include "pipe/sending.hpp"

namespace dpmodule {
namespace pipe {
namespace {

struct Writer {
    PyObject_HEAD Sending *sending;
};

Sending &sending_of(PyObject *self) { return *reinterpret_cast<Writer *>(self)->sending; }

// Return true, with an exception, if another call is running, in another thread or around this one.
bool refuse_while_busy(const Sending &sending) {
    if (sending.busy) PyErr_SetString(PyExc_RuntimeError, "another call is using the writer");
    return sending.busy;
}

// Return a slot, which must have memory; nullptr with an exception.
WriterSlot *laid_out(Sending &sending, long number) {
    if (refuse_while_busy(sending)) return nullptr;
    if (number < 0 || number >= static_cast<long>(sending.slots.size()) || !sending.slots[number].memory) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_IndexError, "slot %ld has no memory", number);
        return nullptr;
    }
    return &sending.slots[number];
}

PyObject *send_with(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Sending &sending = sending_of(self);
    if (count < 1 || count > 2) return PyErr_SetString(PyExc_TypeError, "send(value[, slot])"), nullptr;
    long leased = count == 2 ? PyLong_AsLong(arguments[1]) : -1;
    if (leased == -1 && PyErr_Occurred()) return nullptr;
    if (leased >= static_cast<long>(sending.slots.size()))
        return PyErr_SetString(PyExc_IndexError, "the slot does not exist"), nullptr;
    try {
        Status found = sending.send(arguments[0], static_cast<int>(leased));
        return found == failed ? nullptr : PyLong_FromLong(found);
    } catch (...) {
        return set_current_exception();
    }
}

// Like send, but spins for a few microseconds if no slot is free.
PyObject *send_soon(PyObject *self, PyObject *value) {
    Sending &sending = sending_of(self);
    Status found = sending.send(value, -1);
    if (found == full && sending.waiting.spin_unlocked([&] { return sending.is_ready(); })) {
        found = sending.send(value, -1);
    }
    return found == failed ? nullptr : PyLong_FromLong(found);
}

// Like send, but waits for a slot. `full` if something else comes first.
PyObject *send_wait(PyObject *self, PyObject *value) {
    Status found = sending_of(self).send_wait(value);
    return found == failed ? nullptr : PyLong_FromLong(found);
}

PyObject *fits(PyObject *self, PyObject *value) {
    int found = sending_of(self).fits(value);
    return found < 0 ? nullptr : PyBool_FromLong(found);
}

PyObject *free_slots(PyObject *self, PyObject *) {
    Sending &sending = sending_of(self);
    std::vector<int> found;
    for (int i = 0; i < static_cast<int>(sending.slots.size()); i++) {
        if (sending.is_free(i)) found.push_back(i);
    }
    return list_of(found.size(), [&](size_t i) { return PyLong_FromLong(found[i]); });
}

PyObject *writer_set_slot(PyObject *self, PyObject *arguments) {
    Sending &sending = sending_of(self);
    NewSlot given;
    if (refuse_while_busy(sending) || !given.read(arguments, sending.slots.size())) return nullptr;
    Table table(*given.memory);
    std::vector<Space> spaces;
    for (int i = 0; i < table.leaves; i++) spaces.push_back({table[i].offset, table[i].capacity});
    sending.slots[given.number] = {std::move(given.memory), std::move(given.outline), std::move(spaces), table.axes};
    Py_RETURN_NONE;
}

PyObject *writer_unset_slot(PyObject *self, PyObject *argument) {
    Sending &sending = sending_of(self);
    size_t number = PyLong_AsSize_t(argument);
    if (PyErr_Occurred() || refuse_while_busy(sending)) return nullptr;
    if (number < sending.slots.size()) sending.slots[number] = WriterSlot();
    Py_RETURN_NONE;
}

// Read a (dtype, shape, bytes) of streams/pipe/layout.py. False with an exception.
bool read_leaf(PyObject *given, Leaf &leaf, int64_t *axes) {
    PyObject *dtype, *sizes;
    long long bytes;
    if (!PyArg_ParseTuple(given, "OO!L", &dtype, &PyTuple_Type, &sizes, &bytes)) return false;
    leaf.code = static_cast<int>(std::find(torch.dtypes, torch.dtypes + torch.count, dtype) - torch.dtypes);
    leaf.ndim = static_cast<int>(std::min<Py_ssize_t>(PyTuple_GET_SIZE(sizes), most_axes));
    leaf.bytes = bytes;
    for (int axis = 0; axis < leaf.ndim; axis++) axes[axis] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, axis));
    leaf.shape = axes;
    return !PyErr_Occurred();
}

PyObject *shape(PyObject *self, PyObject *arguments) {
    int number;
    PyObject *given;
    if (!PyArg_ParseTuple(arguments, "iO!", &number, &PyList_Type, &given)) return nullptr;
    WriterSlot *slot = laid_out(sending_of(self), number);
    if (!slot) return nullptr;
    Table table(*slot->memory);
    if (PyList_GET_SIZE(given) != table.leaves)
        return PyErr_SetString(PyExc_ValueError, "the slot has a different number of leaves"), nullptr;
    for (int i = 0; i < table.leaves; i++) {
        int64_t axes[most_axes];
        Leaf leaf;
        if (!read_leaf(PyList_GET_ITEM(given, i), leaf, axes)) return nullptr;
        if (leaf.code == torch.count || leaf.ndim > slot->axes || leaf.bytes > slot->spaces[i].capacity) {
            return PyErr_Format(PyExc_ValueError, "leaf %d does not fit", i);
        }
        Sending::describe(table, i, leaf, {false, Table::own, slot->spaces[i].offset});
    }
    Py_RETURN_NONE;
}

PyObject *lease(PyObject *self, PyObject *argument) {
    Sending &sending = sending_of(self);
    long number = PyLong_AsLong(argument);
    WriterSlot *slot = laid_out(sending, number);
    if (!slot) return nullptr;
    PyObject *made = nullptr;
    LeafReferences leaves(slot->outline->leaves());
    bool good = true;
    for (int i = 0; good && i < leaves.size(); i++) good = leaves.add(writable(slot->memory, i));
    if (good) made = slot->outline->build(leaves.take());
    if (made) sending.control.slot(static_cast<int>(number)).store(1, std::memory_order_relaxed);
    return made;
}

PyObject *unlease(PyObject *self, PyObject *argument) {
    long number = PyLong_AsLong(argument);
    if (!laid_out(sending_of(self), number)) return nullptr;
    sending_of(self).control.slot(static_cast<int>(number)).store(0, std::memory_order_release);
    Py_RETURN_NONE;
}

PyObject *commit(PyObject *self, PyObject *argument) {
    Sending &sending = sending_of(self);
    long number = PyLong_AsLong(argument);
    WriterSlot *slot = laid_out(sending, number);
    if (!slot) return nullptr;
    sending.zero_copy += slot->spaces.size();
    sending.messages++;
    sending.publish(data, static_cast<int>(number));
    Py_RETURN_NONE;
}

// Return the leaf of a slot whose memory holds the tensor, -1 if none does, -2 with an exception.
long leaf_index_of(PyObject *tensor, const WriterSlot &slot) {
    Leaf leaf;
    long index = -1;
    if (torch.inspect(tensor, leaf) == TensorKind::copyable && leaf.bytes) {
        int64_t offset = leaf.data - slot.memory->at(0);
        for (size_t leaf_index = 0; leaf_index < slot.spaces.size(); leaf_index++) {
            const Space &at = slot.spaces[leaf_index];
            if (offset >= at.offset && offset < at.offset + at.capacity) index = static_cast<long>(leaf_index);
        }
    }
    Py_CLEAR(leaf.object);
    return PyErr_Occurred() ? -2 : index;
}

PyObject *leaf_indices(PyObject *self, PyObject *arguments) {
    PyObject *given;
    int number;
    if (!PyArg_ParseTuple(arguments, "O!i", &PyList_Type, &given, &number)) return nullptr;
    WriterSlot *slot = laid_out(sending_of(self), number);
    if (!slot) return nullptr;
    return list_of(static_cast<size_t>(PyList_GET_SIZE(given)), [&](size_t i) -> PyObject * {
        long index = leaf_index_of(PyList_GET_ITEM(given, static_cast<Py_ssize_t>(i)), *slot);
        return index == -2 ? nullptr : PyLong_FromLong(index);
    });
}

PyObject *add_shared_range(PyObject *self, PyObject *arguments) {
    unsigned long long start;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "Kn", &start, &size)) return nullptr;
    sending_of(self).remember(reinterpret_cast<const char *>(static_cast<uintptr_t>(start)), size);
    Py_RETURN_NONE;
}

PyObject *publish(PyObject *self, PyObject *arguments) {
    int kind, slot = -1;
    if (!PyArg_ParseTuple(arguments, "i|i", &kind, &slot)) return nullptr;
    sending_of(self).publish(kind, std::min(slot, most_slots - 1));
    Py_RETURN_NONE;
}

using WriterMethods = SideMethods<sending_of>;

PyObject *writer_make(PyTypeObject *type, PyObject *arguments, PyObject *) {
    PyObject *table, *find;
    int fd, own_fd, other_fd;
    if (!PyArg_ParseTuple(arguments, "O!iiiO", &PyTuple_Type, &table, &fd, &own_fd, &other_fd, &find)) return nullptr;
    if (!torch.load(table)) return nullptr;
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    try {
        reinterpret_cast<Writer *>(self)->sending = new Sending(fd, own_fd, other_fd, find);
    } catch (...) {
        Py_DECREF(self);
        return set_current_exception();
    }
    return self;
}

void writer_dealloc(PyObject *self) {
    delete reinterpret_cast<Writer *>(self)->sending;
    free_object(self);
}

PyObject *get_frames(PyObject *self, void *) { return PyLong_FromUnsignedLong(sending_of(self).frames); }
PyObject *get_sent(PyObject *self, void *) { return PyLong_FromUnsignedLongLong(sending_of(self).messages); }
PyObject *get_zero_copy(PyObject *self, void *) { return PyLong_FromUnsignedLongLong(sending_of(self).zero_copy); }
PyObject *get_copied(PyObject *self, void *) { return PyLong_FromUnsignedLongLong(sending_of(self).copied); }

int set_frames(PyObject *self, PyObject *value, void *) {
    unsigned long count = value ? PyLong_AsUnsignedLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    sending_of(self).frames = static_cast<unsigned>(count);
    return 0;
}

PyMethodDef writer_methods[] = {
    {"send", reinterpret_cast<PyCFunction>(slot(send_with)), METH_FASTCALL,
     "send(value[, slot]): send to a free slot, or to the given one, with its outline and room; return a status."},
    {"send_soon", guard<send_soon>, METH_O, "Like send(value), but spin for a few microseconds if no slot is free."},
    {"send_wait", guard<send_wait>, METH_O,
     "Like send(value), but wait for a slot; FULL if something else comes first."},
    {"fits", guard<fits>, METH_O, "Return True if a value has the outline of a slot, and tensors that can be sent."},
    {"free_slots", free_slots, METH_NOARGS, "Return the slots that may be written to."},
    {"set_slot", guard<writer_set_slot>, METH_VARARGS, "set_slot(slot, fd, size, outline): use new memory for a slot."},
    {"unset_slot", writer_unset_slot, METH_O, "Forget the memory of a slot."},
    {"shape", shape, METH_VARARGS, "shape(slot, leaves): describe contiguous tensors like these in a slot."},
    {"lease", guard<lease>, METH_O, "Take a free slot and return its structure to be filled."},
    {"unlease", unlease, METH_O, "Return a leased slot unsent."},
    {"commit", commit, METH_O, "Send a leased slot as it is."},
    {"leaf_indices", leaf_indices, METH_VARARGS,
     "leaf_indices(tensors, slot): leaf of the slot that holds each, or -1."},
    {"add_shared_range", guard<add_shared_range>, METH_VARARGS,
     "add_shared_range(start, size): a shared block is here."},
    {"publish", publish, METH_VARARGS, "publish(kind[, slot]): make a message visible to the reader and wake it."},
    {"arm", WriterMethods::arm, METH_NOARGS,
     "Return True if a slot is free; otherwise the next one raises the signal."},
    {"watch", WriterMethods::watch, METH_VARARGS,
     "watch(socket, process): let these interrupt waits, too; -1 for none."},
    {"wait", WriterMethods::wait, METH_O, "wait(seconds): block until a slot is free or there is news."},
    {"release", WriterMethods::release, METH_NOARGS, "Release all memory; tensors in it keep theirs."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef writer_properties[] = {
    {"busy", WriterMethods::is_busy, nullptr, "True while a call runs in another thread.", nullptr},
    {"frames", get_frames, set_frames, "Number of frames sent.", nullptr},
    {"sent", get_sent, nullptr, "Number of structures sent.", nullptr},
    {"zero_copy", get_zero_copy, nullptr, "Number of tensors sent without a copy.", nullptr},
    {"copied", get_copied, nullptr, "Number of tensors copied.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot writer_slots[] = {
    {Py_tp_new, slot(writer_make)},
    {Py_tp_dealloc, slot(writer_dealloc)},
    {Py_tp_methods, writer_methods},
    {Py_tp_getset, writer_properties},
    {Py_tp_doc,
     const_cast<char *>("PipeWriter(table, fd, own_fd, other_fd, find): the sending side of a tensor pipe.")},
    {0, nullptr},
};
PyType_Spec writer_spec = {"dpmodule._native.PipeWriter", sizeof(Writer), 0, Py_TPFLAGS_DEFAULT, writer_slots};

}  // namespace
}  // namespace pipe

int add_pipe_writer(PyObject *module) { return add_type(module, pipe::writer_spec) ? 0 : -1; }

}  // namespace dpmodule
