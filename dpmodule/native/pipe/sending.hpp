// Sending structures: looking at a value, finding a slot for it, copying, publishing.
#pragma once

#include "python.hpp"

#include <memory>
#include <vector>

#include "pipe/control.hpp"
#include "pipe/core.hpp"
#include "pipe/loan.hpp"
#include "pipe/outline.hpp"
#include "pipe/tensors.hpp"

namespace dpmodule::pipe {

// What `send` of the Python type returns (streams/pipe/control.py); `failed` means a Python exception.
enum Status { sent = 0, full = 1, unfit = 2, foreign = 3, look = 4, failed = -1 };

struct Home {
    int64_t offset, capacity;
};

struct WriterSlot {
    MemoryPtr memory;
    std::unique_ptr<Outline> outline;
    std::vector<Home> homes;
    int axes = 0;
};

// Where the reader can see a tensor: in the slot, or in a shared block.
struct Place {
    bool visible = false;
    int64_t source = Table::own, offset = 0;
};

class Sending {
  public:
    // `find` is SharedBlocks.find of streams/pipe/external_memory.py. Throws std::system_error.
    Sending(int fd, int own_fd, int other_fd, PyObject *find);
    ~Sending();

    // Send to any free slot that has the value's outline and room for it, or to a leased one. May throw.
    Status send(PyObject *value, int leased);
    // Send to any free slot, waiting for one if need be; `full` if something else comes first. May throw.
    Status send_wait(PyObject *value);
    // Whether a slot has the value's outline, and its tensors can be sent; -1 with an exception. May throw.
    int fits(PyObject *value);
    // Make a message visible to the reader and wake it.
    void publish(uint64_t kind, int slot);
    // Write what a tensor is into a slot's record.
    static void describe(const Table &table, int number, const Leaf &leaf, const Place &place);
    // Look up tensors at these addresses: a shared block lies there.
    void remember(const char *start, int64_t size);
    // Let go of all memory, at the end of the call that runs in another thread if there is one.
    void release();

    bool is_free(int slot) { return control.slot(slot).load(std::memory_order_acquire) == 0; }
    bool is_ready();

    Control control;
    Waiting waiting;
    std::vector<WriterSlot> slots;
    bool busy = false;  // a call is under way; it may have let another thread run
    unsigned frames = 0;
    unsigned long long messages = 0, zero_copy = 0, copied = 0;

  private:
    struct Range {
        const char *start, *end;
    };
    class Busy;

    bool overdue();
    Status look_at_leaves();
    bool ask(const Leaf &leaf, Place &place);
    bool find_places(const WriterSlot *leased);
    bool fits(const WriterSlot &slot) const;
    void copy_all(const WriterSlot &slot) const;
    void write(WriterSlot &slot);
    Status try_slot(int number, PyObject *value, bool leased);
    bool known(const char *data) const;
    void drop_leaves();

    PyObject *find_;
    bool release_later_ = false;
    int64_t look_at_ns_ = 0;
    std::vector<Range> ranges_;             // where known shared blocks lie, or lay
    std::vector<const char *> private_at_;  // where each leaf lay when it was last asked and not shared
    std::vector<PyObject *> objects_;       // of the value being sent
    std::vector<Leaf> leaves_;
    std::vector<Place> places_;
};

}  // namespace dpmodule::pipe
