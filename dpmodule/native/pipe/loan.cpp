#include "pipe/loan.hpp"

#include "job.hpp"
#include "pipe/tensors.hpp"

namespace dpmodule::pipe {
namespace {

constexpr dlpack::Version version = {1, 0};

bool valid(const Record &record, int axes) {
    return record.code >= 0 && record.code < torch.count && record.ndim >= 0 && record.ndim <= axes &&
           torch.dtypes[record.code] != Py_None;
}

void fill(dlpack::Managed &managed, const Table &table, int leaf, char *data) {
    const Record &record = table[leaf];
    managed.version = version;
    managed.flags = 0;
    managed.tensor = {data,
                      dlpack::cpu,
                      0,
                      static_cast<int32_t>(record.ndim),
                      torch.types[record.code],
                      table.shape(leaf),
                      table.strides(leaf),
                      0};
}

PyObject *wrong_record(const Record &record) {
    PyErr_Format(PyExc_RuntimeError,
                 "a message has a tensor with type number %lld and %lld axes, which this process does not support",
                 static_cast<long long>(record.code), static_cast<long long>(record.ndim));
    return nullptr;
}

// Tensor that keeps the memory, in addition to the slot.
struct Holder {
    dlpack::Managed managed;
    MemoryPtr memory;
    static void drop(dlpack::Managed *managed) { delete static_cast<Holder *>(managed->context); }
};

}  // namespace

Loan::Loan(std::shared_ptr<Control> control, MemoryPtr memory, int slot)
    : control_(std::move(control)), memory_(std::move(memory)), managed_(Table(*memory_).leaves), slot_(slot),
      generation_(fork_generation()) {
    for (dlpack::Managed &managed : managed_) {
        managed.context = this;
        managed.deleter = give_back;
    }
}

void Loan::begin() {
    users_.fetch_add(1, std::memory_order_relaxed);
    held_.store(1, std::memory_order_relaxed);
}

void Loan::finish() { release(); }

PyObject *Loan::lend(int leaf, const MemoryPtr &block) {
    Table table(*memory_);
    const Record &record = table[leaf];
    if (!valid(record, table.axes)) return wrong_record(record);
    if (block != memory_) blocks_.push_back(block);
    fill(managed_[leaf], table, leaf, block->at(record.offset));
    held_.fetch_add(1, std::memory_order_relaxed);
    void *made = nullptr;
    if (torch.exchange->object_from_managed(&managed_[leaf], &made) != 0) {
        release();
        return nullptr;
    }
    return static_cast<PyObject *>(made);
}

void Loan::give_back(dlpack::Managed *managed) { static_cast<Loan *>(managed->context)->release(); }

void Loan::release() {
    if (held_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    blocks_.clear();
    if (generation_ == fork_generation()) {
        control_->slot(slot_).store(0, std::memory_order_release);
        control_->wake_other();  // from here on, the reader may reuse this loan for the next message
    }
    drop();
}

void Loan::drop() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

PyObject *writable(const MemoryPtr &memory, int leaf) {
    Table table(*memory);
    if (!valid(table[leaf], table.axes)) return wrong_record(table[leaf]);
    auto *holder = new (std::nothrow) Holder{{}, memory};
    if (!holder) return PyErr_NoMemory();
    fill(holder->managed, table, leaf, memory->at(table[leaf].offset));
    holder->managed.context = holder;
    holder->managed.deleter = Holder::drop;
    void *made = nullptr;
    if (torch.exchange->object_from_managed(&holder->managed, &made) != 0) {
        delete holder;
        return nullptr;
    }
    return static_cast<PyObject *>(made);
}

bool NewSlot::read(PyObject *arguments, size_t slots) {
    int fd;
    Py_ssize_t size;
    PyObject *given;
    if (!PyArg_ParseTuple(arguments, "iinO", &number, &fd, &size, &given)) return false;
    if (number < 0 || static_cast<size_t>(number) >= slots)
        return PyErr_Format(PyExc_IndexError, "slot %d does not exist", number) != nullptr;
    outline = Outline::compile(given);
    if (!outline) return false;
    memory = std::make_shared<Memory>(fd, size);
    if (Table(*memory).leaves == outline->leaves()) return true;
    return PyErr_Format(PyExc_RuntimeError, "slot %d: its table and its outline have different numbers of leaves",
                        number) != nullptr;
}

}  // namespace dpmodule::pipe
