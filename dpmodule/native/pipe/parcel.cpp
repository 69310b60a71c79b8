// Parcels: any object in one piece of memory, as a pickle, the tensors that it leaves out, and large buffers. They carry
// the batches of streams/data_loader.py from workers to the trainer.
//
// A parcel is a head of 64-bit words, then the pickle, then memory of tensors and buffers, each at a multiple of 64
// bytes. Tensors that overlap share a span of memory, so that a view stays a view; other tensors have their own.
#include "python.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <structmember.h>
#include <vector>

#include "errors.hpp"
#include "job.hpp"
#include "pipe/control.hpp"
#include "pipe/loan.hpp"
#include "pipe/tensors.hpp"

namespace dpmodule {
namespace pipe {
namespace {

// The head of a parcel; after it one `Span` for each span and each buffer, then the records of the tensors.
struct Head {
    int64_t is_used, bytes, tensors, spans, buffers, pickle, pickle_bytes;
};
struct Span {
    int64_t offset, bytes, users;  // number of tensors
};
struct TensorRecord {
    int64_t code, span, offset, axes;  // then shape and strides, in elements; span -1: no elements
};

constexpr int64_t alignment = 64;
constexpr int64_t worth_lending = 16 << 10;  // smaller spans are copied, so that they do not keep a block in use
constexpr int64_t worth_releasing = 256 << 10;

int64_t aligned(int64_t offset) { return (offset + alignment - 1) / alignment * alignment; }

template <class T>
T *at(char *base, int64_t offset) {
    return reinterpret_cast<T *>(base + offset);
}

std::atomic<int64_t> &use_of(const Memory &memory) { return *reinterpret_cast<std::atomic<int64_t> *>(memory.at(0)); }

// --- blocks

// dpmodule._native.ParcelBlock: shared memory for one parcel at a time.
struct BlockObject {
    PyObject_HEAD MemoryPtr memory;
};

PyTypeObject *block_type = nullptr;

MemoryPtr &memory_of(PyObject *self) { return reinterpret_cast<BlockObject *>(self)->memory; }

PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *) {
    int fd;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "in", &fd, &size)) return nullptr;
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    new (&memory_of(self)) MemoryPtr();
    try {
        memory_of(self) = std::make_shared<Memory>(fd, static_cast<size_t>(size));
    } catch (...) {
        Py_DECREF(self);
        return set_current_exception();
    }
    return self;
}

void block_dealloc(PyObject *self) {
    std::destroy_at(&memory_of(self));
    free_object(self);
}

PyObject *is_free(PyObject *self, void *) {
    return PyBool_FromLong(use_of(*memory_of(self)).load(std::memory_order_acquire) == 0);
}
PyObject *block_size(PyObject *self, void *) { return PyLong_FromSize_t(memory_of(self)->size()); }

