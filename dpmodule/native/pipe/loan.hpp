// Tensors over shared memory, which keep it mapped and tell when the last of them is gone.
#pragma once

#include "python.hpp"

#include <atomic>
#include <memory>
#include <vector>

#include "pipe/control.hpp"
#include "pipe/dlpack.hpp"
#include "pipe/outline.hpp"

namespace dpmodule::pipe {

using MemoryPtr = std::shared_ptr<Memory>;

// The head and the records of a slot's memory (streams/pipe/layout.py).
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

// What the reader's tensors of one slot have in common. The slot has at most one message at a time, so that one of
// these serves all messages until the slot is laid out again. It outlives the pipe: tensors may be dropped at any time
// and in any thread, without the GIL.
class Loan {
  public:
    Loan(std::shared_ptr<Control> control, MemoryPtr memory, int slot);

    // Begin a message: the loan counts as in use until `finish`, and until every tensor made meanwhile is gone.
    void begin();
    void finish();
    // A new tensor for a record; `block` is the memory it is in. nullptr with an exception.
    PyObject *lend(int leaf, const MemoryPtr &block);
    // The reader is done with it.
    void drop();

    const MemoryPtr &memory() const { return memory_; }

  private:
    ~Loan() = default;
    static void give_back(dlpack::Managed *managed);
    void release();

    std::atomic<int> users_{1}, held_{0};  // the reader and a message in use; what holds the message
    std::shared_ptr<Control> control_;
    MemoryPtr memory_;
    std::vector<MemoryPtr> blocks_;  // shared blocks of the message in use
    std::vector<dlpack::Managed> managed_;
    int slot_;
    unsigned generation_;  // a forked child's copies give nothing back
};

// A tensor over a record in a slot of the writer's; it keeps the memory mapped. nullptr with an exception.
PyObject *writable(const MemoryPtr &memory, int leaf);

// New memory for a slot, as both ends are told of it.
struct NewSlot {
    int number;
    MemoryPtr memory;
    std::unique_ptr<Outline> outline;

    // Read (slot, fd, size, outline) for one of so many slots. False with an exception; throws std::system_error.
    bool read(PyObject *arguments, size_t slots);
};

}  // namespace dpmodule::pipe
