// Tensors over shared memory, which keep it mapped and return the slot when the last of them is gone.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "job.hpp"
#include "pipe/control.hpp"
#include "pipe/outline.hpp"
#include "pipe/tensors.hpp"
#include "python.hpp"

namespace dpmodule::pipe {

using MemoryPtr = std::shared_ptr<Memory>;

// Header and records of a slot's memory (streams/pipe/layout.py).
struct Record {
    int64_t code, source, offset, capacity, ndim, bytes, axes[1];
};
struct Table {
    static constexpr int head = 8, own = -1, fixed = 6;
    explicit Table(const Memory &memory)
        : words_(memory.words()), leaves(static_cast<int>(words_[0])), axes(static_cast<int>(words_[1])) {}
    Record &operator[](int leaf) const {
        return *reinterpret_cast<Record *>(words_ + head + static_cast<int64_t>(leaf) * (fixed + 2 * axes));
    }
    int64_t *shape(int leaf) const { return (*this)[leaf].axes; }
    int64_t *strides(int leaf) const { return (*this)[leaf].axes + axes; }

  private:
    int64_t *words_;

  public:
    int leaves, axes;
};

constexpr dlpack::Version version = {1, 0};

inline bool valid(const Record &record, int axes) {
    return record.code >= 0 && record.code < torch.count && record.ndim >= 0 && record.ndim <= axes &&
           torch.dtypes[record.code] != Py_None;
}

inline void fill(dlpack::Managed &managed, const Table &table, int leaf, char *data) {
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

inline PyObject *wrong_record(const Record &record) {
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

// Make a tensor over a record in a writer's slot; it keeps the memory mapped. nullptr with an exception.
inline PyObject *writable(const MemoryPtr &memory, int leaf) {
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

// Shared state of the reader's tensors in one slot. A slot holds at most one message at a time, so one loan serves all
// messages until the slot gets new memory. It outlives the pipe: tensors may be dropped at any time, in any thread and
// without the GIL.
class Loan {
  public:
    Loan(std::shared_ptr<Control> control, MemoryPtr memory, int slot)
        : control_(std::move(control)), memory_(std::move(memory)), managed_(Table(*memory_).leaves), slot_(slot),
          generation_(fork_generation()) {
        for (dlpack::Managed &managed : managed_) {
            managed.context = this;
            managed.deleter = give_back;
        }
    }

    // Begin a message: the loan is in use until `finish`, and until all tensors made in between are gone.
    void begin() {
        users_.fetch_add(1, std::memory_order_relaxed);
        held_.store(1, std::memory_order_relaxed);
    }
    void finish() { release(); }
    // Make a tensor for a record in the memory `block`; nullptr with an exception.
    PyObject *lend(int leaf, const MemoryPtr &block) {
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
    // Drop the reader's reference.
    void drop() {
        if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    const MemoryPtr &memory() const { return memory_; }

  private:
    ~Loan() = default;
    static void give_back(dlpack::Managed *managed) { static_cast<Loan *>(managed->context)->release(); }
    void release() {
        if (held_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        blocks_.clear();
        if (generation_ == fork_generation()) {
            control_->slot(slot_).store(0, std::memory_order_release);
            control_->wake_other();  // from here on, the reader may reuse this loan for the next message
        }
        drop();
    }

    std::atomic<int> users_{1}, held_{0};  // the reader and a message in use; holders of the message
    std::shared_ptr<Control> control_;
    MemoryPtr memory_;
    std::vector<MemoryPtr> blocks_;  // shared blocks of the message in use
    std::vector<dlpack::Managed> managed_;
    int slot_;
    unsigned generation_;  // copies in a forked child return nothing
};

// Description of new memory for a slot.
struct NewSlot {
    int number;
    MemoryPtr memory;
    std::unique_ptr<Outline> outline;

    // Read (slot, fd, size, outline); the slot must be below `slots`. False with an exception; throws std::system_error.
    bool read(PyObject *arguments, size_t slots) {
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
};

}  // namespace dpmodule::pipe