PyGetSetDef block_properties[] = {
    {"is_free", is_free, nullptr, "True if nothing refers to the last parcel.", nullptr},
    {"size", block_size, nullptr, "Size in bytes.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot block_slots[] = {{Py_tp_new, slot(block_new)},
                             {Py_tp_dealloc, slot(block_dealloc)},
                             {Py_tp_getset, block_properties},
                             {Py_tp_doc, const_cast<char *>("ParcelBlock(fd, size): shared memory for one parcel.")},
                             {0, nullptr}};
PyType_Spec block_spec = {"dpmodule._native.ParcelBlock", sizeof(BlockObject), 0, Py_TPFLAGS_DEFAULT, block_slots};

// --- writing

// What a parcel will contain.
struct Parcel {
    std::vector<Leaf> leaves;
    std::vector<Py_buffer> buffers;  // the pickle, then those that it leaves out
    std::vector<Span> spans;
    std::vector<const char *> sources;  // of spans
    std::vector<TensorRecord> records;
    int64_t pickle = 0, bytes = 0;

    ~Parcel() { clear(); }

    void clear() {
        for (Leaf &leaf : std::exchange(leaves, {})) Py_DECREF(leaf.object);
        for (Py_buffer &buffer : std::exchange(buffers, {})) PyBuffer_Release(&buffer);
    }

    // Find the place of everything; the pickle is the first buffer.
    void plan() {
        spans.clear();
        sources.clear();
        records.assign(leaves.size(), {0, -1, 0, 0});
        std::vector<int> order;
        for (size_t i = 0; i < leaves.size(); ++i) {
            records[i].code = leaves[i].code;
            records[i].axes = leaves[i].ndim;
            if (leaves[i].bytes) order.push_back(static_cast<int>(i));
        }
        std::sort(order.begin(), order.end(), [&](int a, int b) { return leaves[a].data < leaves[b].data; });
        for (int i : order) {
            const Leaf &leaf = leaves[i];
            const int64_t start = spans.empty() ? 0 : leaf.data - sources.back();
            if (spans.empty() || start >= spans.back().bytes || start % leaf.item) {
                spans.push_back({0, leaf.extent(), 1});
                sources.push_back(leaf.data);
            } else {
                records[i].offset = start;
                spans.back().bytes = std::max(spans.back().bytes, start + leaf.extent());
                ++spans.back().users;
            }
            records[i].span = static_cast<int64_t>(spans.size()) - 1;
        }
        const size_t given = spans.size();
        pickle = static_cast<int64_t>(sizeof(Head) + sizeof(Span) * (given + buffers.size() - 1));
        for (const Leaf &leaf : leaves) pickle += static_cast<int64_t>(sizeof(TensorRecord)) + 16 * leaf.ndim;
        for (size_t i = 1; i < buffers.size(); ++i) {
            spans.push_back({0, buffers[i].len, 1});
            sources.push_back(static_cast<const char *>(buffers[i].buf));
        }
        bytes = pickle + buffers[0].len;
        for (Span &span : spans) {
            span.offset = aligned(bytes);
            bytes = span.offset + span.bytes;
        }
    }

    void write(char *target) const {
        const auto given = static_cast<int64_t>(spans.size()) - static_cast<int64_t>(buffers.size()) + 1;
        *at<Head>(target, 0) = {
            1,      bytes,         static_cast<int64_t>(leaves.size()), given, static_cast<int64_t>(buffers.size()) - 1,
            pickle, buffers[0].len};
        std::memcpy(target + sizeof(Head), spans.data(), sizeof(Span) * spans.size());
        int64_t offset = static_cast<int64_t>(sizeof(Head) + sizeof(Span) * spans.size());
        for (size_t i = 0; i < leaves.size(); ++i) {
            *at<TensorRecord>(target, offset) = records[i];
            offset += static_cast<int64_t>(sizeof(TensorRecord));
            const size_t axes = sizeof(int64_t) * static_cast<size_t>(leaves[i].ndim);
            if (axes) {
                std::memcpy(target + offset, leaves[i].shape, axes);
                std::memcpy(target + offset + axes, leaves[i].strides, axes);
            }
            offset += static_cast<int64_t>(2 * axes);
        }
        std::memcpy(target + pickle, buffers[0].buf, static_cast<size_t>(buffers[0].len));
        for (size_t i = 0; i < spans.size(); ++i) {
            if (spans[i].bytes) std::memcpy(target + spans[i].offset, sources[i], static_cast<size_t>(spans[i].bytes));
        }
    }
};

struct ParcelObject {
    PyObject_HEAD vectorcallfunc call;
    Parcel *parcel;
    PyObject *reduce, *fetch, *storage;
};

Parcel &parcel_of(PyObject *self) { return *reinterpret_cast<ParcelObject *>(self)->parcel; }

PyObject *requires_grad = nullptr;

// How a pickler is to reduce an object: a tensor that the parcel takes, to a call of `fetch` with its number.
PyObject *parcel_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *) {
    if (PyVectorcall_NARGS(flags) != 1) return PyErr_SetString(PyExc_TypeError, "expected one object"), nullptr;
    PyObject *object = args[0], *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    const auto *given = reinterpret_cast<ParcelObject *>(self);
    if (type != torch.tensor && type != torch.parameter && type != given->storage) return Py_NewRef(Py_NotImplemented);
    if (type != torch.tensor) return PyObject_CallOneArg(given->reduce, object);
    PyObject *has_grad = PyObject_GetAttr(object, requires_grad);
    if (!has_grad) return nullptr;
    Py_DECREF(has_grad);  // True and False are immortal
    if (has_grad == Py_True) return PyObject_CallOneArg(given->reduce, object);
    Leaf leaf;
    const TensorKind kind = torch.inspect(object, leaf);
    if (kind != TensorKind::copyable) {
        Py_XDECREF(leaf.object);
        return kind == TensorKind::failed ? nullptr : PyObject_CallOneArg(given->reduce, object);
    }
    given->parcel->leaves.push_back(leaf);
    return Py_BuildValue("O(n)", given->fetch, static_cast<Py_ssize_t>(given->parcel->leaves.size()) - 1);
}

