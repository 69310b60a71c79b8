// Sending structures: inspect a value, find a slot for it, copy, publish.
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

// Results of the Python type's `send` (streams/pipe/control.py); `failed` means a Python exception.
enum Status { sent = 0, full = 1, unfit = 2, foreign = 3, look = 4, failed = -1 };

struct Space {
    int64_t offset, capacity;
};

struct WriterSlot {
    MemoryPtr memory;
    std::unique_ptr<Outline> outline;
    std::vector<Space> spaces;
    int axes = 0;
};

// Location of a tensor that the reader sees: in the slot, or in a shared block.
struct Location {
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
    // Send to any free slot, waiting if none is free; `full` if something else comes first. May throw.
    Status send_wait(PyObject *value);
    // Return 1 if a slot has the value's outline and its tensors can be sent; -1 with an exception. May throw.
    int fits(PyObject *value);
    // Make a message visible to the reader and wake it.
    void publish(uint64_t kind, int slot);
    // Write a tensor's type, shape and location to a slot's record.
    static void describe(const Table &table, int number, const Leaf &leaf, const Location &location);
    // Record that these addresses belong to a shared block, so that tensors there are looked up.
    void remember(const char *start, int64_t size);
    // Release all memory; if a call runs in another thread, when it ends.
    void release();

    bool is_free(int slot) { return control.slot(slot).load(std::memory_order_acquire) == 0; }
    bool is_ready();

    Control control;
    Waiting waiting;
    std::vector<WriterSlot> slots;
    bool busy = false;  // a call is running; it may have released the GIL
    unsigned frames = 0;
    unsigned long long messages = 0, zero_copy = 0, copied = 0;

  private:
    struct Range {
        const char *start, *end;
    };
    class Busy;

    bool reader_check_due();
    Status inspect_leaves();
    bool ask_location(const Leaf &leaf, Location &location);
    bool locate_leaves(const WriterSlot *leased);
    bool fits(const WriterSlot &slot) const;
    void copy_all(const WriterSlot &slot) const;
    void write(WriterSlot &slot);
    Status try_slot(int number, PyObject *value, bool leased);
    bool known(const char *data) const;
    void drop_leaves();

    PyObject *find_;
    bool release_later_ = false;
    int64_t next_reader_check_ns_ = 0;
    std::vector<Range> ranges_;             // current and former addresses of known shared blocks
    std::vector<const char *> private_at_;  // address of each leaf when last found not to be shared
    std::vector<PyObject *> objects_;       // leaves of the value being sent
    std::vector<Leaf> leaves_;
    std::vector<Location> locations_;
};

}  // namespace dpmodule::pipe
