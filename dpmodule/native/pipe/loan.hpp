// Tensors over shared memory, which keep it mapped and return the slot when the last of them is gone.
#pragma once

#include "python.hpp"

#include <atomic>
#include <memory>
#include <vector>

#include "pipe/control.hpp"
#include "pipe/outline.hpp"
#include "pipe/tensors.hpp"

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

// Shared state of the reader's tensors in one slot. A slot holds at most one message at a time, so one loan serves all
// messages until the slot gets new memory. It outlives the pipe: tensors may be dropped at any time, in any thread and
// without the GIL.
class Loan {
  public:
    Loan(std::shared_ptr<Control> control, MemoryPtr memory, int slot);

    // Begin a message: the loan is in use until `finish`, and until all tensors made in between are gone.
    void begin();
    void finish();
    // Make a tensor for a record in the memory `block`; nullptr with an exception.
    PyObject *lend(int leaf, const MemoryPtr &block);
    // Drop the reader's reference.
    void drop();

    const MemoryPtr &memory() const { return memory_; }

  private:
    ~Loan() = default;
    static void give_back(dlpack::Managed *managed);
    void release();

    std::atomic<int> users_{1}, held_{0};  // the reader and a message in use; holders of the message
    std::shared_ptr<Control> control_;
    MemoryPtr memory_;
    std::vector<MemoryPtr> blocks_;  // shared blocks of the message in use
    std::vector<dlpack::Managed> managed_;
    int slot_;
    unsigned generation_;  // copies in a forked child return nothing
};

// Make a tensor over a record in a writer's slot; it keeps the memory mapped. nullptr with an exception.
PyObject *writable(const MemoryPtr &memory, int leaf);

// Description of new memory for a slot.
struct NewSlot {
    int number;
    MemoryPtr memory;
    std::unique_ptr<Outline> outline;

    // Read (slot, fd, size, outline); the slot must be below `slots`. False with an exception; throws std::system_error.
    bool read(PyObject *arguments, size_t slots);
};

}  // namespace dpmodule::pipe