// pack(pickle, buffers): take what the tensors belong to, and return the size of the parcel in bytes.
PyObject *pack(PyObject *self, PyObject *args) {
    PyObject *pickle, *buffers;
    if (!PyArg_ParseTuple(args, "OO!", &pickle, &PyList_Type, &buffers)) return nullptr;
    Parcel &parcel = parcel_of(self);
    for (Py_ssize_t i = -1; i < PyList_GET_SIZE(buffers); ++i) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(i < 0 ? pickle : PyList_GET_ITEM(buffers, i), &buffer, PyBUF_ANY_CONTIGUOUS) < 0)
            return nullptr;
        parcel.buffers.push_back(buffer);
    }
    parcel.plan();
    return PyLong_FromLongLong(parcel.bytes);
}

void write_unlocked(const Parcel &parcel, char *target) {
    if (parcel.bytes < worth_releasing) return parcel.write(target);
    Py_BEGIN_ALLOW_THREADS
    parcel.write(target);
    Py_END_ALLOW_THREADS
}

PyObject *write_parcel(PyObject *self, PyObject *block) {
    Parcel &parcel = parcel_of(self);
    if (Py_TYPE(block) != block_type || parcel.buffers.empty() ||
        memory_of(block)->size() < static_cast<size_t>(parcel.bytes))
        return PyErr_SetString(PyExc_ValueError, "expected a block that holds the parcel"), nullptr;
    write_unlocked(parcel, memory_of(block)->at(0));
    parcel.clear();
    Py_RETURN_NONE;
}

PyObject *parcel_bytes(PyObject *self, PyObject *) {
    Parcel &parcel = parcel_of(self);
    if (parcel.buffers.empty()) return PyErr_SetString(PyExc_ValueError, "the parcel is empty"), nullptr;
    PyObject *made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(parcel.bytes));
    if (made) write_unlocked(parcel, PyBytes_AS_STRING(made));
    if (made) parcel.clear();
    return made;
}

PyObject *clear_parcel(PyObject *self, PyObject *) {
    parcel_of(self).clear();
    Py_RETURN_NONE;
}

PyObject *parcel_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *table, *reduce, *fetch, *storage;
    if (!PyArg_ParseTuple(args, "O!OOO", &PyTuple_Type, &table, &reduce, &fetch, &storage) || !torch.load(table))
        return nullptr;
    auto *self = reinterpret_cast<ParcelObject *>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->call = parcel_call;
    self->parcel = new (std::nothrow) Parcel();
    self->reduce = Py_NewRef(reduce);
    self->fetch = Py_NewRef(fetch);
    self->storage = Py_NewRef(storage);
    return reinterpret_cast<PyObject *>(self);
}

void parcel_dealloc(PyObject *self) {
    auto *given = reinterpret_cast<ParcelObject *>(self);
    for (PyObject *each : {given->reduce, given->fetch, given->storage}) Py_XDECREF(each);
    delete given->parcel;
    free_object(self);
}

PyObject *count_tensors(PyObject *self, void *) { return PyLong_FromSize_t(parcel_of(self).leaves.size()); }

PyGetSetDef parcel_properties[] = {
    {"tensors", count_tensors, nullptr, "Number of tensors that the parcel takes.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMethodDef parcel_methods[] = {
    {"pack", guard<pack>, METH_VARARGS, "pack(pickle, buffers): complete the parcel, and return its size in bytes."},
    {"write", write_parcel, METH_O, "Write the parcel to a block, and forget it."},
    {"to_bytes", parcel_bytes, METH_NOARGS, "Return the parcel as bytes, and forget it."},
    {"clear", clear_parcel, METH_NOARGS, "Forget the parcel."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef parcel_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ParcelObject, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot parcel_slots[] = {
    {Py_tp_new, slot(parcel_new)},
    {Py_tp_dealloc, slot(parcel_dealloc)},
    {Py_tp_call, slot(PyVectorcall_Call)},
    {Py_tp_methods, parcel_methods},
    {Py_tp_members, parcel_members},
    {Py_tp_getset, parcel_properties},
    {Py_tp_doc,
     const_cast<char *>("ParcelWriter(table, reduce, fetch, storage): the `reducer_override` of a pickler, which "
                        "takes tensors; `reduce` is called for others and for storages.")},
    {0, nullptr},
};
PyType_Spec parcel_spec = {"dpmodule._native.ParcelWriter", sizeof(ParcelObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, parcel_slots};

// --- reading

// The use of a block by the tensors of a parcel; the last one frees the block.
struct Use {
    explicit Use(MemoryPtr given) : memory(std::move(given)), generation(fork_generation()) {}
    ~Use() {
        if (memory && generation == fork_generation()) use_of(*memory).store(0, std::memory_order_release);
    }
    MemoryPtr memory;
    unsigned generation;  // copies in a forked child free nothing
};

// Keeps the memory of a tensor: of a block, or its own.
struct Keeper {
    dlpack::Managed managed;
    std::shared_ptr<Use> use;
    void *own = nullptr;
    static void drop(dlpack::Managed *managed) {
        auto *keeper = static_cast<Keeper *>(managed->context);
        std::free(keeper->own);
        delete keeper;
    }
};

class Unpacking {
  public:
    Unpacking(char *base, std::shared_ptr<Use> use, bool is_copied)
        : base_(base), head_(*at<Head>(base, 0)), use_(std::move(use)), is_copied_(is_copied) {}

    // (pickle, tensors, buffers as tensors, views): tensors are None where `views` has (number, base, dtype, offset, shape,
    // strides), with the offset in bytes.
    PyObject *run() {
        PyObject *tensors = PyList_New(head_.tensors), *views = PyList_New(0), *buffers = nullptr;
        bool is_good = tensors && views;
        int64_t offset = static_cast<int64_t>(sizeof(Head) + sizeof(Span) * (head_.spans + head_.buffers));
        bases_.assign(static_cast<size_t>(head_.spans), nullptr);
        for (Py_ssize_t i = 0; is_good && i < head_.tensors; ++i) {
            auto *record = at<TensorRecord>(base_, offset);
            int64_t *shape = reinterpret_cast<int64_t *>(record + 1);
            PyObject *item = tensor(*record, shape, i, views);
            is_good = item != nullptr;
            if (item) PyList_SET_ITEM(tensors, i, item);
            offset += static_cast<int64_t>(sizeof(TensorRecord)) + 16 * record->axes;
        }
        if (is_good) {
            buffers = list_of(static_cast<size_t>(head_.buffers), [&](size_t i) -> PyObject * {
                const Span &span = spans()[head_.spans + static_cast<int64_t>(i)];
                int64_t one = 1, count = span.bytes;
                return lend(span, uint8, 0, 1, &count, &one);
            });
        }
        PyObject *pickle =
            buffers ? PyBytes_FromStringAndSize(base_ + head_.pickle, static_cast<Py_ssize_t>(head_.pickle_bytes))
                    : nullptr;
        PyObject *made = pickle ? PyTuple_Pack(4, pickle, tensors, buffers, views) : nullptr;
        for (PyObject *each : {pickle, tensors, buffers, views}) Py_XDECREF(each);
        for (PyObject *each : bases_) Py_XDECREF(each);
        return made;
    }

  private:
    static constexpr int uint8 = 1;  // its number in streams/pipe/layout.py

    Span *spans() const { return at<Span>(base_, static_cast<int64_t>(sizeof(Head))); }

    PyObject *tensor(const TensorRecord &record, int64_t *shape, Py_ssize_t number, PyObject *views) {
        const Span none{0, 0, 1};
        const Span &span = record.span < 0 ? none : spans()[record.span];
        const int code = static_cast<int>(record.code), axes = static_cast<int>(record.axes);
        if (span.users == 1) return lend(span, code, record.offset, axes, shape, shape + axes);
        PyObject *&base = bases_[static_cast<size_t>(record.span)];
        int64_t one = 1, count = span.bytes;
        if (!base && !(base = lend(span, uint8, 0, 1, &count, &one))) return nullptr;
        const auto numbers = [&](const int64_t *from) {
            return tuple_of(static_cast<size_t>(axes), [&](size_t i) { return PyLong_FromLongLong(from[i]); });
        };
        PyObject *view = Py_BuildValue("nOOLNN", number, base, torch.dtypes[code],
                                       static_cast<long long>(record.offset), numbers(shape), numbers(shape + axes));
        const int failed = view ? PyList_Append(views, view) : -1;
        Py_XDECREF(view);
        if (failed) return nullptr;
        Py_RETURN_NONE;
    }

    // Make a tensor in the memory of a span, or in a copy of it; nullptr with an exception.
    PyObject *lend(const Span &span, int code, int64_t offset, int axes, int64_t *shape, int64_t *strides) {
        auto *keeper = new (std::nothrow) Keeper{{}, nullptr};
        if (!keeper) return PyErr_NoMemory();
        char *data = base_ + span.offset;
        if (is_copied_ || span.bytes < worth_lending) {
            keeper->own = std::aligned_alloc(alignment, static_cast<size_t>(aligned(std::max<int64_t>(span.bytes, 1))));
            if (!keeper->own) return delete keeper, PyErr_NoMemory();
            if (span.bytes) std::memcpy(keeper->own, data, static_cast<size_t>(span.bytes));
            data = static_cast<char *>(keeper->own);
        } else {
            keeper->use = use_;
        }
        keeper->managed = {version,
                           keeper,
                           Keeper::drop,
                           0,
                           {data + offset, dlpack::cpu, 0, axes, torch.types[code], shape, strides, 0}};
        void *made = nullptr;
        if (torch.exchange->object_from_managed(&keeper->managed, &made) != 0) {
            Keeper::drop(&keeper->managed);
            return nullptr;
        }
        return static_cast<PyObject *>(made);
    }

    char *base_;
    const Head head_;
    std::shared_ptr<Use> use_;
    bool is_copied_;
    std::vector<PyObject *> bases_;  // of spans with several tensors
};

// unpack_parcel(table, source, is_copied): see Unpacking::run.
PyObject *unpack(PyObject *, PyObject *args) {
    PyObject *table, *source;
    int is_copied;
    if (!PyArg_ParseTuple(args, "O!Op", &PyTuple_Type, &table, &source, &is_copied) || !torch.load(table))
        return nullptr;
    if (PyBytes_Check(source)) return Unpacking(PyBytes_AS_STRING(source), nullptr, true).run();
    if (Py_TYPE(source) != block_type) return PyErr_SetString(PyExc_TypeError, "expected bytes or a block"), nullptr;
    return Unpacking(memory_of(source)->at(0), std::make_shared<Use>(memory_of(source)), is_copied).run();
}

PyMethodDef functions[] = {
    {"unpack_parcel", guard<unpack>, METH_VARARGS,
     "unpack_parcel(table, source, is_copied): return the pickle of a parcel, its tensors, buffers and views."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace
}  // namespace pipe

int add_parcel(PyObject *module) {
    using namespace pipe;
    requires_grad = PyUnicode_InternFromString("requires_grad");
    if (!requires_grad || !(block_type = add_type(module, block_spec))) return -1;
    return add_type(module, parcel_spec) ? PyModule_AddFunctions(module, functions) : -1;
}

}  // namespace dpmodule
